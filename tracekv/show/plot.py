"""The picture of one room: who did what in which order, on both sides, and how it did not end.

One promise: what the trace left open stays open.  An unfinished band or transfer fades out to the right
and has no closing edge; only a row that ended it gives it one.

The picture is laid out in inches inside the Axes, labels and legend included, so it needs nothing
from the figure around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tracekv.errors import UsageError
from tracekv.show.fold import after, duration
from tracekv.show.ink import Ink, legend_handles
from tracekv.show.legible import LINE, PLAIN, Flag, flags, inches, plain, wrapped
from tracekv.show.picture import LaneKey, Picture, Say, Section, picture_of, verdict_words
from tracekv.show.palette import GREY

if TYPE_CHECKING:
    from tracekv.event import Event
    from tracekv.rooms.life import Room
    from tracekv.verdict import Finding

SUFFIXES: Final = ("png", "svg", "pdf")

GUTTER: Final = 1.42  # inches for the names of threads
TAIL: Final = 1.6  # inches in which what is open fades out
PER_UNIT: Final = 0.27  # inches of the least distance between two rows
WIDTHS: Final = (9.5, 24.0)
BAND: Final = 0.4
LANE: Final = 0.56
BAR: Final = 0.2
SPACE: Final = 0.16
FOLD_ROW: Final = 0.22
MAX_SAYS: Final = 9


def room_plot(
    room: Room, findings: Sequence[Finding] = (), ax: Axes | None = None, *, build: str | None = None
) -> Axes:
    """Draw one room, all its lives and both roles, and return the Axes.

    Parameters
    ----------
    room
        the room with its lives
    findings
        what is wrong with it: they give the title's verdict and the words in the picture
    ax
        where to draw; without it, a new pyplot figure of a fitting size, which a notebook shows
    build
        the engine's build, for the title; read from the rows where they hold it
    """
    picture = picture_of(room, findings)
    if ax is None:
        from matplotlib import pyplot

        ax = _axes_in(pyplot.figure(), picture)
    _draw(ax, picture)
    _title(ax, room, findings, build)
    return ax


def save(room: Room, findings: Sequence[Finding], path: str | Path, *, build: str | None = None) -> None:
    """Draw one room into a file; the suffix chooses png, svg or pdf.

    Raises
    ------
    UsageError
        for any other suffix
    """
    path = Path(path)
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in SUFFIXES:
        known = ", ".join(f".{name}" for name in SUFFIXES)
        raise UsageError(f"cannot draw into {path.name!r}: its suffix is none of {known}", hint="e.g. room.png")
    figure = Figure()
    room_plot(room, findings, _axes_in(figure, picture_of(room, findings)), build=build)
    figure.savefig(path, format=suffix, dpi=160)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where everything lies, in inches from the Axes' lower left corner."""

    width: float
    height: float
    per_unit: float
    scale: float  # of the lanes' heights; 1 on a figure of the natural size
    lanes: dict[LaneKey, tuple[float, float]]  # middle and height
    bands: dict[int, float]  # lower edge, by number of the section
    top: float  # of the uppermost band
    says: tuple[tuple[Say, Flag], ...]

    def x(self, units: float) -> float:
        return GUTTER + 0.2 + units * self.per_unit


def _axes_in(figure: Figure, picture: Picture) -> Axes:
    """The only Axes of a figure that is made as large as the picture wants."""
    width = min(max(GUTTER + 0.2 + picture.end * PER_UNIT + TAIL, WIDTHS[0]), WIDTHS[1])
    height = _plan(picture, width, None).height
    left, below, above = 0.15, 0.62, 0.5
    figure.set_size_inches(width + 2 * left, height + below + above)
    full_w, full_h = figure.get_size_inches()
    return figure.add_axes((left / full_w, below / full_h, width / full_w, height / full_h))


def _body_height(sections: Sequence[Section]) -> float:
    """The natural height of bands, lanes and the spaces between roles."""
    lanes = [lane for section in sections for lane in section.lanes]
    return (
        sum(LANE + BAR * lane.bar_rows for lane in lanes)
        + sum(BAND for section in sections if section.bands)
        + SPACE * (2 * len(sections))
    )


def _plan(picture: Picture, width: float, height: float | None) -> Plan:
    """Lay out a picture in a width, and in a height where that is given; else as high as it wants."""
    per_unit = (width - GUTTER - 0.2 - TAIL) / max(picture.end, 1.0)
    per_unit = min(per_unit, 2.2 * PER_UNIT)
    says = _placed_says(picture, width, per_unit)
    words = max((flag.low + flag.height for _, flag in says), default=0.0) + (0.2 if says else 0.0)
    legend = LINE * 1.25 * legend_rows(picture, width) + 0.1
    natural = _body_height(picture.sections)
    if height is None:
        height = FOLD_ROW + natural + words + legend
    scale = max((height - FOLD_ROW - words - legend) / natural, 0.25)
    top = FOLD_ROW + natural * scale
    lanes, bands = _stacked(picture.sections, top, scale)
    lifted = tuple((say, Flag(f.left, f.low + top + 0.16, f.width, f.height, f.x)) for say, f in says)
    return Plan(width, height, per_unit, scale, lanes, bands, top, lifted)


def legend_rows(picture: Picture, width: float) -> int:
    handles = legend_handles(picture)
    return -(-len(handles) // legend_columns(picture, width))


def legend_columns(picture: Picture, width: float) -> int:
    widest = max((inches(str(h.get_label())) for h in legend_handles(picture)), default=1.0)
    return max(int(width / (widest + 0.42)), 1)


def _stacked(
    sections: Sequence[Section], top: float, scale: float
) -> tuple[dict[LaneKey, tuple[float, float]], dict[int, float]]:
    """Prefill: the band, then its threads; decode: its threads, then the band."""
    lanes: dict[LaneKey, tuple[float, float]] = {}
    bands: dict[int, float] = {}
    y = top
    for i, section in enumerate(sections):
        above = section.role != "decode"
        if above and section.bands:
            y -= BAND * scale
            bands[i] = y
        y -= SPACE * scale if above else 0
        for lane in section.lanes:
            high = (LANE + BAR * lane.bar_rows) * scale
            y -= high
            lanes[lane.key] = (y + high - LANE * scale / 2, high)
        if not above and section.bands:
            y -= (SPACE / 2 + BAND) * scale
            bands[i] = y
        y -= SPACE * scale
    return lanes, bands


def _placed_says(picture: Picture, width: float, per_unit: float) -> list[tuple[Say, Flag]]:
    says = picture.says[:MAX_SAYS]
    xs = [GUTTER + 0.2 + picture.x_of[say.at] * per_unit for say in says]
    sizes = []
    for say in says:
        head, body = say_lines(say)
        wide = max([inches(t, bold=True) for t in head] + [inches(t) for t in body])
        sizes.append((wide + 0.14 + (0.24 if say.n is not None else 0), LINE * len(head + body) + 0.1))
    return list(zip(says, flags(xs, sizes, width), strict=True))


def say_lines(say: Say) -> tuple[list[str], list[str]]:
    """A box's bold lines and its plain ones."""
    return wrapped(say.head, 34, 2), wrapped(say.body, 40, 3)


def _draw(ax: Axes, picture: Picture) -> None:
    width, height = _size(ax)
    plan = _plan(picture, width, height)
    ax.set_xlim(0, plan.width)
    ax.set_ylim(0, plan.height)
    ax.set_yticks([])
    for side in ("left", "right", "top"):
        ax.spines[side].set_visible(False)
    ink = Ink(ax, picture, plan)
    for draw in (ink.lanes, ink.folds, ink.bands, ink.bars, ink.arrows, ink.marks, ink.words, ink.legend):
        draw()
    _ticks(ax, picture, plan)


def _size(ax: Axes) -> tuple[float, float]:
    box = ax.get_window_extent()
    figure = ax.get_figure(root=True)
    dpi = figure.dpi if figure is not None else 100.0
    return float(box.width / dpi), float(box.height / dpi)


def _ticks(ax: Axes, picture: Picture, plan: Plan) -> None:
    """Real times at rows that lie far enough apart for their labels; rows with words first."""
    moments = picture.time.moments
    zero = moments[0].at_ns if moments else 0
    spoken = {say.at for say in picture.says}
    chosen: dict[float, str] = {}
    for moment in sorted(moments, key=lambda m: ((m.event.process, m.event.seq) not in spoken, m.x)):
        x, label = plan.x(moment.x), after(moment.at_ns - zero)
        if all(abs(x - other) > (inches(label) + inches(text)) / 2 + 0.08 for other, text in chosen.items()):
            chosen[x] = label
    ax.set_xticks(list(chosen), list(chosen.values()), fontsize=8, usetex=False)
    ax.set_xlabel(plain(_axis_words(picture), 240), loc="left", **_text())


def _axis_words(picture: Picture) -> str:
    first = picture.time.moments[0].event if picture.time.moments else None
    words = ["time after the first row" + (f" ({_wall(first)})" if first else "")]
    words.append("order is exact within a process, distances are not to scale")
    if picture.folds:
        words.append(f"silences from {duration(min(fold.ns for fold in picture.folds))} on are folded (≈)")
    if picture.time.moved_ns:
        moved = ", ".join(f"{process[:8]} by {after(ns)}" for process, ns in picture.time.moved_ns.items())
        words.append(f"clocks moved so that messages arrive after they left: {moved}")
    if picture.dropped:
        words.append(f"{picture.dropped} reads not drawn")
    return "; ".join(words)


def _wall(event: Event) -> str:
    if event.wall_ns is None:
        return "no wall clock"
    seconds, rest = divmod(event.wall_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}.{rest // 1000:06d} UTC"


def _title(ax: Axes, room: Room, findings: Sequence[Finding], build: str | None) -> None:
    build = build or _build_in(room)
    words = [f"Room {room.room}", f"build {plain(build, 40)}" if build else "", verdict_words(room, findings)]
    ax.set_title(
        plain("  ·  ".join(word for word in words if word), 140), loc="left", pad=20, fontweight="bold", **_text(11)
    )
    ax.annotate(
        f"0x{room.room:016x}",
        (0, 1),
        xytext=(0, 7),
        xycoords="axes fraction",
        textcoords="offset points",
        color=GREY,
        gid="hex",
        **_text(),
    )


def _build_in(room: Room) -> str | None:
    found = (e.attr("build") for life in room.lives for e in life.events if e.op == "process.started")
    return next((str(build) for build in found if build), None)


def _text(size: float = 8.0) -> dict[str, Any]:
    return {**PLAIN, "fontsize": size}
