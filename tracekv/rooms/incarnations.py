"""Events to lives: which rows of a room id belong to which of its incarnations.

An incarnation begins with ``room.opened``.  Metadata and ABORT may come before the constructor and
then belong to the life that it opens; what a worker or the bootstrap thread still does after
``room.cleared`` belongs to the life that ended and is its ghost.  Every row of a room ends up in
exactly one life.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tracekv.event import Event, Op
from tracekv.rooms.consistent import contradiction, unsaid
from tracekv.rooms.life import Life, Room, is_background
from tracekv.rooms.settle import settled

_FRAMES: Final = frozenset({Op.META_RECEIVED, Op.ABORT_RECEIVED, Op.ACK_RECEIVED})

#: Rows that can precede the constructor of their life although no background thread wrote them.
_EARLY: Final = frozenset(
    {Op.STATUS_CHECKED, Op.PEER_CHECKED, Op.PREFIX_ADDED, Op.QUEUE_ENTERED, Op.META_SENT, Op.ABORT_REQUESTED}
)


class HasRole(Protocol):
    """The part of a manager's description that is needed here."""

    @property
    def role(self) -> str | None: ...


class TraceLike(Protocol):
    """What rooms are made from: rows in (process, seq) order, and the managers' roles."""

    def events(self) -> Iterable[Event]: ...

    @property
    def managers(self) -> Mapping[tuple[str, int], Any]: ...


def rooms_of(trace: TraceLike) -> dict[int, Room]:
    """All rooms of a trace by id, in the order of their first rows."""
    by_room: dict[int, list[Life]] = defaultdict(list)
    for life in lives_of(trace.events(), trace.managers):
        by_room[life.room].append(life)
    return {room: Room(room, tuple(lives)) for room, lives in by_room.items()}


def lives_of(events: Iterable[Event], managers: Mapping[tuple[str, int], HasRole]) -> list[Life]:
    """The lives in these rows; ``managers`` gives the roles, and where it does not, the rows do.

    Rows that name no manager belong to the only one of their process; where there is none or several,
    they are taken for the first one's, with a doubt.
    """
    alone = _only_managers(managers)
    keyed: dict[tuple[str, int, int], list[Event]] = defaultdict(list)
    nameless: set[tuple[str, int, int]] = set()
    for event in events:
        if event.room is None:
            continue
        manager = event.manager if event.manager is not None else alone.get(event.process)
        key = (event.process, 0 if manager is None else manager, event.room)
        keyed[key].append(event)
        if manager is None:
            nameless.add(key)
    lives: list[Life] = []
    for (process, manager, room), rows in keyed.items():
        known = managers.get((process, manager))
        role = (known.role if known else None) or role_from(rows)
        settled_rows = list(settled(rows))
        doubts = _doubts(settled_rows, role, room if (process, manager, room) in nameless else None)
        lives.extend(_Walk(process, manager, role, room, doubts).walk(settled_rows))
    return lives


def _doubts(rows: Sequence[Event], role: str, nameless: int | None) -> tuple[str, ...]:
    """Why these rows of one room in one manager are no sure history."""
    owner = f"rows of room {nameless} do not say which manager they belong to"
    told = (owner if nameless is not None else None, unsaid(rows, role), contradiction(rows, role))
    return tuple(filter(None, told))


def role_from(rows: Iterable[Event]) -> str:
    """The role of a manager that was not described: workers and bootstrap threads exist on prefill only."""
    return "prefill" if any(is_background(row.thread) for row in rows) else "decode"


def _only_managers(managers: Mapping[tuple[str, int], HasRole]) -> dict[str, int]:
    of_process: dict[str, list[int]] = defaultdict(list)
    for process, manager in managers:
        of_process[process].append(manager)
    return {process: numbers[0] for process, numbers in of_process.items() if len(numbers) == 1}


@dataclass
class _Draft:
    """A life in the making."""

    events: list[Event]
    opened: Event | None = None
    cleared: Event | None = None
    ghosts: list[Event] = field(default_factory=list)
    replaced: bool = False


@dataclass
class _Walk:
    """The walk over the rows of one room in one manager."""

    process: str
    manager: int
    role: str
    room: int
    doubts: tuple[str, ...] = ()
    drafts: list[_Draft] = field(default_factory=list)
    early: list[Event] = field(default_factory=list)  # may belong to the next life
    frame: Event | None = None  # what the bootstrap thread is handling

    def walk(self, rows: Iterable[Event]) -> list[Life]:
        for row in rows:
            self._take(row)
        self._keep_leftovers()
        return [self._life(n, draft) for n, draft in enumerate(self.drafts)]

    def _take(self, row: Event) -> None:
        if row.op in _FRAMES:
            self.frame = row
        if row.op == Op.ROOM_OPENED:
            self._open(row)
        elif self._current is None:
            self._take_between(row)
        else:
            self._current.events.append(row)
            if row.op == Op.ROOM_CLEARED:
                self._current.cleared = row

    @property
    def _current(self) -> _Draft | None:
        """The life that is going on."""
        return self.drafts[-1] if self.drafts and self.drafts[-1].cleared is None else None

    def _open(self, row: Event) -> None:
        if self._current is not None:
            self._current.replaced = True
        self.drafts.append(_Draft([*self.early, row], opened=row))
        self.early.clear()

    def _take_between(self, row: Event) -> None:
        """A row outside of any life: early for the next, late for the last, or a life without a beginning."""
        if self._may_be_early(row):
            self.early.append(row)
        elif self.drafts:
            self._haunt(self.drafts[-1], [row])
        else:
            self.drafts.append(_Draft([*self.early, row], cleared=row if row.op == Op.ROOM_CLEARED else None))
            self.early.clear()

    def _may_be_early(self, row: Event) -> bool:
        if row.thread == "bootstrap":
            return not self._frame_is_old
        return row.op in _EARLY and not is_background(row.thread) and not self.drafts

    @property
    def _frame_is_old(self) -> bool:
        """Whether the bootstrap thread still handles a frame that came before the room was cleared."""
        cleared = self.drafts[-1].cleared if self.drafts else None
        return cleared is not None and self.frame is not None and self.frame.seq < cleared.seq

    def _keep_leftovers(self) -> None:
        """Early rows without a next life: late rows of the last one, or a life that nobody opened."""
        if self.early and self.drafts:
            self._haunt(self.drafts[-1], self.early)
        elif self.early:
            self.drafts.append(_Draft(list(self.early)))

    def _haunt(self, draft: _Draft, rows: list[Event]) -> None:
        draft.events.extend(rows)
        draft.ghosts.extend(row for row in rows if self._is_late(draft, row))

    def _is_late(self, draft: _Draft, row: Event) -> bool:
        """Decode's listener thread is late too, where it is not the thread that opened the room."""
        opener = draft.opened.thread if draft.opened else "scheduler"
        return is_background(row.thread) or (row.thread == "decode" and opener != "decode")

    def _life(self, n: int, draft: _Draft) -> Life:
        return Life(
            process=self.process,
            manager=self.manager,
            role=self.role,
            room=self.room,
            n=n,
            events=tuple(sorted(draft.events, key=lambda row: row.seq)),
            opened=draft.opened,
            cleared=draft.cleared,
            ghosts=tuple(sorted(draft.ghosts, key=lambda row: row.seq)),
            replaced=draft.replaced,
            doubts=self.doubts,
        )
