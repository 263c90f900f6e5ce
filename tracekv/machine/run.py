"""One step in the making: what the body of an instruction may do to a room.

Everything that several threads do to the shared dictionaries is a method here, so that a row and
its effect are always written in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tracekv.event import Op, State
from tracekv.machine.policy import Merge, Policy
from tracekv.machine.state import DEAD, Actor, RoomState


@dataclass(frozen=True, slots=True)
class Row:
    """One row that a step leaves: columns of :class:`~tracekv.event.Event`, ``attrs`` as a mapping."""

    actor: str
    op: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)


class Run:
    """One step in the making: the room's parts while one actor holds the token."""

    __slots__ = (
        *("state", "letter", "policy", "me", "rows"),
        *("status", "peers", "queue", "frames", "seen", "polled"),
    )

    def __init__(self, state: RoomState, letter: str, policy: Policy) -> None:
        self.state, self.letter, self.policy = state, letter, policy
        self.me = state.actor(letter)
        self.status, self.peers = state.status, state.peers
        self.queue, self.frames = state.queue, state.frames
        self.seen, self.polled = state.seen, state.polled
        self.rows: list[Row] = []

    # -- rows and locals

    def row(self, op: str, attrs: Mapping[str, Any] | None = None, **columns: Any) -> None:
        self.rows.append(Row(self.letter, op, columns, attrs or {}))

    def keep(self, **locals_: Any) -> None:
        self.me = replace(self.me, **locals_)

    def chunk(self) -> int:
        chunk = self.me.chunk
        assert chunk is not None, f"{self.me.at} needs a chunk in hand"
        return chunk

    def last(self) -> bool:
        return self.chunk() == self.state.chunks - 1

    # -- the two dictionaries

    def check_status(self, call: str) -> State:
        self.row(Op.STATUS_CHECKED, {"call": call}, old=int(self.status))
        return self.status

    def check_peers(self, call: str) -> bool:
        self.row(Op.PEER_CHECKED, {"call": call, "found": self.peers})
        return self.peers

    def pop_peers(self) -> None:
        self.row(Op.PEER_POPPED, {"had": self.peers})
        self.peers = False

    def answer(self) -> State | None:
        """``check_status(room)``: ``None`` where the build raises for an absent room."""
        status = self.check_status("get")
        return self.policy.absent_reads if status is State.ABSENT else status

    # -- control flow

    def update(self, want: State, back: str) -> str:
        """Call ``update_status(room, want)``, to go on at ``back``."""
        self.keep(want=want, back=back)
        return "update.override" if self.policy.merge is Merge.FAILED_STICKY else "update.find"

    def returns(self) -> str:
        back = self.me.back
        self.keep(want=None, read=None, back="")
        return back

    def refused(self) -> str:
        want = self.me.want
        assert want is not None
        self.row(Op.STATUS_REFUSED, requested=int(want), old=int(self.status))
        return self.returns()

    def fails(self, reason: str) -> str:
        """The worker's ``except``: record the failure and write Failed."""
        self.row(Op.FAILURE_RECORDED, reason=reason)
        self.keep(catching=True, read=None)
        return self.update(State.FAILED, "worker.idle")

    def raises(self, error: str) -> str:
        """An exception at this event: caught once inside the worker, fatal anywhere else."""
        if self.letter == "W" and self.policy.worker_catches and not self.me.catching:
            return self.fails(error)
        self.me = Actor(DEAD, error=error)
        return DEAD
