"""One life of a room id in one manager, and all lives of one room id.

A life holds the rows that belong to it, and everything else about it is derived from them; nobody
invents the end of a life whose trace ends first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tracekv.event import Event, Op, State
from tracekv.rooms.outstanding import outstanding
from tracekv.rooms.timeline import Timeline


@dataclass(frozen=True)
class Life:
    """One incarnation: ``(process, manager, room, n)``.

    ``events`` are all its rows in the process's order, ``ghosts`` those of them that worker and
    bootstrap threads wrote after ``cleared``.  ``opened`` is missing when the trace begins in the
    middle of the life, or when only metadata or an ABORT was seen.  ``replaced``: another life
    of the same id was opened here without this one being cleared.  ``doubts`` say why the order or the
    owner of its rows is not sure; nothing that is found in a life with doubts is a proof.
    """

    process: str
    manager: int
    role: str
    room: int
    n: int
    events: tuple[Event, ...]
    opened: Event | None = None
    cleared: Event | None = None
    ghosts: tuple[Event, ...] = ()
    replaced: bool = False
    doubts: tuple[str, ...] = ()

    @cached_property
    def body(self) -> tuple[Event, ...]:
        """The rows up to the end of the life, without its ghosts."""
        if not self.ghosts:
            return self.events
        after = {event.seq for event in self.ghosts}
        return tuple(event for event in self.events if event.seq not in after)

    @cached_property
    def state(self) -> State:
        """What the status dictionary held after this life's last row, ghosts included."""
        return state_after(self.events)

    @cached_property
    def concluded(self) -> State | None:
        """The last ``conclude_state``: on decode the only place where Success shows before 0.5.23."""
        return self._last_of(Op.CONCLUDE_SET)

    @cached_property
    def polled(self) -> State | None:
        """What the scheduler saw last."""
        return self._last_of(Op.POLL_CHANGED)

    def _last_of(self, op: str) -> State | None:
        return next((as_state(event.new) for event in reversed(self.body) if event.op == op), None)

    @cached_property
    def settled(self) -> bool:
        """Whether the life came to an end and no worker has anything left to do for it."""
        if self.cleared is not None or self.replaced or not self.entered:
            return True
        return self.ended and self.outstanding is None

    @cached_property
    def outstanding(self) -> str | None:
        """What a worker still has to do for the room, in words."""
        return outstanding(self.events)

    @cached_property
    def ended(self) -> bool:
        """Whether the scheduler releases the room: cleared, replaced, terminal, or polled as terminal.

        What was polled as terminal is released, whatever is stored over it afterwards.
        """
        if self.cleared is not None or self.replaced or self.state.terminal or not self.entered:
            return True
        return any(seen is not None and seen.terminal for seen in (self.concluded_for_poll, self.polled))

    @cached_property
    def entered(self) -> bool:
        """Whether the room was ever in a table here: a frame that merely passed holds nothing."""
        entries = (Op.STATUS_WRITTEN, Op.PEER_ADDED, Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED, Op.XFER_POSTED)
        return self.opened is not None or any(event.op in entries for event in self.events)

    @property
    def concluded_for_poll(self) -> State | None:
        """``conclude_state`` where the poll heeds it: a NIXL sender's poll ignores it up to 0.5.22."""
        return self.concluded if self.role == "decode" else None

    @property
    def open(self) -> bool:
        """Whether the life was still going on, as far as the trace shows."""
        return not self.settled

    @cached_property
    def span(self) -> tuple[int, float] | None:
        """Wall clock of the first row and of the last, ghosts left out; an open life lasts for ever."""
        times = [event.wall_ns for event in self.body if event.wall_ns is not None]
        if not times:
            return None
        return min(times), float("inf") if self.open else max(times)

    @property
    def first(self) -> Event:
        return self.events[0]

    @property
    def last(self) -> Event:
        """The last row before the life's ghosts."""
        return self.body[-1] if self.body else self.events[-1]

    @property
    def chunks(self) -> int:
        """How many chunks the scheduler enqueued."""
        return sum(event.op == Op.CHUNK_ENQUEUED for event in self.events)

    def has(self, op: str) -> bool:
        """Whether a row of this operation belongs to the life."""
        return any(event.op == op for event in self.events)


@dataclass(frozen=True)
class Room:
    """All lives of one room id, in every process and role of the trace."""

    room: int
    lives: tuple[Life, ...]

    @property
    def prefill(self) -> tuple[Life, ...]:
        return tuple(life for life in self.lives if life.role == "prefill")

    @property
    def decode(self) -> tuple[Life, ...]:
        return tuple(life for life in self.lives if life.role == "decode")

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(self.lives)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The rows of all lives: in one process by its own order, across processes by wall clock."""
        rows = [event for life in self.lives for event in life.events]
        if len({event.process for event in rows}) <= 1:
            return tuple(sorted(rows, key=lambda event: event.seq))
        return tuple(sorted(rows, key=lambda event: (event.wall_ns or 0, event.process, event.seq)))


def as_state(value: int | None) -> State | None:
    """A recorded number as a state; ``None`` for nothing, and for a number of a newer engine."""
    try:
        return None if value is None else State(value)
    except ValueError:
        return None


def state_after(events: tuple[Event, ...]) -> State:
    """What the status dictionary holds for the room after these rows."""
    for event in reversed(events):
        if event.op == Op.STATUS_DROPPED:
            return State.ABSENT
        if event.op == Op.STATUS_WRITTEN:
            found = as_state(event.new)
            return State.ABSENT if found is None else found
    return State.ABSENT


def is_background(thread: str | None) -> bool:
    """Whether rows of this thread can come late: a worker's or the bootstrap thread's."""
    return thread is not None and (thread == "bootstrap" or thread.startswith("worker"))
