"""What happens at once: writes, pops, ABORT, chunks, and the arrows between those who hand something over.

One promise: a mark lies on its thread's line at its row's place; its word is there where there is room,
the most telling first.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from tracekv.event import Event, Op
from tracekv.show.plot.fold import Moment
from tracekv.show.plot.ink import ARROWS, FOLDS, MARKS, Ink
from tracekv.show.plot.layout import BAND
from tracekv.show.plot.legible import claim, inches, plain
from tracekv.show.plot.palette import BARRED, BLACK, GREY, READS, VERMILLION, face, look, word
from tracekv.show.plot.picture import Arrow, Key, Lane

_ARROW_INK: Final = {"abort": VERMILLION, "chunk": GREY}
_OFF: Final = 0.17  # inches from a thread's line to the words beside it
_CROWD_RANK: Final = 5  # in a crowd, words of a higher rank are not written

Stretch = tuple[float, float]


def draw_arrows(ink: Ink) -> None:
    """What one thread handed to another; in a crowd, chunks are threads of ink without a head."""
    for arrow in ink.picture.arrows:
        points = [
            (ink.x(ink.picture.x_of[k]), ink.plan.lanes[ink.picture.lane_of[k]][0]) for k in _ends(arrow)
        ]
        if ink.picture.crowded and arrow.kind == "chunk":
            style: dict[str, Any] = {"color": GREY, "alpha": 0.35, "lw": 0.4, "zorder": FOLDS}
            ink.line(points, "arrow:chunk", **style)
            continue
        strong = arrow.kind == "abort"
        ink.ax.add_artist(
            FancyArrowPatch(
                *points,
                arrowstyle="-|>",
                mutation_scale=10,
                lw=1.6 if strong else 0.9,
                color=_ARROW_INK.get(arrow.kind, "#444444"),
                shrinkA=4,
                shrinkB=4,
                zorder=ARROWS,
                gid=ink.gid(f"arrow:{arrow.kind}"),
            )
        )


def _ends(arrow: Arrow) -> tuple[Key, Key]:
    return (arrow.sent.process, arrow.sent.seq), (arrow.received.process, arrow.received.seq)


def draw_marks(ink: Ink) -> None:
    """Every row that is no bar, and a dotted line from each write to the band that it began."""
    busy = _arrow_sides(ink)
    for i, section in enumerate(ink.picture.sections):
        for lane in section.lanes:
            _reads(ink, lane)
            _marks(ink, lane)
            _mark_words(ink, lane, busy)
        if not ink.picture.crowded and i in ink.plan.bands:
            _connect(ink, section.lanes, ink.plan.bands[i])


def _arrow_sides(ink: Ink) -> dict[Key, bool]:
    """For every row at an arrow's end, whether the arrow lies above it."""
    sides: dict[Key, bool] = {}
    for arrow in ink.picture.arrows:
        ends = _ends(arrow)
        low, high = sorted(ends, key=lambda key: ink.plan.lanes[ink.picture.lane_of[key]][0])
        sides |= {low: True, high: False}
    return sides


def _reads(ink: Ink, lane: Lane) -> None:
    y = ink.middle(lane)
    ticks = [ink.x(m.x) for m in lane.moments if m.event.op in READS]
    lines = [[(x, y - 0.045), (x, y + 0.045)] for x in ticks]
    ink.lines(
        lines, f"reads:{lane.key[0][1]}:{plain(lane.thread, 64)}", colors=GREY, linewidths=0.8, zorder=MARKS
    )


def _marks(ink: Ink, lane: Lane) -> None:
    size = 4.5 if ink.picture.crowded else 7.0
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for m in _marked(lane):
        groups[m.event.op, face(m.event)].append(ink.x(m.x))
    for (op, fill), xs in groups.items():
        big = size * (1.3 if look(op).rank <= 2 else 1.0)
        mark = Line2D(xs, [ink.middle(lane)] * len(xs), ls="", marker=look(op).marker, ms=big, zorder=MARKS)
        mark.set(mfc=fill, mec=BLACK, mew=0.7, gid=ink.gid(f"mark:{op}"))
        ink.ax.add_artist(mark)


def _marked(lane: Lane) -> list[Moment]:
    return [m for m in lane.moments if m.event.op not in READS | BARRED]


def _mark_words(ink: Ink, lane: Lane, busy: dict[Key, bool]) -> None:
    """Words above or below the marks; what finds no room is left to the legend."""
    off = _OFF * ink.plan.scale
    if off < 0.11:
        return
    above: list[Stretch] = []
    below: list[Stretch] = []
    badges = {say.at for say, _ in ink.plan.says if say.n is not None}
    for m in lane.moments:
        if _key(m) in badges:
            claim(above, ink.x(m.x) - 0.1, ink.x(m.x) + 0.1)
    for m in sorted(_marked(lane), key=lambda m: (look(m.event.op).rank, m.x)):
        sides = [(above, off), (below, -off)]
        if busy.get(_key(m), False):
            sides.reverse()
        text = _word(ink, m.event)
        half = inches(text) / 2 + 0.02
        free = text and next(
            (y for taken, y in sides if claim(taken, ink.x(m.x) - half, ink.x(m.x) + half)), 0
        )
        if free:
            ink.text(
                ink.x(m.x), ink.middle(lane) + free, text, "mark-words", ha="center", va="center", halo=True
            )


def _word(ink: Ink, event: Event) -> str:
    if ink.picture.crowded and look(event.op).rank > _CROWD_RANK:
        return ""
    if ink.picture.crowded and event.op in (Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED):
        return f"c{event.chunk}"
    life = ink.picture.life_of.get((event.process, event.seq), 0)
    return f"open: life {life}" if event.op == Op.ROOM_OPENED and life else plain(word(event), 26)


def _key(m: Moment) -> Key:
    return m.event.process, m.event.seq


def _connect(ink: Ink, lanes: tuple[Lane, ...], band: float) -> None:
    """From a write that changed the state to the band that it began."""
    lines = []
    for lane in lanes:
        y = ink.middle(lane)
        edge = band if band > y else band + BAND * ink.plan.scale
        lines += [[(ink.x(m.x), y), (ink.x(m.x), edge)] for m in lane.moments if _changes(m.event)]
    ink.lines(lines, "writes", colors="#999999", linewidths=0.8, linestyles=":", zorder=FOLDS)


def _changes(event: Event) -> bool:
    return event.op in (Op.STATUS_WRITTEN, Op.STATUS_DROPPED) and event.old != event.new
