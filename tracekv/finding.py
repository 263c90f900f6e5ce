"""What the detectors find and how it is told: plain data, no judgement.

The verdict (``verdict.py``) is made from these; a finding never says that a trace is clean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracekv.event import Event, State

PROOF: Final = "proof"
SUSPICION: Final = "suspicion"

BOOTSTRAP_QUEUE: Final = "bootstrap queue"
INFLIGHT_QUEUE: Final = "inflight queue"
PREALLOC_QUEUE: Final = "decode prealloc queue"
TRANSFER_QUEUE: Final = "decode transfer queue"

#: The gauge that shows a queue (``sglang/srt/observability``, the same names in every release from 0.5.12).
GAUGES: Final = {
    BOOTSTRAP_QUEUE: "sglang:num_prefill_bootstrap_queue_reqs",
    INFLIGHT_QUEUE: "sglang:num_prefill_inflight_queue_reqs",
    PREALLOC_QUEUE: "sglang:num_decode_prealloc_queue_reqs",
    TRANSFER_QUEUE: "sglang:num_decode_transfer_queue_reqs",
}


@dataclass(frozen=True)
class Step:
    """One numbered sentence of a story: who did what, and why its place in the order is sure."""

    n: int
    event: Event
    text: str
    decisive: bool = False
    why: str | None = None


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with one life of a room.

    ``certainty`` is ``proof`` or ``suspicion``; ``since`` is the row with which it began, ``decisive`` the
    sequence numbers that prove it, in the order of ``process``.  ``reasons`` say what the certainty rests on.
    ``story``, ``implies`` and ``remedy`` are filled in by ``explain.py``.
    """

    id: str
    kind: str
    certainty: str
    room: int
    incarnation: int
    process: str
    manager: int
    role: str
    ranks: tuple[int, ...]
    since: Event
    state: State
    queue: str | None
    blocked_on: str
    claim: str
    decisive: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    story: tuple[Step, ...] = ()
    implies: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True)
class Note:
    """Something about a room that is no violation and is never dropped silently."""

    kind: str
    room: int
    text: str


def finding_id(kind: str, room: int, incarnation: int, process: str, manager: int) -> str:
    """A name that stays the same however often the same trace is analyzed."""
    return f"{kind}:{room}:{incarnation}:{process[:8]}:{manager}"
