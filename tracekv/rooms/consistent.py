"""Whether the rows of one room in one manager tell one history.

A table is recorded at its effects: what a row finds in it is what the rows before it left there.  Where
that does not hold, rows are missing or out of order, and nothing that rests on them is sure.  The
promise: a history that was recorded whole is never accused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tracekv.event import Event, Op, State, state_label

_STATUS = frozenset({Op.STATUS_WRITTEN, Op.STATUS_DROPPED, Op.STATUS_REFUSED, Op.STATUS_CHECKED})
_PEERS = frozenset({Op.PEER_ADDED, Op.PEER_POPPED, Op.PEER_CHECKED})


def contradiction(rows: Iterable[Event], role: str) -> str | None:
    """The first place where a row finds what the rows before it did not leave, as a sentence."""
    status, peers, polls = _Status(), _Peers(), _Polls()
    for row in rows:
        said = None
        if row.op in _STATUS:
            said = status.take(row)
        elif row.op in _PEERS:
            said = peers.take(row)
        if role == "prefill":
            said = polls.take(row, status.held) or said
        if said is not None:
            return (
                f"the rows of room {row.room} contradict each other at seq {row.seq}: {said}; "
                "rows are missing or misordered"
            )
    return None


#: Columns without which a row cannot be placed in its history.
_MUST_SAY: Final = {
    Op.STATUS_WRITTEN: "new",
    Op.POLL_CHANGED: "new",
    Op.CHUNK_ENQUEUED: "chunk",
    Op.CHUNK_DEQUEUED: "chunk",
}


#: What only one kind of thread does; where another name stands, the threads are not told apart.
_DONE_BY: Final = {Op.CHUNK_DEQUEUED: "worker", Op.META_RECEIVED: "bootstrap", Op.ABORT_RECEIVED: "bootstrap"}


def unsaid(rows: Iterable[Event], role: str) -> str | None:
    """The first row that does not say who did it, or what was done, as a sentence."""
    for row in rows:
        if role == "prefill" and not (row.thread or "").startswith(_DONE_BY.get(row.op, "")):
            return f"the rows of room {row.room} name no thread: {row.op} at seq {row.seq} is by {row.thread}"
        column = _MUST_SAY.get(row.op)
        lacks = "thread" if row.thread is None else column
        if lacks is not None and getattr(row, lacks) is None:
            return f"the rows of room {row.room} have gaps: {row.op} at seq {row.seq} has no {lacks}"
    return None


@dataclass
class _Status:
    """``request_status``: what it holds for the room; ``None`` while that is not known."""

    held: int | None = None

    def take(self, row: Event) -> str | None:
        held, found = self.held, row.old
        if row.op == Op.STATUS_WRITTEN:
            self.held = row.new
        else:
            self.held = int(State.ABSENT) if row.op == Op.STATUS_DROPPED else found
        if held is None or found is None or held == found:
            return None
        return f"{row.op} finds {state_label(found)} where {state_label(held)} had been left"


@dataclass
class _Peers:
    """``transfer_infos``: whether it has an entry for the room."""

    held: bool | None = None

    def take(self, row: Event) -> str | None:
        if row.op == Op.PEER_ADDED:
            self.held = True
            return None
        held, found = self.held, row.attr("had" if row.op == Op.PEER_POPPED else "found")
        self.held = False if row.op == Op.PEER_POPPED else found
        if held is None or found is None or held == found:
            return None
        words = {True: "an entry", False: "no entry"}
        return f"{row.op} finds {words[bool(found)]} in the peer table where {words[held]} had been left"


@dataclass
class _Polls:
    """The scheduler's polls: each answers with a state that was there since its thread's last row.

    WaitingForInput is also the answer for an absent room, and ``conclude_state`` goes before the table.
    """

    possible: dict[str | None, set[int | None]] = field(default_factory=dict)
    concluded: bool = False

    def take(self, row: Event, held: int | None) -> str | None:
        if row.op in (Op.ROOM_OPENED, Op.CONCLUDE_SET):
            self.concluded = row.op == Op.CONCLUDE_SET
        said = self._poll(row, held) if row.op == Op.POLL_CHANGED else None
        for seen in self.possible.values():
            seen.add(held)
        self.possible[row.thread] = {held}
        return said

    def _poll(self, row: Event, held: int | None) -> str | None:
        seen = self.possible.get(row.thread, {None}) | {held}
        if self.concluded or None in seen or row.new in (None, State.WAITING) or row.new in seen:
            return None
        names = " or ".join(sorted(state_label(state) for state in seen))
        return f"the scheduler polls {state_label(row.new)} where {names} had been left"
