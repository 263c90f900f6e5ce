"""The ink of a room's picture: every artist, each with an id that says what it stands for.

One promise: an artist's ``gid`` names it (``band:prefill:FAILED``, ``open:prefill``, ``xfer:3``,
``mark:abort.received``, ``say:pinned``) and is unique in its picture, so that a test, or a script
in an SVG, finds it; a second one of a name is ``name#2``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Rectangle

from tracekv.event import Op, State, state_label
from tracekv.show.fold import Moment, duration
from tracekv.show.legible import LINE, PLAIN, Flag, beside, inches, plain
from tracekv.show.palette import BARRED, BLACK, GREY, PALE, PURPLE, READS, VERMILLION, WHITE, face, look, shade, word
from tracekv.show.picture import Band, Bar, Lane, Picture, Say

if TYPE_CHECKING:
    from tracekv.show.plot import Plan

#: What lies over what.
LANES, FOLDS, BANDS, BARS, ARROWS, LEADERS, MARKS, LABELS, BOXES = range(1, 10)

_ARROW_INK: Final = {"abort": VERMILLION, "chunk": GREY}
_TEXT: Final[dict[str, Any]] = dict(PLAIN)


def legend_handles(picture: Picture) -> list[Artist]:
    """One handle for every kind of thing that this picture shows."""
    states = sorted({band.state for section in picture.sections for band in section.bands})
    handles: list[Artist] = [
        Patch(facecolor=shade(s).face, hatch=shade(s).hatch, edgecolor=BLACK, lw=0.5, label=state_label(s))
        for s in states
    ]
    lanes = [lane for section in picture.sections for lane in section.lanes]
    if any(lane.bars for lane in lanes):
        handles.append(Patch(facecolor=PURPLE, edgecolor=BLACK, lw=0.5, label="transfer"))
    seen = {m.event.op for lane in lanes for m in lane.moments}
    marks = {look(op).kind: look(op) for op in sorted(seen - READS - BARRED, key=lambda op: look(op).rank)}
    handles += [
        Line2D([], [], ls="", marker=m.marker, mfc=m.face, mec=BLACK, mew=0.7, ms=6, label=m.kind)
        for m in marks.values()
    ]
    if seen & READS:
        handles.append(Line2D([], [], ls="", marker="|", mec=GREY, ms=5, label="read / idle"))
    return handles


class Ink:
    """Draws one picture by its plan onto one Axes, whose data coordinates are inches."""

    def __init__(self, ax: Axes, picture: Picture, plan: Plan) -> None:
        self.ax = ax
        self.picture = picture
        self.plan = plan
        self._used: Counter[str] = Counter()
        self._numbered = {say.at for say, _ in plan.says if say.n is not None}

    def _gid(self, name: str) -> str:
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name}#{self._used[name]}"

    def _text(self, x: float, y: float, text: str, gid: str, **style: Any) -> None:
        self.ax.text(x, y, text, gid=self._gid(gid), **{**_TEXT, "clip_on": True, **style})

    def _box(self, x0: float, y0: float, x1: float, y1: float, **style: Any) -> None:
        self.ax.add_artist(Rectangle((x0, y0), x1 - x0, y1 - y0, **style))

    def _x(self, units: float) -> float:
        return self.plan.x(units)

    @property
    def _now(self) -> float:
        """The place of the last row: from here on nothing is known."""
        return self._x(self.picture.end)

    def lanes(self) -> None:
        """A strip and a name for every thread, a heading for every role."""
        left = self._x(0) - 0.2
        for section in self.picture.sections:
            for i, lane in enumerate(section.lanes):
                middle, high = self.plan.lanes[lane.key]
                top = middle + 0.28 * self.plan.scale
                fill = PALE if i % 2 == 0 else WHITE
                self._box(left, top - high, self.plan.width, top, fc=fill, lw=0, zorder=LANES)
                self.ax.add_artist(Line2D([left, self._now], [middle, middle], color="#CCCCCC", lw=0.7, zorder=LANES))
                name = plain(lane.thread, 16)
                gid = f"lane:{section.role}:{lane.thread}"
                self._text(left - 0.08, middle, name, gid, ha="right", va="center")
        self._headings(left)

    def _headings(self, left: float) -> None:
        alone = Counter(section.role for section in self.picture.sections)
        for i, section in enumerate(self.picture.sections):
            name = section.role if alone[section.role] == 1 else f"{section.role} m{section.key[3]}"
            if i in self.plan.bands:
                y = self.plan.bands[i] + 0.2 * self.plan.scale
                self._text(left - 0.08, y + 0.075, plain(name, 18), f"role:{name}", ha="right", va="center", weight="bold")
                self._text(left - 0.08, y - 0.075, "request_status", f"name:{name}", ha="right", va="center", color=GREY)
            else:
                middle, _ = self.plan.lanes[section.lanes[0].key]
                self._text(0.0, middle + 0.15, plain(name, 18), f"role:{name}", va="center", weight="bold")

    def folds(self) -> None:
        """Where a silence is drawn shorter than it was: a pale stretch, its real length below."""
        for fold in self.picture.folds:
            x0, x1 = self._x(fold.x0), self._x(fold.x1)
            pad = (x1 - x0) * 0.3
            self._box(x0 + pad, 0, x1 - pad, self.plan.top, fc="#E4E4E4", alpha=0.55, lw=0, zorder=FOLDS, gid=self._gid("fold"))
            text = f"≈ {duration(fold.ns)}"
            if inches(text) > x1 - x0 + 0.1:
                text = "≈"
            self._text((x0 + x1) / 2, 0.1, text, "fold-length", ha="center", va="center", zorder=LABELS)

    def bands(self) -> None:
        """What ``request_status`` held, as bands in words; an end is drawn only where a row made one."""
        for i, section in enumerate(self.picture.sections):
            for band in section.bands:
                self._band(band, section.role, self.plan.bands[i])

    def _band(self, band: Band, role: str, y: float) -> None:
        high = 0.4 * self.plan.scale
        x0, x1 = self._x(band.x0), self._now if band.x1 is None else self._x(band.x1)
        look_of = shade(band.state)
        name = State(band.state).name if band.state in set(State) else str(band.state)
        gid = self._gid(f"band:{role}:{name}")
        self._box(x0, y, x1, y + high, fc=look_of.face, lw=0, zorder=BANDS, gid=gid)
        self._box(x0, y, x1, y + high, fc="none", hatch=look_of.hatch, ec=(0, 0, 0, 0.22), lw=0, zorder=BANDS)
        self.ax.add_artist(Line2D([x0, x0], [y, y + high], color=BLACK, lw=1.0, zorder=BANDS))
        self._band_words(band, x0, x1, y + high / 2)
        if band.x1 is None:
            self._fade(x1, self.plan.width, y, y + high, look_of.face, f"open:{role}")
            self._text(x1 + 0.1, y + high / 2, "not closed\nin this trace", "open-words", va="center", zorder=LABELS, linespacing=1.0)
        elif band.closed:
            end = Line2D([x1, x1], [y - 0.04, y + high + 0.04], color=BLACK, lw=3.2, zorder=LABELS, solid_capstyle="butt")
            end.set_gid(self._gid(f"close:{role}"))
            self.ax.add_artist(end)

    def _band_words(self, band: Band, x0: float, x1: float, y: float) -> None:
        """The state's name, shorter or upright where the band is narrow."""
        look_of = shade(band.state)
        full = state_label(band.state)
        text = next((t for t in (full, look_of.short) if inches(t, bold=True) + 0.1 <= x1 - x0), None)
        if text is None and x1 - x0 < 0.16:
            return
        style = {"ha": "center", "va": "center", "color": look_of.ink, "weight": "bold", "zorder": LABELS}
        back = {"fc": look_of.face, "ec": "none", "boxstyle": "square,pad=0.1"}
        rotation = 0 if text else 90
        self._text((x0 + x1) / 2, y, text or look_of.short, "band-words", rotation=rotation, bbox=back, **style)

    def _fade(self, x0: float, x1: float, y0: float, y1: float, colour: str, gid: str) -> None:
        """A stretch that thins out to nothing: the trace ends, the room does not."""
        pixels = np.ones((1, 64, 4))
        pixels[..., :3] = to_rgb(colour)
        pixels[..., 3] = np.linspace(0.95, 0.0, 64) ** 1.3
        image = AxesImage(self.ax, extent=(x0, x1, y0, y1), interpolation="bilinear", zorder=BANDS, origin="lower")
        image.set_data(pixels)
        image.set_gid(self._gid(gid))
        image.set_clip_path(self.ax.patch)
        self.ax.add_image(image)

    def bars(self) -> None:
        """Transfers below their thread's line, from posted to settled."""
        for section in self.picture.sections:
            for lane in section.lanes:
                for bar in lane.bars:
                    self._bar(lane, bar)

    def _bar(self, lane: Lane, bar: Bar) -> None:
        middle, _ = self.plan.lanes[lane.key]
        step = 0.2 * self.plan.scale
        y = middle - 0.28 * self.plan.scale - step * (bar.row + 1) + 0.02
        x0, x1 = self._x(bar.x0), self._now if bar.x1 is None else self._x(bar.x1)
        gid = f"xfer:{bar.handle if bar.handle is not None else '?'}"
        if bar.x1 is None:
            self._fade(x0, self.plan.width, y, y + step - 0.03, PURPLE, gid)
            self.ax.add_artist(Line2D([x0, x0], [y, y + step - 0.03], color=BLACK, lw=1.0, zorder=BARS))
        else:
            hatch = "xx" if bar.failed else ""
            self._box(x0, y, x1, y + step - 0.03, fc=PURPLE, ec=BLACK, lw=0.8, hatch=hatch, zorder=BARS, gid=self._gid(gid))
        room = (self.plan.width if bar.x1 is None else x1) - x0 - 0.1
        text = next((t for t in _bar_words(bar) if inches(t) <= room), None)
        if text:
            self._text(x0 + 0.05, y + step / 2 - 0.02, text, "xfer-words", va="center", zorder=LABELS)

    def arrows(self) -> None:
        """What one thread handed to another."""
        lane_of, x_of = self.picture.lane_of, self.picture.x_of
        for arrow in self.picture.arrows:
            sent, received = (arrow.sent.process, arrow.sent.seq), (arrow.received.process, arrow.received.seq)
            if sent not in x_of or received not in x_of:
                continue
            strong = arrow.kind == "abort"
            self.ax.add_artist(
                FancyArrowPatch(
                    (self._x(x_of[sent]), self.plan.lanes[lane_of[sent]][0]),
                    (self._x(x_of[received]), self.plan.lanes[lane_of[received]][0]),
                    arrowstyle="-|>",
                    mutation_scale=8 if self.picture.crowded else 10,
                    lw=1.6 if strong else 0.9,
                    alpha=1.0 if strong or not self.picture.crowded else 0.5,
                    color=_ARROW_INK.get(arrow.kind, "#444444"),
                    shrinkA=4,
                    shrinkB=4,
                    zorder=ARROWS,
                    gid=self._gid(f"arrow:{arrow.kind}"),
                )
            )

    def marks(self) -> None:
        """Every other row on its thread's line, with a word where there is room."""
        for i, section in enumerate(self.picture.sections):
            for lane in section.lanes:
                self._reads(lane)
                self._marks(lane, section.role)
                self._mark_words(lane)
            if not self.picture.crowded and i in self.plan.bands:
                self._connect(section.lanes, self.plan.bands[i])

    def _reads(self, lane: Lane) -> None:
        middle, _ = self.plan.lanes[lane.key]
        ticks = [self._x(m.x) for m in lane.moments if m.event.op in READS]
        if ticks:
            lines = [[(x, middle - 0.045), (x, middle + 0.045)] for x in ticks]
            gid = self._gid(f"reads:{lane.key[0][1]}:{lane.thread}")
            self.ax.add_artist(LineCollection(lines, colors=GREY, linewidths=0.8, zorder=MARKS, gid=gid))

    def _marks(self, lane: Lane, role: str) -> None:
        middle, _ = self.plan.lanes[lane.key]
        size = 4.5 if self.picture.crowded else 7.0
        groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for m in lane.moments:
            if m.event.op not in READS | BARRED:
                groups[m.event.op, look(m.event.op).marker, face(m.event)].append(self._x(m.x))
        for (op, marker, fill), xs in groups.items():
            big = size * (1.3 if look(op).rank <= 2 else 1.0)
            style = {"ls": "", "marker": marker, "mfc": fill, "mec": BLACK, "mew": 0.7, "ms": big, "zorder": MARKS}
            mark = Line2D(xs, [middle] * len(xs), **style)
            mark.set_gid(self._gid(f"mark:{op}"))
            self.ax.add_artist(mark)

    def _mark_words(self, lane: Lane) -> None:
        """Words above or below the marks, the most telling first; what finds no room is left to the legend."""
        middle, _ = self.plan.lanes[lane.key]
        off = 0.17 * self.plan.scale
        if off < 0.11:
            return
        above: list[tuple[float, float]] = []
        below: list[tuple[float, float]] = []
        for m in lane.moments:
            if (m.event.process, m.event.seq) in self._numbered:
                beside(above, self._x(m.x) - 0.1, self._x(m.x) + 0.1)
        shown = [m for m in lane.moments if m.event.op not in READS | BARRED and word(m.event)]
        for m in sorted(shown, key=lambda m: (look(m.event.op).rank, m.x)):
            self._mark_word(m, middle, off, above, below)

    def _mark_word(
        self, m: Moment, middle: float, off: float, above: list[tuple[float, float]], below: list[tuple[float, float]]
    ) -> None:
        text = plain(word(m.event), 26)
        x, half = self._x(m.x), inches(text) / 2
        for taken, y in ((above, middle + off), (below, middle - off)):
            if beside(taken, x - half, x + half):
                self._text(x, y, text, "mark-words", ha="center", va="center", zorder=LABELS)
                return

    def _connect(self, lanes: tuple[Lane, ...], band: float) -> None:
        """From a write that changed the state to the band that it began."""
        lines = []
        for lane in lanes:
            middle, _ = self.plan.lanes[lane.key]
            edge = band if band > middle else band + 0.4 * self.plan.scale
            for m in lane.moments:
                changed = m.event.op in (Op.STATUS_WRITTEN, Op.STATUS_DROPPED) and m.event.old != m.event.new
                if changed:
                    lines.append([(self._x(m.x), middle), (self._x(m.x), edge)])
        self.ax.add_artist(LineCollection(lines, colors="#999999", linewidths=0.8, linestyles=":", zorder=FOLDS))

    def words(self) -> None:
        """The boxes over the picture, each with a leader to its row."""
        for say, flag in self.plan.says:
            self._leader(say, flag)
            self._say(say, flag)

    def _leader(self, say: Say, flag: Flag) -> None:
        middle, _ = self.plan.lanes[self.picture.lane_of[say.at]]
        self.ax.add_artist(Line2D([flag.x, flag.x], [middle, flag.low], color=BLACK, lw=0.9, zorder=LEADERS))
        if say.n is not None:
            self._badge(flag.x, middle + 0.19 * self.plan.scale, say.n)

    def _badge(self, x: float, y: float, n: int) -> None:
        back = {"boxstyle": "circle,pad=0.15", "fc": WHITE, "ec": BLACK, "lw": 0.8}
        self._text(x, y, str(n), f"step:{n}", ha="center", va="center", weight="bold", bbox=back, zorder=BOXES)

    def _say(self, say: Say, flag: Flag) -> None:
        from tracekv.show.plot import say_lines

        head, body = say_lines(say)
        strong = not say.gid.startswith("say:step")
        corner = "round,pad=0,rounding_size=0.05"
        edge = VERMILLION if strong else GREY
        box = FancyBboxPatch((flag.left, flag.low), flag.width, flag.height, boxstyle=corner, fc=WHITE, ec=edge)
        box.set(lw=1.6 if strong else 0.8, zorder=BOXES, gid=self._gid(f"box:{say.gid[4:]}"))
        self.ax.add_artist(box)
        left, y = flag.left + 0.07, flag.low + flag.height - 0.05 - LINE / 2
        if say.n is not None:
            self._badge(left + 0.07, y, say.n)
            left += 0.24
        weight = "bold" if strong else "normal"
        self._lines(left, y, head, say.gid, weight=weight)
        self._lines(left, y - LINE * len(head), body, f"{say.gid}:body")

    def _lines(self, x: float, y: float, lines: list[str], gid: str, **style: Any) -> None:
        if lines:
            style = {"va": "top", "linespacing": LINE * 72 / 8 / 1.2 * 1.0, "zorder": BOXES + 1, **style}
            self._text(x, y + LINE / 2 - 0.01, "\n".join(lines), gid, **style)

    def legend(self) -> None:
        """Every kind that occurs, in a few rows under the title."""
        from tracekv.show.plot import legend_columns

        handles = legend_handles(self.picture)
        if not handles:
            return
        columns = legend_columns(self.picture, self.plan.width)
        style = {"fontsize": 8, "frameon": False, "borderaxespad": 0, "borderpad": 0, "handletextpad": 0.4}
        found = self.ax.legend(handles=handles, loc="upper left", ncols=columns, columnspacing=1.0, labelspacing=0.25, **style)
        found.set_gid("legend")


def _bar_words(bar: Bar) -> list[str]:
    """What a bar says, longest first."""
    chunk = f"c{bar.chunk}" if bar.chunk is not None else "transfer"
    size = f", {_size_words(bar.bytes)}" if bar.bytes else ""
    if bar.ns is None:
        return [f"{chunk}{size}, never seen done", f"{chunk}: open", chunk]
    how = "failed after" if bar.failed else "took"
    return [f"{chunk}{size}, {how} {duration(bar.ns)}", f"{chunk}, {duration(bar.ns)}", chunk]


def _size_words(size: int) -> str:
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= one:
            return f"{size / one:.3g} {unit}"
    return f"{size} B"
