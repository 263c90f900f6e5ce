"""Pinned: an open room that will never settle (invariant I3), by proof or by suspicion.

By proof: from the recorded state of every rank of the role, no step of any thread can make the room
terminal, under every build policy that the rows allow.  That takes no waiting time.  By suspicion:
no progress for much longer than healthy rooms live, while the process demonstrably went on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tracekv.detect.base import Detector, Found, finding
from tracekv.detect.blocked import blocked_on, queue_of
from tracekv.detect.context import SECOND_NS, Context
from tracekv.detect.observed import Sighting, sight
from tracekv.detect.policies import fits_of
from tracekv.detect.resurrection import overwrites_terminal, terminal_write
from tracekv.event import Event, Op, State
from tracekv.finding import PROOF, SUSPICION, Finding
from tracekv.machine import Policy, Proof, RoomState, settles
from tracekv.rooms import Life, missing

#: Without these a missing row proves nothing about what a thread did.
PROOF_SEAMS = ("status", "peers", "chunks", "control_in", "sender")

_NO_PROGRESS = frozenset(
    {
        Op.STATUS_CHECKED,
        Op.PEER_CHECKED,
        Op.POLL_CHANGED,
        Op.STATUS_REFUSED,
        Op.FAILURE_RECORDED,
        Op.PREFIX_ADDED,
        Op.PREFIX_POPPED,
    }
)


def find(life: Life, context: Context) -> Found:
    """At most one finding for the ranks of a role together, at the first of them that hangs."""
    if life.ended:
        return Found()
    ranks = context.ranks(life)
    if any(other.ended and released_by(other) for other in ranks) or not _speaks_for(life, ranks):
        return Found()
    found = _by_proof(life, ranks, context) or _by_time(life, ranks, context)
    return Found((found,) if found else ())


def released_by(life: Life) -> bool:
    """Whether this rank's end releases the room on all ranks: their polls are reduced with MIN."""
    return life.state is State.FAILED or life.polled is State.FAILED or life.cleared is not None


def _speaks_for(life: Life, ranks: tuple[Life, ...]) -> bool:
    first = next(other for other in ranks if not other.ended)
    return (life.process, life.manager) == (first.process, first.manager)


# -------------------------------------------------------------------------------------- by proof


@dataclass(frozen=True)
class Attempt:
    """One rank's attempt at a proof: what stands in its way, or under which policies it holds."""

    proved: bool
    reasons: tuple[str, ...]
    sighting: Sighting | None = None


def _by_proof(life: Life, ranks: tuple[Life, ...], context: Context) -> Finding | None:
    attempts = {id(rank): attempt(rank, context) for rank in ranks if not rank.ended}
    mine = attempts[id(life)]
    if not mine.proved:
        return None
    gaps = _gaps(life, ranks, context, [a for key, a in attempts.items() if key != id(life)])
    return _finding(life, ranks, context, SUSPICION if gaps else PROOF, (*mine.reasons, *gaps))


def attempt(life: Life, context: Context) -> Attempt:
    """Try to prove that this rank never settles."""
    if life.role != "prefill" or life.opened is None or not life.state >= State.BOOTSTRAPPING:
        return Attempt(False, ("only a prefill life that was seen from its opening can be proved",))
    missing = context.seams_missing(life, PROOF_SEAMS)
    if missing:
        return Attempt(False, (f"seams not installed: {', '.join(missing)}",))
    seen = sight(life, context)
    fits = fits_of(life, context)
    try:
        room = seen.room_state()
    except ValueError as error:
        return Attempt(False, (f"the rows contradict each other: {error}",), seen)
    proofs = {name: prove(room, policy) for name, policy in fits.policies.items()}
    if not proofs or any(proof.settles for proof in proofs.values()):
        return Attempt(False, (fits.why,), seen)
    return Attempt(True, (_proof_sentence(proofs), *_deaths(seen, life, context), fits.why), seen)


def _deaths(seen: Sighting, life: Life, context: Context) -> tuple[str, ...]:
    died = context.died(life.process, "bootstrap") if "B" in seen.dead else None
    if died is None:
        return ()
    return (f"the bootstrap thread died at seq {died.seq} ({died.reason}) and receives nothing any more",)


@lru_cache(maxsize=4096)
def prove(room: RoomState, policy: Policy) -> Proof:
    """Whether this room can settle under this policy; remembered, since rooms hang alike."""
    return settles(room, policy)


def _proof_sentence(proofs: dict[str, Proof]) -> str:
    states = max(proof.states for proof in proofs.values())
    noun = "state" if states == 1 else "states"
    return (
        f"from the recorded state {states} {noun} can still be reached and none of them is terminal, "
        f"under {' and '.join(proofs)}"
    )


def _gaps(life: Life, ranks: tuple[Life, ...], context: Context, others: list[Attempt]) -> tuple[str, ...]:
    """What keeps a proof for one rank from being one for the room."""
    gaps = []
    expected = context.ranks_expected(life)
    if len(ranks) < expected:
        gaps.append(f"{len(ranks)} of {expected} ranks are in the trace; a Failed on another frees the room")
    if any(not other.proved for other in others):
        gaps.append("another rank may still turn Failed, which releases the room on all")
    if any(context.rows_lost_during(rank) for rank in ranks):
        gaps.append("rows were lost while the room lived")
    gaps += [f"rows of the room are missing: {lack}" for rank in ranks for lack in missing(rank)]
    gaps += [doubt for rank in ranks for doubt in context.doubts(rank)]
    return tuple(gaps)


# --------------------------------------------------------------------------------- by suspicion


def _by_time(life: Life, ranks: tuple[Life, ...], context: Context) -> Finding | None:
    since = last_progress(life)
    if since.mono_ns is None or not _scheduler_went_on(life, context, since):
        return None
    rested = context.alive_ns(life.process, since.mono_ns)
    if rested <= context.stuck_after_ns:
        return None
    reason = (
        f"no progress for {rested / SECOND_NS:.1f} s while the process went on; "
        f"the threshold is {context.stuck_after_ns / SECOND_NS:.1f} s"
    )
    return _finding(life, ranks, context, SUSPICION, (reason, *attempt(life, context).reasons))


def _scheduler_went_on(life: Life, context: Context, since: Event) -> bool:
    return context.went_on(life.process, "scheduler", since.seq)


def last_progress(life: Life) -> Event:
    """The last row that moved the room: reads, polls and refused writes do not."""
    moved = (row for row in reversed(life.body) if row.op not in _NO_PROGRESS)
    return next(moved, life.last)


# ------------------------------------------------------------------------------------ the finding


def _finding(
    life: Life, ranks: tuple[Life, ...], context: Context, certainty: str, reasons: tuple[str, ...]
) -> Finding:
    since = last_progress(life)
    stuck = tuple(sorted(context.rank_of(rank) for rank in ranks if not rank.ended))
    never = "will never leave" if certainty == PROOF else "has not left, and may never leave,"
    return finding(
        "pinned",
        life,
        context,
        since,
        certainty=certainty,
        ranks=stuck,
        queue=queue_of(life),
        blocked_on=blocked_on(life, context),
        claim=f"the room {never} {life.state.label}",
        decisive=decisive(life, since),
        reasons=reasons,
    )


def decisive(life: Life, since: Event) -> tuple[int, ...]:
    """The rows without which the room would not hang: the pop, the overwritten write and its successor,
    and the last move."""
    pop = [row.seq for row in life.body if row.op == Op.PEER_POPPED and row.thread == "bootstrap"]
    lifted = [(at, row) for at, row in enumerate(life.body) if overwrites_terminal(row)][-1:]
    overwritten = [terminal_write(life.body[:at], row.old) for at, row in lifted]
    found = [*(row for _, row in lifted), *(row for row in overwritten if row is not None), since]
    return tuple(sorted({*pop[-1:], *(row.seq for row in found)}))


DETECTOR = Detector(
    id="pinned",
    claim="Every open room reaches Success, Failed or its clear.",
    invariant="I3",
    seams={"prefill": PROOF_SEAMS, "decode": ("status", "receiver")},
    find=find,
)
