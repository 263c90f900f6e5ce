"""What an open room waits for, and in which queue it sits: words that an operator can act on.

The words are a closed set (``WORDS``); where the rows do not tell, the answer is ``unknown``.
"""

from __future__ import annotations

from typing import Final

from tracekv.detect.context import Context
from tracekv.detect.observed import Sighting, peers_present, sight
from tracekv.event import Op, State
from tracekv.finding import BOOTSTRAP_QUEUE, INFLIGHT_QUEUE, PREALLOC_QUEUE, TRANSFER_QUEUE
from tracekv.rooms import Life

PEER_METADATA: Final = "peer metadata"
SOURCE: Final = "source"
WORKER: Final = "worker"
TRANSPORT: Final = "transport"
NOTIFICATION: Final = "notification"
ANOTHER_RANK: Final = "another rank"
RELEASE: Final = "release"
UNKNOWN: Final = "unknown"
NOTHING: Final = "nothing"  # the room is not open

WORDS: Final = (PEER_METADATA, SOURCE, WORKER, TRANSPORT, NOTIFICATION, ANOTHER_RANK, RELEASE, UNKNOWN)


def queue_of(life: Life) -> str | None:
    """The scheduler's queue that holds the room; ``None`` while the request waits for its forward pass."""
    if life.role == "decode":
        return PREALLOC_QUEUE if life.state is State.BOOTSTRAPPING else TRANSFER_QUEUE
    if life.state is State.BOOTSTRAPPING:
        return BOOTSTRAP_QUEUE
    if life.state in (State.WAITING, State.TRANSFERRING) and life.has(Op.CHUNK_ENQUEUED):
        return INFLIGHT_QUEUE
    return None


def blocked_on(life: Life, context: Context) -> str:
    """One of ``WORDS``."""
    if life.role == "decode":
        return NOTIFICATION
    missing = context.seams_missing(life, ("peers", "chunks", "agent"))
    return UNKNOWN if missing else _prefill(life, sight(life, context), context)


def _prefill(life: Life, seen: Sighting, context: Context) -> str:
    if life.state is State.BOOTSTRAPPING:
        return PEER_METADATA
    if seen.in_flight is not None:
        return TRANSPORT
    if not seen.worker_idle or seen.queue:
        return WORKER
    if not peers_present(life):
        return PEER_METADATA
    if not seen.all_sent:
        return SOURCE
    return ANOTHER_RANK if context.ranks_expected(life) > 1 else UNKNOWN
