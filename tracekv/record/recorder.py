"""Takes rows from the seams and hands them to the spool; never raises into the engine.

A recorder belongs to one process run.  Each thread has a lane of its own in the spool and a few
facts about what it is doing right now (:class:`Here`): which chunk it took, which status write it is
in.  In production ``gate`` is ``None``; on a replay rig it parks threads before their effects.
"""

from __future__ import annotations

import itertools
import json
import logging
import operator
import os
import platform
import re
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
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

TROUBLES_KEPT: Final = 100
LOSSES_EVERY_NS: Final = 1_000_000_000

_TARGET = re.compile(r"\((\w+)\)$")
_HERE: Final = os.path.dirname(__file__)  # this package, whose frames are not the engine's

log = logging.getLogger("tracekv")


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
        self.did: str | None = None
        self.troubled = False
        self.polls = 0
        self.beat = 0


class Calling:
    """Inside an engine's call of some name; entering says whether it is the outermost of its chain."""

    __slots__ = ("_before", "_call", "_here", "_manager")

    def __init__(self, here: Here, call: str, manager: int | None) -> None:
        self._here, self._call, self._manager = here, call, manager

    def __enter__(self) -> bool:
        here = self._here
        self._before = here.call, here.manager
        outermost = here.call != self._call
        here.call, here.manager = self._call, self._manager
        return outermost

    def __exit__(self, *_exc: object) -> None:
        self._here.call, self._here.manager = self._before


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
        self.taken: set[str] = set()  # seams of the process, as distinct from those of one manager
        self._facts = facts or {}
        self._tell_losses_at = 0
        self._played: dict[str, Lane] = {}  # lanes of actors that are not threads
        self._managers = itertools.count()
        self._serials = itertools.count(1)
        self._started()

    def _started(self) -> None:
        self.emit(
            Op.PROCESS_STARTED,
            attrs=to_json(
                {
                    "host": os.uname().nodename,
                    "pid": os.getpid(),
                    "python": platform.python_version(),
                    "detail": self.detail,
                    "schema": 1,
                }
                | self._facts
            ),
        )

    def forked(self) -> None:
        """In the child of a fork: a process run of its own, in segments of its own."""
        self.here, self._played = Here(), {}
        self.spool = SpoolWriter(self.spool.folder, new_process_id())
        self.process = self.spool.process
        self._started()

    def next_manager(self) -> int:
        """The number of a newly found manager: 0, 1, ... in this process."""
        return next(self._managers)

    def next_serial(self) -> int:
        """A number of our own for a transfer handle, since ``id()`` is reused."""
        return next(self._serials)

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
            seq, mono, wall, before = stamp or self.order.now()
            lane = self._played_lane(thread) if thread else self.here.lane or self._lane()
            kept = lane.append(seq=seq, op=op, mono_ns=mono, wall_ns=wall, seq_before=before, **columns)
            if kept and self.spool.homeless and mono >= self._tell_losses_at:
                self._tell_losses(lane, mono)
            if self.listener is None:
                return None
            row = Event(
                seq=seq, op=op, process=self.process, thread=thread or self.here.role,
                tid=0 if thread else threading.get_native_id(), mono_ns=mono, wall_ns=wall,
                seq_before=before, **columns,
            )  # fmt: skip
            self.listener(row)
            return row
        except Exception as error:
            self.trouble(f"{op}: {error!r}")
            return None

    def _tell_losses(self, lane: Lane, mono: int) -> None:
        """In our lane, what threads have lost that cannot get a segment; once a second at most."""
        self._tell_losses_at = mono + LOSSES_EVERY_NS
        for number in list(self.spool.homeless):
            loser = self.spool.homeless.pop(number, None)
            loss = loser.untold() if loser else None
            if loss:
                seq, now, wall, _ = self.order.now()
                lane.append(seq=seq, op=Op.ROWS_LOST, mono_ns=now, wall_ns=wall, attrs=to_json(loss))

    def tell(self, what: Callable[..., Any], *args: Any) -> Any:
        """``what(*args)``, our own bookkeeping; a fault in it does not reach the engine, ``None`` then."""
        try:
            return what(*args)
        except Exception as error:
            with suppress(Exception):  # a foreign object may not even have a text
                self.trouble(f"{getattr(what, '__qualname__', what)}: {error!r}")
            return None

    def trouble(self, what: str) -> None:
        """Remember a fault of our own: in the log once, in the trace for the first hundred."""
        if len(self.troubles) >= TROUBLES_KEPT:
            return
        self.troubles.append(what)
        if len(self.troubles) == 1:
            log.warning("tracekv records with gaps: %s", what)
        here = self.here
        if not here.troubled:  # the row that says so may fail, too
            here.troubled = True
            self.emit("x.tracekv.trouble", reason=what)
            here.troubled = False

    def _played_lane(self, thread: str) -> Lane:
        lane = self._played.get(thread)
        if lane is None:
            lane = self._played[thread] = self.spool.lane(thread, 0)
        return lane

    def _lane(self) -> Lane:
        here = self.here
        here.role = here.role or thread_role(threading.current_thread().name)
        here.lane = self.spool.lane(here.role, threading.get_native_id())
        return here.lane

    def name_thread(self, role: str) -> None:
        """Say what the current thread is, where its name does not tell (``worker-3``)."""
        if self.here.role != role:
            self.here.role, self.here.lane = role, None

    def calling(self, call: str, manager: int | None) -> Calling:
        """Inside an engine's call of that name, for the calling thread."""
        return Calling(self.here, call, manager)

    def close(self) -> None:
        """The orderly end: a row that says so, and the spool trimmed."""
        self._tell_losses_at = 0
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
    if type(key) is not int:
        try:
            key = operator.index(key)  # an engine may use an integer of numpy
        except TypeError:
            return None
    return key if 0 <= key <= ROOM_MAX else None


def site_here() -> str:
    """``function:line`` of the innermost frame that is not the recorder's own."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_name}:{frame.f_lineno}"


def new_process_id() -> str:
    """A fresh id for one run of a process."""
    return uuid.uuid4().hex
