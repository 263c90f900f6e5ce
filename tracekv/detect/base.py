"""What a detector is: an id, a claim in one sentence, the evidence that it needs, and one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tracekv.detect.context import Context
from tracekv.event import Event
from tracekv.finding import PROOF, SUSPICION, Finding, Note, finding_id
from tracekv.rooms import Life


@dataclass(frozen=True)
class Found:
    """What one detector has to say about one life."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Detector:
    """One kind of anomaly.

    ``claim`` states the invariant that a life keeps when nothing is found; ``invariant`` is its id in
    ``docs/concepts/verdicts.md``; ``seams`` are, per role, the hook points without which
    silence proves nothing.
    """

    id: str
    claim: str
    invariant: str
    seams: Mapping[str, tuple[str, ...]]
    find: Callable[[Life, Context], Found]


def finding(kind: str, life: Life, context: Context, since: Event, **fields: Any) -> Finding:
    """A finding about ``life`` with everything that is the same for every kind.

    Where the life's rows are in doubt, what would be a proof is a suspicion.
    """
    given: dict[str, Any] = {
        "ranks": (context.rank_of(life),),
        "state": life.state,
        "queue": None,
        "blocked_on": "unknown",
        **fields,
    }
    doubts = context.doubts(life)
    if doubts and given["certainty"] == PROOF:
        given |= {"certainty": SUSPICION, "reasons": (*given.get("reasons", ()), *doubts)}
    return Finding(
        id=finding_id(kind, life.room, life.n, life.process, life.manager),
        kind=kind,
        room=life.room,
        incarnation=life.n,
        process=life.process,
        manager=life.manager,
        role=life.role,
        since=since,
        **given,
    )
