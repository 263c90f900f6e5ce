"""What was there before a write whose row does not know it, settled by the row before it.

The recorder takes the old value, the effect and the number of a row in one step.  Where that step was
interrupted the row carries ``seq_before``: its number, taken right at the effect, still stands, but its
``old`` may be stale.  The row before it in the same table knows better, and it knows where ``old`` is
missing altogether.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tracekv.event import Event, Op, State


def settled(rows: Iterable[Event]) -> Iterator[Event]:
    """The rows of one room in one manager, in order, each write with what it really found."""
    held: int | None = None
    for row in rows:
        if row.op not in (Op.STATUS_WRITTEN, Op.STATUS_DROPPED):
            yield row
            continue
        if held is not None and (row.seq_before is not None or row.old is None):
            row = replace(row, old=held)
        held = int(State.ABSENT) if row.op == Op.STATUS_DROPPED else row.new
        yield row
