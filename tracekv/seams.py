"""The seam table: where the recorder stands in an engine, what it records there, what a gate waits for.

One table with three readers: the recorder takes every seam it finds, the coverage manifest says
which of them it found, and the replayer's gates stand at exactly these places.  A seam is named by
what the object *is* in the engine, never by a release.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from tracekv.event import Op


class Wait(Enum):
    """What must be true before a parked actor can perform its event."""

    NOTHING = "nothing"
    QUEUE_FILLED = "a chunk in its queue"
    FRAME_ANNOUNCED = "a frame on its socket"
    TRANSFER_SETTLED = "its transfer to settle"  # waited for inside the event, under a watchdog
    VALUE_CHANGED = "a change of what it polls"


@dataclass(frozen=True, slots=True)
class Seam:
    """One place in the engine.

    ``gates`` maps the operations at which a replayed actor parks *before* the effect to what it
    waits for there; operations that are recorded but not gated are only in ``records``.
    """

    name: str
    where: str
    records: tuple[str, ...]
    gates: Mapping[str, Wait] = field(default_factory=lambda: MappingProxyType({}))


SEAMS: Final[tuple[Seam, ...]] = (
    Seam(
        "status",
        "manager.request_status",
        (Op.STATUS_WRITTEN, Op.STATUS_DROPPED, Op.STATUS_CHECKED),
        {
            Op.STATUS_WRITTEN: Wait.NOTHING,
            Op.STATUS_DROPPED: Wait.NOTHING,
            Op.STATUS_CHECKED: Wait.NOTHING,  # VALUE_CHANGED where the scheduler polls
        },
    ),
    Seam("status_call", "manager.update_status", (Op.STATUS_REFUSED,)),
    Seam(
        "peers",
        "manager.transfer_infos",
        (Op.PEER_ADDED, Op.PEER_POPPED, Op.PEER_CHECKED),
        {
            Op.PEER_ADDED: Wait.NOTHING,
            Op.PEER_POPPED: Wait.NOTHING,
            Op.PEER_CHECKED: Wait.NOTHING,
        },
    ),
    Seam("peers_inner", "manager.transfer_infos[room]", (Op.PEER_ADDED,)),
    Seam("prefix", "manager.req_to_decode_prefix_len", (Op.PREFIX_ADDED, Op.PREFIX_POPPED)),
    Seam("failures", "manager.failure_records", (Op.FAILURE_RECORDED,)),
    Seam(
        "chunks",
        "manager.transfer_queues[i].put/get",
        (Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED, Op.CHUNK_SKIPPED, Op.WORKER_WAITING),
        {Op.CHUNK_ENQUEUED: Wait.NOTHING, Op.CHUNK_DEQUEUED: Wait.QUEUE_FILLED},
    ),
    Seam(
        "control_in",
        "manager.server_socket.recv_multipart",
        (Op.META_RECEIVED, Op.ABORT_RECEIVED, Op.ACK_RECEIVED, Op.CONTROL_WAITING),
        {
            Op.META_RECEIVED: Wait.FRAME_ANNOUNCED,
            Op.ABORT_RECEIVED: Wait.FRAME_ANNOUNCED,
            Op.ACK_RECEIVED: Wait.FRAME_ANNOUNCED,
        },
    ),
    Seam(
        "control_out",
        "send_multipart of the sockets that _connect hands out",
        (Op.META_SENT, Op.ABORT_SENT, Op.ACK_SENT),
        {Op.META_SENT: Wait.NOTHING, Op.ABORT_SENT: Wait.NOTHING, Op.ACK_SENT: Wait.NOTHING},
    ),
    Seam(
        "agent",
        "manager.agent",
        (Op.XFER_POSTED, Op.XFER_DONE, Op.XFER_FAILED, Op.NOTIF_SENT, Op.NOTIF_RECEIVED),
        {
            Op.XFER_POSTED: Wait.NOTHING,
            Op.XFER_DONE: Wait.TRANSFER_SETTLED,
            Op.XFER_FAILED: Wait.TRANSFER_SETTLED,
        },
    ),
    Seam(
        "sender",
        "CommonKVSender.__init__/poll/abort/clear, conclude_state",
        (Op.ROOM_OPENED, Op.ROOM_CLEARED, Op.ABORT_REQUESTED, Op.POLL_CHANGED, Op.CONCLUDE_SET),
    ),
    Seam(
        "receiver",
        "CommonKVReceiver.__init__/poll/abort/clear, conclude_state",
        (Op.ROOM_OPENED, Op.ROOM_CLEARED, Op.ABORT_REQUESTED, Op.POLL_CHANGED, Op.CONCLUDE_SET),
    ),
    Seam("threads", "threading.excepthook", (Op.THREAD_DIED,)),
)

SEAM_NAMES: Final[tuple[str, ...]] = tuple(seam.name for seam in SEAMS)

#: Operations that cannot be told apart before they happen share one gate: a thread that waits at
#: its socket does not know which frame will come, nor a worker whether its transfer will fail.
GATE_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        op: {
            Op.META_RECEIVED: "control.in",
            Op.ABORT_RECEIVED: "control.in",
            Op.ACK_RECEIVED: "control.in",
            Op.XFER_DONE: "xfer.settled",
            Op.XFER_FAILED: "xfer.settled",
        }.get(op, op)
        for seam in SEAMS
        for op in seam.gates
    }
)


def gated(op: str) -> bool:
    """Whether a replayed actor parks before this operation."""
    return op in GATE_OF
