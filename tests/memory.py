"""A trace in memory: what the reader gives for the same rows, without a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracekv.event import Event
from tracekv.story import recording
from tracekv.trace.describe import Damage, describe

#: The interleaving that pins a room: the ABORT falls into the transfer of the chunk before the last.
PIN = (
    "S:init B:info S:enq0 S:enq1* W:deq0 W:set3 W:post0 B:abort B:set0 B:pop B:ctl "
    "W:done0 W:set3 W:deq1 W:skip1 W:wait S:poll3"
)
#: The same room without an abort.
HEALTHY = (
    "S:init B:info B:ctl S:enq0 S:enq1* W:deq0 W:set3 W:post0 W:done0 W:set3 W:deq1 W:set3 W:post1 W:done1 "
    "W:set4 W:pop W:wait S:poll4 S:clear"
)
#: The ABORT falls between two transfers: Failed stays the last write, and the scheduler releases the room.
ABORTED = (
    "S:init B:info S:enq0 S:enq1* W:deq0 W:set3 W:post0 W:done0 W:set3 B:abort B:set0 B:pop B:ctl "
    "W:deq1 W:skip1 W:wait S:poll0 S:clear"
)
#: What a skip that concludes makes of the pin: the room is lifted, and falls again before anybody looks.
HEALED = (
    "S:init B:info S:enq0 S:enq1* W:deq0 W:set3 W:post0 B:abort B:set0 B:pop B:ctl "
    "W:done0 W:set3 W:deq1 W:set0 W:skip1 W:wait S:poll0 S:clear"
)


class Memory:
    """Rows that were never written down."""

    def __init__(self, rows: Sequence[Event], damage: Sequence[Damage] = ()) -> None:
        self.rows = sorted(rows, key=lambda row: (row.process, row.seq))
        told = describe(self.rows, {row.process for row in rows})
        self.processes, self.managers, self.losses = told.processes, told.managers, told.losses
        self.damage = list(damage)
        self.partial = bool(self.damage or self.losses)

    def events(self) -> Iterator[Event]:
        return iter(self.rows)


def trace(line: str, **of_process: Any) -> Memory:
    """The trace of one process that lived this story."""
    return Memory(recording(line, **of_process))
