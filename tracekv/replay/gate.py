"""Parks real threads before their effects and lets one of them run at a time.

The promise: while a room is under control, at most one actor runs, from the gate that it was granted
to its next gate.  Code between two gates runs alone, so a seam that we do not have costs a missed
interleaving, never nondeterminism.

Outside control the gate only keeps threads out of the engine's blocking calls: a thread that would
block waits here instead, so that it can be found parked when control begins.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tracekv.event import Op
from tracekv.replay.rigs import Pending, Stalled
from tracekv.seams import Wait

FREE_POLL_S: Final = 0.001
SENDING: Final = frozenset({Op.META_SENT, Op.ABORT_SENT, Op.ACK_SENT})
TO_PREFILL: Final = frozenset({Op.META_SENT, Op.ABORT_SENT})  # what a thread at ``control.in`` will receive
_NEVER = object()


@dataclass(slots=True)
class _Actor:
    name: str
    ident: int
    pending: Pending | None = None
    ready: Callable[[], bool] | None = None
    work: Callable[[], bool] | None = None
    granted: bool = False
    done: bool = False
    died: str | None = None
    last_poll: Any = field(default=_NEVER)

    @property
    def settled(self) -> bool:
        return not self.granted and (self.pending is not None or self.ended)

    @property
    def ended(self) -> bool:
        """Done with this room, or dead."""
        return self.done or self.died is not None

    def idles(self, frames: int) -> bool:
        """Outside control: done, dead, or waiting in a blocking call for work that will not come.

        ``frames`` were sent and not received yet: they come, although the socket may not show them.
        """
        if self.ended:
            return True
        if self.pending is None or self.work is None or self.work():
            return False
        return frames == 0 or self.pending.gate != "control.in"


class ThreadGate:
    """The gate of a rig with real threads.

    ``actor_here`` names the actor of the calling thread, or ``None`` for one that is not gated.
    Only events of the manager ``manager`` are gated, and the frames that others send to it.
    """

    def __init__(self, actor_here: Callable[[], str | None], manager: int = 0) -> None:
        self._actor_here = actor_here
        self._manager = manager
        self._condition = threading.Condition()
        self._actors: dict[str, _Actor] = {}
        self._room: int | None = None
        self._frames = 0

    # ---- the actors' side

    def arrive(
        self,
        gate: str,
        *,
        manager: int | None,
        room: int | None = None,
        chunk: int | None = None,
        ready: Callable[[], bool] | None = None,
        poll: Callable[[], Any] | None = None,
    ) -> bool:
        """Park here until granted; see :class:`tracekv.record.recorder.Gate`."""
        name = self._actor_here()
        if name is None or not (manager == self._manager or gate in SENDING):
            return False
        with self._condition:
            actor = self._actors.setdefault(name, _Actor(name, threading.get_ident()))
            actor.ident = threading.get_ident()
            if self._passes(room, ready):
                self._count(gate)
                return False
            actor.ready, actor.work = self._condition_of(actor, gate, ready, poll), ready
            actor.pending = Pending(name, gate, chunk, waits=wait_of(gate, poll))
            self._condition.notify_all()
            controlled = self._wait(actor, ready)
            actor.pending = actor.ready = actor.work = None
            self._count(gate)
            if controlled and poll is not None:
                actor.last_poll = poll()
            return controlled

    def _passes(self, room: int | None, ready: Callable[[], bool] | None) -> bool:
        if self._room is None:
            return ready is None
        return room is not None and room != self._room

    def _condition_of(
        self,
        actor: _Actor,
        gate: str,
        ready: Callable[[], bool] | None,
        poll: Callable[[], Any] | None,
    ) -> Callable[[], bool] | None:
        if gate == "control.in":
            return lambda: self._frames > 0
        if poll is not None:
            return lambda: bool(poll() != actor.last_poll)
        return ready

    def _wait(self, actor: _Actor, ready: Callable[[], bool] | None) -> bool:
        while True:
            if self._room is None and (ready is None or ready()):
                return False
            if actor.granted:
                actor.granted = False
                return True
            self._condition.wait(FREE_POLL_S if self._room is None else None)

    def _count(self, gate: str) -> None:
        """Keep the number of frames in flight; a frame of registration is received but never counted."""
        if gate in TO_PREFILL:
            self._frames += 1
        elif gate == "control.in":
            self._frames = max(self._frames - 1, 0)

    def finished(self) -> None:
        """The calling actor has nothing left to do for this room."""
        self._end_here(lambda actor: setattr(actor, "done", True))

    def died(self, why: str) -> None:
        """The calling actor's thread ends by an exception."""
        self._end_here(lambda actor: setattr(actor, "died", why))

    def _end_here(self, mark: Callable[[_Actor], None]) -> None:
        name = self._actor_here()
        if name is None:
            return
        with self._condition:
            mark(self._actors.setdefault(name, _Actor(name, threading.get_ident())))
            self._condition.notify_all()

    def asks_again(self) -> None:
        """The calling scheduler begins a new wait: its next poll counts as a change."""
        name = self._actor_here()
        if name in self._actors:
            self._actors[name].last_poll = _NEVER

    # ---- the controller's side

    def control(
        self, room: int, actors: tuple[str, ...], start: Callable[[str], None], limit_s: float
    ) -> None:
        """Take ``room`` under control: start one actor after the other, each up to its first gate.

        ``start`` is called with every actor's name.  Raises Stalled where one of them is not parked
        within ``limit_s``.
        """
        with self._condition:
            for actor in self._actors.values():
                actor.done, actor.last_poll = False, _NEVER
            self._room, self._frames = room, 0
            self._condition.notify_all()
        for name in actors:
            start(name)
            self._until_settled(name, limit_s)

    def release(self) -> None:
        """End control: every parked thread goes on freely."""
        with self._condition:
            self._room = None
            self._condition.notify_all()

    def parked(self) -> Mapping[str, Pending]:
        """Where every living actor stands, with what is enabled right now."""
        with self._condition:
            return {
                name: Pending(name, p.gate, p.chunk, actor.ready is None or actor.ready(), p.waits)
                for name, actor in self._actors.items()
                if (p := actor.pending) is not None
            }

    def deaths(self) -> Mapping[str, str]:
        """The actors whose threads ended, with the exception."""
        return {name: actor.died for name, actor in self._actors.items() if actor.died is not None}

    def is_done(self, name: str) -> bool:
        """Whether the actor has nothing left to do."""
        return name in self._actors and self._actors[name].done

    def grant(self, name: str, limit_s: float) -> None:
        """Let one parked actor go; returns when it is at its next gate, done or dead."""
        with self._condition:
            self._actors[name].granted = True
            self._condition.notify_all()
        self._until_settled(name, limit_s)

    def idle(self, limit_s: float) -> bool:
        """Wait, outside control, until nobody runs: every actor waits for work or is done or dead."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with self._condition:
                if all(actor.idles(self._frames) for actor in self._actors.values()):
                    return True
            time.sleep(FREE_POLL_S)
        return False

    def _until_settled(self, name: str, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        with self._condition:
            while (actor := self._actors.get(name)) is None or not actor.settled:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Stalled(_stack(name, actor, limit_s))
                self._condition.wait(left)


def wait_of(gate: str, poll: object) -> Wait:
    """What an actor that is parked at ``gate`` may have to wait for."""
    if gate == "control.in":
        return Wait.FRAME_ANNOUNCED
    if gate == Op.CHUNK_DEQUEUED:
        return Wait.QUEUE_FILLED
    if gate == "xfer.settled":
        return Wait.TRANSFER_SETTLED
    return Wait.NOTHING if poll is None else Wait.VALUE_CHANGED


def _stack(name: str, actor: _Actor | None, limit_s: float) -> str:
    if actor is None:
        return f"{name} did not come to any gate within {limit_s:g} s"
    frame = sys._current_frames().get(actor.ident)
    lines = traceback.format_stack(frame)[-6:] if frame is not None else ["(its thread is gone)\n"]
    return f"{name} did not reach its next gate within {limit_s:g} s; it is at\n" + "".join(lines)
