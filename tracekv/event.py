"""The waist: one row, one thing that happened at one seam of a serving process.

Everything to the left of this file records rows, everything to the right reads them, and neither
knows the other.  A row is a fact in the past tense (``status.written``), never a phase; phases are
derived from rows.  ``None`` means *unknown*.  That a dictionary held no entry is knowledge, not
ignorance, and has a value of its own: :attr:`State.ABSENT`.

Standard library only: this module is imported inside serving processes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Final


class State(IntEnum):
    """What ``request_status`` holds for a room: SGLang's ``KVPoll``, and *no entry*.

    The numbers 0 to 4 are SGLang's own (``sglang/srt/disaggregation/base/conn.py``).  ``Failed`` is
    the lowest of them, which is why a ``max()`` merge lifts a failed room back to life.
    """

    ABSENT = -1
    FAILED = 0
    BOOTSTRAPPING = 1
    WAITING = 2
    TRANSFERRING = 3
    SUCCESS = 4

    @property
    def label(self) -> str:
        """SGLang's spelling, for people: ``WaitingForInput``, and ``absent`` for no entry."""
        return _LABELS[self]

    @property
    def terminal(self) -> bool:
        """Whether the scheduler releases a room that it polls in this state."""
        return self in (State.FAILED, State.SUCCESS)


_LABELS: Final = {
    State.ABSENT: "absent",
    State.FAILED: "Failed",
    State.BOOTSTRAPPING: "Bootstrapping",
    State.WAITING: "WaitingForInput",
    State.TRANSFERRING: "Transferring",
    State.SUCCESS: "Success",
}


class Op:
    """The literal ids of the operations, by group.

    An adapter's operation that has no id here passes through as ``x.<engine>.<name>``.
    """

    ROOM_OPENED = "room.opened"
    ROOM_CLEARED = "room.cleared"
    CONCLUDE_SET = "conclude.set"

    STATUS_WRITTEN = "status.written"
    STATUS_REFUSED = "status.refused"  # asked for, and nothing was stored
    STATUS_DROPPED = "status.dropped"
    STATUS_CHECKED = "status.checked"

    PEER_ADDED = "peer.added"
    PEER_POPPED = "peer.popped"
    PEER_CHECKED = "peer.checked"
    PREFIX_ADDED = "prefix.added"
    PREFIX_POPPED = "prefix.popped"
    META_SENT = "meta.sent"
    META_RECEIVED = "meta.received"

    CHUNK_ENQUEUED = "chunk.enqueued"
    CHUNK_DEQUEUED = "chunk.dequeued"
    CHUNK_SKIPPED = "chunk.skipped"  # the worker came back for more and had posted nothing for it
    WORKER_WAITING = "worker.waiting"

    XFER_POSTED = "xfer.posted"
    XFER_DONE = "xfer.done"
    XFER_FAILED = "xfer.failed"
    XFER_RELEASED = "xfer.released"
    NOTIF_SENT = "notif.sent"
    NOTIF_RECEIVED = "notif.received"

    ABORT_REQUESTED = "abort.requested"
    ABORT_SENT = "abort.sent"
    ABORT_RECEIVED = "abort.received"
    ACK_SENT = "ack.sent"
    ACK_RECEIVED = "ack.received"
    FAILURE_RECORDED = "failure.recorded"

    POLL_CHANGED = "poll.changed"
    QUEUE_ENTERED = "queue.entered"
    QUEUE_LEFT = "queue.left"
    PAGES_RELEASED = "pages.released"
    STAGING_ALLOCATED = "staging.allocated"
    STAGING_FREED = "staging.freed"

    THREAD_STARTED = "thread.started"
    THREAD_DIED = "thread.died"
    CONTROL_WAITING = "control.waiting"  # a control thread is back at its socket, alive and idle
    SEND_ENTERED = "send.entered"
    SEND_LEFT = "send.left"
    HEARTBEAT = "heartbeat"

    PROCESS_STARTED = "process.started"
    PROCESS_ENDED = "process.ended"
    MANAGER_STARTED = "manager.started"
    SEAM_INSTALLED = "seam.installed"
    ROWS_LOST = "rows.lost"


OPS: Final[frozenset[str]] = frozenset(
    value for name, value in vars(Op).items() if name.isupper() and isinstance(value, str)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of a trace.  The columns and their meaning are those of ``docs/reference/trace.md``.

    ``seq`` is the position in the process's own order, taken at the effect.  Where others took
    numbers during the operation, ``seq_before`` is one that was taken before it: ``old`` may be stale
    then, and the row before tells what was really there.
    """

    seq: int
    op: str
    process: str
    thread: str | None = None
    tid: int | None = None
    manager: int | None = None
    mono_ns: int | None = None
    wall_ns: int | None = None
    seq_before: int | None = None
    room: int | None = None
    rid: str | None = None
    generation: int | None = None
    site: str | None = None
    requested: int | None = None
    old: int | None = None
    new: int | None = None
    chunk: int | None = None
    last: bool | None = None
    peer: str | None = None
    handle: int | None = None
    bytes: int | None = None
    reason: str | None = None
    source: str = "hook"
    precision_ns: int | None = None
    attrs: str | None = None

    def attr(self, name: str, default: Any = None) -> Any:
        """One value of ``attrs``, or ``default`` where it is absent or the JSON is broken."""
        if not self.attrs:
            return default
        try:
            found = json.loads(self.attrs)
        except (ValueError, RecursionError):
            return default
        return found.get(name, default) if isinstance(found, dict) else default


COLUMNS: Final[tuple[str, ...]] = tuple(field.name for field in fields(Event))

ROOM_MAX: Final = 2**64 - 1
_ROOM: Final = re.compile("0x[0-9a-f]+|[0-9]+")


def state_label(value: int | None) -> str:
    """A state as people read it; an unknown number stays a number, ``None`` is ``unknown``."""
    if value is None:
        return "unknown"
    try:
        return State(value).label
    except ValueError:
        return f"state {value}"


def parse_room(text: str) -> int:
    """A room id from decimal or ``0x`` hex text.

    Raises
    ------
    ValueError
        when it is neither, or does not fit into 64 bits.  Never goes through a float.
    """
    cleaned = text.strip().lower()
    if not _ROOM.fullmatch(cleaned):
        raise ValueError(f"{text!r} is neither a decimal nor a 0x hex number")
    room = int(cleaned, 16) if cleaned.startswith("0x") else int(cleaned, 10)
    if not 0 <= room <= ROOM_MAX:
        raise ValueError(f"room {text!r} does not fit into 64 bits")
    return room
