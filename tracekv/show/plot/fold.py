"""Folded time: a room lives for microseconds and for minutes, and both must be read in one picture.

One promise: from left to right is the proved order.  In one process that order is the row number;
between processes it is the clocks, moved by the least amount that lets no message arrive before it
was sent.  Distance is only a hint: short gaps are drawn at a least width, long silences are folded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from statistics import median
from typing import Final

from tracekv.event import Event, Op

#: (sent, received): messages that carry order from one thread to another.
MESSAGES: Final = (
    (Op.META_SENT, Op.META_RECEIVED),
    (Op.ABORT_SENT, Op.ABORT_RECEIVED),
    (Op.ACK_SENT, Op.ACK_RECEIVED),
    (Op.NOTIF_SENT, Op.NOTIF_RECEIVED),
)

MAX_WIDTH: Final = 2.6
GROWTH: Final = 0.22  # of the width, each time a gap doubles
FOLD_FROM: Final = 60.0  # times the median gap
MAX_FOLDS: Final = 8


@dataclass(frozen=True, slots=True)
class Moment:
    """One event, its time on the common clock (ns), and its place (units of the least distance)."""

    event: Event
    at_ns: int
    x: float


@dataclass(frozen=True, slots=True)
class Fold:
    """A silence of ``ns`` that is drawn shorter than it was, between two places."""

    x0: float
    x1: float
    ns: int


@dataclass(frozen=True, slots=True)
class FoldedTime:
    """Moments from left to right, the folds between them, and the process clocks that were moved."""

    moments: tuple[Moment, ...]
    folds: tuple[Fold, ...]
    moved_ns: dict[str, int]


def folded_time(events: Iterable[Event], width_of: Callable[[Event], float] = lambda _: 1.0) -> FoldedTime:
    """Put events on one folded axis.  ``width_of`` gives the least distance from a row to the one before."""
    by_process = _by_process(events)
    clocks = {process: _clock(rows) for process, rows in by_process.items()}
    moved = _moved(by_process, clocks)
    rows = [
        (at + moved.get(process, 0), process, event.seq, event)
        for process, found in by_process.items()
        for at, event in zip(clocks[process], found, strict=True)
    ]
    rows.sort(key=lambda row: row[:3])
    return _placed([(row[0], row[3]) for row in rows], width_of, moved)


def _by_process(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Rows of each process in its own order, each row once."""
    found: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in events:
        found[event.process].setdefault(event.seq, event)
    return {process: [rows[seq] for seq in sorted(rows)] for process, rows in sorted(found.items())}


def _clock(rows: Sequence[Event]) -> list[int]:
    """A time for each row, never falling: the monotonic clock, anchored once to the wall clock."""
    both = [e.wall_ns - e.mono_ns for e in rows if e.wall_ns is not None and e.mono_ns is not None]
    anchor = both[0] if both else 0
    times, now = [], None
    for event in rows:
        own = event.wall_ns if event.mono_ns is None else event.mono_ns + anchor
        now = own if now is None else max(now, own if own is not None else now)
        times.append(now)
    first = next((time for time in times if time is not None), 0)
    return [first if time is None else time for time in times]


def message_pairs(rows: Sequence[tuple[int, Event]]) -> list[tuple[Event, Event]]:
    """Who sent what was received: first sent, first received; never against one process's own order."""
    pairs = []
    for sent_op, received_op in MESSAGES:
        waiting = [event for _, event in rows if event.op == sent_op]
        for _, received in rows:
            if received.op != received_op:
                continue
            sent = next((e for e in waiting if e.process != received.process or e.seq < received.seq), None)
            if sent is not None:
                waiting.remove(sent)
                pairs.append((sent, received))
    return pairs


def _moved(by_process: dict[str, list[Event]], clocks: dict[str, list[int]]) -> dict[str, int]:
    """How far each clock is moved against the first process's, for messages to arrive after they left."""
    at = {
        (process, event.seq): time
        for process, rows in by_process.items()
        for time, event in zip(clocks[process], rows, strict=True)
    }
    rows = sorted(
        ((at[process, e.seq], e) for process, found in by_process.items() for e in found),
        key=lambda row: (row[0], row[1].process, row[1].seq),
    )
    pairs = message_pairs(rows)
    home = next(iter(by_process), None)
    moved = {process: _shift(pairs, at, home, process) for process in by_process if process != home}
    return {process: ns for process, ns in moved.items() if ns}


def _shift(
    pairs: Sequence[tuple[Event, Event]], at: dict[tuple[str, int], int], home: str | None, other: str
) -> int:
    least, most = [], []
    for sent, received in pairs:
        late = at[sent.process, sent.seq] - at[received.process, received.seq]
        if sent.process == home and received.process == other:
            least.append(late)
        elif sent.process == other and received.process == home:
            most.append(-late)
    if least and max(least) > 0:
        return max(least) if not most else min(max(least), min(most))
    return min(0, min(most)) if most else 0


def _placed(
    rows: Sequence[tuple[int, Event]], width_of: Callable[[Event], float], moved: dict[str, int]
) -> FoldedTime:
    gaps = [after[0] - before[0] for before, after in pairwise(rows)]
    usual = median([gap for gap in gaps if gap > 0] or [1])
    limit = max(FOLD_FROM * usual, sorted(gaps, reverse=True)[MAX_FOLDS] if len(gaps) > MAX_FOLDS else 0)
    moments, folds, x = [], [], 0.0
    for i, (at, event) in enumerate(rows):
        if i:
            width = _width(gaps[i - 1], usual, width_of(event))
            if gaps[i - 1] > limit:
                width = max(width, MAX_WIDTH)
                folds.append(Fold(x, x + width, gaps[i - 1]))
            x += width
        moments.append(Moment(event, at, x))
    return FoldedTime(tuple(moments), tuple(folds), moved)


def _width(gap: int, usual: float, least: float) -> float:
    """Growing with the logarithm of the gap: longer looks longer, and nothing runs off the page."""
    return least if gap <= usual else max(least, min(least + GROWTH * log2(gap / usual), MAX_WIDTH))


def duration(ns: int) -> str:
    """A length of time in the unit that reads best: ``412 ns``, ``3.2 µs``, ``4.21 ms``, ``2.5 s``."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}" if abs(ns) < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns} ns"


def after(ns: int) -> str:
    """A time after the first event, to the microsecond: ``+12.3 µs``, ``+1.234 ms``, ``+5.000123 s``."""
    if abs(ns) < 10**6:
        return f"{ns / 10**3:+.1f} µs" if ns else "0"
    return f"{ns / 10**6:+.3f} ms" if abs(ns) < 10**9 else f"{ns / 10**9:+.6f} s"
