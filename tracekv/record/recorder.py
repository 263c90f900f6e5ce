"""Takes rows from the seams and hands them to the spool; never raises into the engine.

A recorder belongs to one process run.  Each thread has a lane of its own in the spool and a few
facts about what it is doing right now (:class:`Here`): which chunk it took, which status write it is
in.  In production ``gate`` is ``None``; on a replay rig it parks threads before their effects.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tracekv.event import ROOM_MAX, Event, Op
from tracekv.record.order import Order, Stamp
from tracekv.spool import Lane, SpoolWriter

DETAILS: Final = ("writes", "gates")

#: SGLang names its threads after their target: ``Thread-7 (transfer_worker)``.
THREAD_ROLES: Final = {
    "transfer_worker": "worker",
    "bootstrap_thread": "bootstrap",
    "bootstrap_thread_guarded": "bootstrap",
    "decode_thread": "decode-listener",
    "decode_listener_thread": "decode-listener",
    "decode_staging_thread": "decode-listener",
    "heartbeat_checker": "heartbeat",
    "HeartbeatChecker": "heartbeat",
    "MainThread": "scheduler",
}

_TARGET = re.compile(r"\((\w+)\)$")


class Gate(Protocol):
    """Where a rig parks a thread: just before the effect of a gated operation."""

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
        """Park until granted; true when this event is under control and must really happen now.

        ``ready`` says whether the effect can happen without blocking.  ``poll`` is given where a
        scheduler asks again and again: it reads what the scheduler would see now, so that a gate can
        wait for a change.
        """


class Here(threading.local):
    """What the current thread is doing, as far as rows need to know."""

    def __init__(self) -> None:
        self.lane: Lane | None = None
        self.role: str | None = None
        self.room: int | None = None
        self.chunk: int | None = None
        self.last: bool | None = None
        self.posted = 0
        self.call: str | None = None
        self.requested: int | None = None
        self.in_write = False
        self.stored = False
        self.site: str | None = None
        self.manager: int | None = None
        self.polls = 0
        self.beat = 0


class Recorder:
    """One process run's recorder.

    ``detail`` is ``"writes"`` (production: reads only inside a status write) or ``"gates"`` (rigs:
    reads too).  ``listener`` is called with every row, on the thread that made it.
    """

    def __init__(
        self,
        spool: SpoolWriter,
        *,
        detail: str = "writes",
        facts: dict[str, Any] | None = None,
        gate: Gate | None = None,
        listener: Callable[[Event], None] | None = None,
    ) -> None:
        self.spool = spool
        self.process = spool.process
        self.detail = detail
        self.gate = gate
        self.listener = listener
        self.order = Order()
        self.here = Here()
        self.paused = False
        self.troubles: list[str] = []
        self._played: dict[str, Lane] = {}  # lanes of actors that are not threads
        self._managers = 0
        self._serials = 0
        self._started(facts or {})

    def _started(self, facts: dict[str, Any]) -> None:
        self.emit(
            Op.PROCESS_STARTED,
            attrs=to_json(
                {
                    "host": os.uname().nodename,
                    "pid": os.getpid(),
                    "python": "%d.%d.%d" % sys.version_info[:3],
                    "detail": self.detail,
                    "schema": 1,
                }
                | facts
            ),
        )

    def next_manager(self) -> int:
        """The number of a newly found manager: 0, 1, ... in this process."""
        number, self._managers = self._managers, self._managers + 1
        return number

    def next_serial(self) -> int:
        """A number of our own for a transfer handle, since ``id()`` is reused."""
        self._serials += 1
        return self._serials

    @property
    def reads(self) -> bool:
        """Whether a read that is happening now is to be recorded."""
        return self.detail == "gates" or self.here.in_write

    def emit(
        self,
        op: str,
        *,
        stamp: Stamp | None = None,
        thread: str | None = None,
        **columns: Any,
    ) -> Event | None:
        """Record one row; ``None`` when recording is paused.  Never raises.

        ``stamp`` is the moment of the effect where it was taken there; ``thread`` overrides the
        calling thread's role, for a rig whose actors are not threads.
        """
        if self.paused:
            return None
        try:
            seq, mono, wall = stamp or self.order.now()
            self._lane(thread).append(seq=seq, op=op, mono_ns=mono, wall_ns=wall, **columns)
            if self.listener is None:
                return None
            row = Event(
                seq=seq, op=op, process=self.process, thread=thread or self.here.role,
                tid=0 if thread else threading.get_native_id(), mono_ns=mono, wall_ns=wall, **columns,
            )
            self.listener(row)
            return row
        except Exception as error:
            self.trouble(f"{op}: {error!r}")
            return None

    def trouble(self, what: str) -> None:
        """Remember a fault of our own; the first hundred are kept and none reaches the engine."""
        if len(self.troubles) < 100:
            self.troubles.append(what)

    def _lane(self, thread: str | None) -> Lane:
        if thread is not None:
            lane = self._played.get(thread)
            if lane is None:
                lane = self._played[thread] = self.spool.lane(thread, 0)
            return lane
        here = self.here
        if here.lane is None:
            here.role = here.role or thread_role(threading.current_thread().name)
            here.lane = self.spool.lane(here.role, threading.get_native_id())
        return here.lane

    def name_thread(self, role: str) -> None:
        """Say what the current thread is, where its name does not tell (``worker-3``)."""
        if self.here.role != role:
            self.here.role, self.here.lane = role, None

    @contextmanager
    def calling(self, call: str, manager: int | None) -> Iterator[bool]:
        """Inside an engine's call of that name; yields whether it is the outermost of its chain."""
        here = self.here
        before = here.call, here.manager
        outermost = here.call != call
        here.call, here.manager = call, manager
        try:
            yield outermost
        finally:
            here.call, here.manager = before

    def close(self) -> None:
        """The orderly end: a row that says so, and the spool trimmed."""
        self.emit(Op.PROCESS_ENDED, attrs=to_json({"troubles": self.troubles}) if self.troubles else None)
        self.spool.close()


def thread_role(name: str) -> str:
    """The role of a thread from its name, or the name itself where it says nothing."""
    target = _TARGET.search(name)
    key = target.group(1) if target else name
    return THREAD_ROLES.get(key, key)


def to_json(facts: dict[str, Any]) -> str:
    """Compact JSON; what JSON does not know is written as its text."""
    return json.dumps(facts, separators=(",", ":"), default=str)


def as_room(key: Any) -> int | None:
    """A dictionary's key as a room id, or ``None`` where it is none."""
    return key if isinstance(key, int) and 0 <= key <= ROOM_MAX else None


def site_of(depth: int) -> str:
    """``function:line`` of the engine's frame ``depth`` levels above the caller."""
    frame = sys._getframe(depth + 1)
    return f"{frame.f_code.co_name}:{frame.f_lineno}"


def new_process_id() -> str:
    """A fresh id for one run of a process."""
    return uuid.uuid4().hex
