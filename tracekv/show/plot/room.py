"""The picture of one room: who did what in which order, on both sides, and how it did not end.

One promise: what the trace left open stays open.  An unfinished band or transfer fades out to the right
and has no closing edge; only a row that ended it gives it one.

The picture is laid out in inches inside the Axes, labels and legend included, so it needs nothing
from the figure around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tracekv.errors import UsageError
from tracekv.show.plot.bands import draw_bands, draw_bars, draw_folds, draw_lanes
from tracekv.show.plot.fold import after, duration
from tracekv.show.plot.ink import Ink
from tracekv.show.plot.layout import GUTTER, PER_UNIT, TAIL, WIDTHS, Plan, plan_of
from tracekv.show.plot.legible import PLAIN, claim, inches, plain, wrapped
from tracekv.show.plot.marks import draw_arrows, draw_marks
from tracekv.show.plot.palette import GREY, WHITE
from tracekv.show.plot.picture import Picture, picture_of, verdict_words
from tracekv.show.plot.words import draw_legend, draw_words

if TYPE_CHECKING:
    from tracekv.event import Event
    from tracekv.finding import Finding
    from tracekv.rooms.life import Room

SUFFIXES: Final = ("png", "svg", "pdf")


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
    findings = [finding for finding in findings if finding.room == room.room]
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
        raise UsageError(f"cannot draw into {path.name!r}: its suffix is none of {known}")
    figure = Figure()
    room_plot(room, findings, _axes_in(figure, picture_of(room, findings)), build=build)
    figure.savefig(path, format=suffix, dpi=160)


def _axes_in(figure: Figure, picture: Picture) -> Axes:
    """The only Axes of a figure that is made as large as the picture wants."""
    width = min(max(GUTTER + 0.2 + picture.end * PER_UNIT + TAIL, WIDTHS[0]), WIDTHS[1])
    height = plan_of(picture, width, None).height
    left, below, above = 0.15, 0.66, 0.5
    figure.set_size_inches(width + 2 * left, height + below + above)
    full_w, full_h = figure.get_size_inches()
    return figure.add_axes((left / full_w, below / full_h, width / full_w, height / full_h))


def _draw(ax: Axes, picture: Picture) -> None:
    width, height = _size(ax)
    plan = plan_of(picture, width, height)
    ax.set_xlim(0, plan.width)
    ax.set_ylim(0, plan.height)
    ax.set_yticks([])
    ax.grid(False)
    ax.set_facecolor(WHITE)
    for side in ("left", "right", "top"):
        ax.spines[side].set_visible(False)
    ink = Ink(ax, picture, plan)
    for draw in (
        draw_lanes,
        draw_folds,
        draw_bands,
        draw_bars,
        draw_arrows,
        draw_marks,
        draw_words,
        draw_legend,
    ):
        draw(ink)
    _ticks(ax, picture, plan)


def _size(ax: Axes) -> tuple[float, float]:
    """Width and height of the Axes in inches."""
    box = ax.get_window_extent()
    figure = ax.get_figure()
    dpi = figure.dpi if figure is not None else 100.0
    return float(box.width / dpi), float(box.height / dpi)


def _ticks(ax: Axes, picture: Picture, plan: Plan) -> None:
    """Real times at rows that lie far enough apart for their labels; rows with words first."""
    moments = picture.time.moments
    zero = moments[0].at_ns if moments else 0
    spoken = {say.at for say in picture.says}
    ends = (moments[0], moments[-1]) if moments else ()
    chosen: dict[float, str] = {}
    taken: list[tuple[float, float]] = []
    for moment in sorted(
        moments, key=lambda m: (m not in ends, (m.event.process, m.event.seq) not in spoken, m.x)
    ):
        x, label = plan.x(moment.x), after(moment.at_ns - zero)
        half = inches(label) / 2 + 0.04
        if claim(taken, x - half, x + half):
            chosen[x] = label
    ax.set_xticks(list(chosen), list(chosen.values()), fontsize=8, usetex=False)
    words = wrapped(_axis_words(picture), max(int(plan.width / 0.072), 40), 3)
    ax.set_xlabel("\n".join(words), loc="left", **_text())


def _axis_words(picture: Picture) -> str:
    first = picture.time.moments[0].event if picture.time.moments else None
    words = ["time after the first row" + (f" ({_wall(first)})" if first else "")]
    words.append("order is exact within a process, distances are not to scale")
    if len({moment.event.process for moment in picture.time.moments}) > 1:
        words.append("between processes the clocks order")
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
        plain("  ·  ".join(word for word in words if word), 140),
        loc="left",
        pad=20,
        fontweight="bold",
        **_text(11),
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
