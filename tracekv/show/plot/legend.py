"""The compact legend: one entry for every kind of thing that a picture shows, and no other.

One promise: as few rows as fit the width, and the layout knows how many before anything is drawn.
"""

from __future__ import annotations

from typing import Final

from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tracekv.event import State, state_label
from tracekv.show.plot.legible import inches
from tracekv.show.plot.palette import BARRED, BLACK, GREY, PURPLE, READS, look, shade
from tracekv.show.plot.picture import Picture

HANDLE: Final = 0.24  # inches of an entry's sign
PAD: Final = 0.05  # between the sign and its words
COLUMN: Final = 0.14  # between columns

#: The order of a healthy life; what went wrong comes last.
_ORDER: Final = {
    State.BOOTSTRAPPING: 0,
    State.WAITING: 1,
    State.TRANSFERRING: 2,
    State.SUCCESS: 3,
    State.FAILED: 4,
}


def legend_handles(picture: Picture) -> list[Artist]:
    """One handle for every kind of thing that this picture shows."""
    shown = {band.state for section in picture.sections for band in section.bands}
    states = sorted(
        shown, key=lambda state: (_ORDER.get(State(state), 9) if state in set(State) else 9, state)
    )
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


def legend_columns(picture: Picture, width: float) -> int:
    """How many columns fit into ``width`` inches, as the legend fills them: column by column."""
    widths = [inches(str(handle.get_label())) for handle in legend_handles(picture)]
    fitting = (n for n in range(len(widths), 1, -1) if _width(widths, n) <= width)
    return next(fitting, 1)


def _width(widths: list[float], columns: int) -> float:
    rows, extra = divmod(len(widths), columns)
    sizes = [rows + 1] * extra + [rows] * (columns - extra)
    starts = [sum(sizes[:i]) for i in range(columns)]
    cells = (max(widths[start : start + size]) for start, size in zip(starts, sizes, strict=True))
    return sum(cells) + columns * (HANDLE + PAD + COLUMN)


def legend_rows(picture: Picture, width: float) -> int:
    return -(-len(legend_handles(picture)) // legend_columns(picture, width))
