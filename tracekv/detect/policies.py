"""Which builds' behaviour a process's rows allow.

The label that the process carries is believed unless its own rows contradict it.  Where it is
unknown or contradicted, every policy that the rows allow is a candidate, each with and without the
bootstrap timeout that later releases arm, and a proof has to hold under all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tracekv.detect.context import Context
from tracekv.detect.observed import peers_present
from tracekv.event import Event, Op, State
from tracekv.machine import POLICIES, Policy
from tracekv.machine.policy import Abort, Guard, Merge
from tracekv.rooms import Life

MOONCAKE: Final = "mooncake"


@dataclass(frozen=True)
class Fitting:
    """The candidate policies by name, and how they were chosen."""

    policies: Mapping[str, Policy]
    why: str
    contradicted: bool = False


@dataclass(frozen=True)
class Evidence:
    """What the rows of a process say about its code; ``None`` where they do not say."""

    abort_dies: bool | None = None
    abort_pops: bool | None = None
    stores_over_failed: bool = False
    writes_transferring: bool = False
    skips_silently: bool = False

    def allows(self, policy: Policy) -> bool:
        """Whether this policy could have written the rows."""
        return not any(
            (
                self.abort_dies is not None and self.abort_dies != (policy.abort is Abort.DIES),
                self.abort_pops is not None and self.abort_pops != policy.abort_pops,
                self.stores_over_failed and policy.merge is not Merge.MAX,
                self.writes_transferring and not policy.transferring,
                self.skips_silently and (policy.guard is not Guard.PEERS or policy.skip_concludes),
            )
        )


def fits_of(life: Life, context: Context) -> Fitting:
    """The policies that fit the life's process."""
    manager = context.manager_of(life)
    backend = getattr(manager, "backend", None)
    key = (life.process, life.manager)
    if key not in context.fits:
        lives = [
            other
            for room in context.rooms.values()
            for other in room.prefill
            if (other.process, other.manager) == key
        ]
        context.fits[key] = fitting(context.build_of(life), backend, lives)
    found: Fitting = context.fits[key]
    return found


def fitting(label: str | None, backend: str | None, lives: Iterable[Life]) -> Fitting:
    """The policies under which a proof must hold.

    ``label`` and ``backend`` are the process's own words, ``lives`` the prefill lives of one manager.
    """
    evidence = evidence_of(lives)
    known = POLICIES.get(MOONCAKE if backend == MOONCAKE else label or "")
    if known is not None and evidence.allows(known):
        return Fitting({label or MOONCAKE: known}, f"the process says that it is build {label}")
    contradicted = f"the rows contradict the build label {label}"
    why = "the process's build is not known" if known is None else contradicted
    allowed: dict[str, Policy] = {}
    for name, policy in POLICIES.items():
        if name != MOONCAKE and evidence.allows(policy):
            allowed[name] = replace(policy, bootstrap_timeout=False)
            allowed[f"{name} with a bootstrap timeout"] = replace(policy, bootstrap_timeout=True)
    told = f"{why}; the rows allow {', '.join(allowed) or 'no build that is known'}"
    return Fitting(allowed, told, contradicted=known is not None)


def evidence_of(lives: Iterable[Life]) -> Evidence:
    """What the rows of these lives say about the code that wrote them."""
    found = Evidence()
    for life in lives:
        found = _merge_abort(found, life)
        found = _merge_worker(found, life)
    return found


def _merge_abort(found: Evidence, life: Life) -> Evidence:
    rows = [row for row in life.events if row.thread == "bootstrap"]
    for at, row in enumerate(rows):
        if row.op != Op.ABORT_RECEIVED:
            continue
        handled = _until_next_frame(rows[at + 1 :])
        if any(each.op == Op.PEER_POPPED for each in handled):
            found = replace(found, abort_dies=False, abort_pops=True)
        if any(each.requested == State.FAILED for each in handled):
            found = replace(found, abort_dies=False)
    return found


def _until_next_frame(rows: list[Event]) -> list[Event]:
    ends = (at for at, row in enumerate(rows) if row.op in (Op.META_RECEIVED, Op.ABORT_RECEIVED))
    return rows[: next(ends, len(rows))]


def _merge_worker(found: Evidence, life: Life) -> Evidence:
    for at, row in enumerate(life.events):
        worker = (row.thread or "").startswith("worker")
        if worker and row.op == Op.STATUS_WRITTEN and row.requested == State.TRANSFERRING:
            found = replace(found, writes_transferring=True)
        if _stored_over_failed(life.events, at):
            found = replace(found, stores_over_failed=True)
        if row.op == Op.CHUNK_SKIPPED and _skipped_silently(life, at):
            found = replace(found, skips_silently=True)
    return found


def _stored_over_failed(rows: tuple[Event, ...], at: int) -> bool:
    """A plain merge lifted a Failed that it had read all along.

    A sticky build can store over Failed too, when it read something else first and lost the update;
    and where no read of the write was recorded, the rows do not say which of the two it was.
    """
    row = rows[at]
    if row.op != Op.STATUS_WRITTEN or row.old != State.FAILED or row.new in (None, State.FAILED):
        return False
    reads = _reads_of_write(rows, at)
    return bool(reads) and all(read.old == State.FAILED for read in reads)


def _reads_of_write(rows: tuple[Event, ...], at: int) -> list[Event]:
    """The reads inside the same ``update_status``: the unbroken run of them by its thread and site."""
    row = rows[at]
    reads: list[Event] = []
    for each in reversed(rows[:at]):
        if each.thread != row.thread:
            continue
        if each.op != Op.STATUS_CHECKED or each.site != row.site:
            break
        reads.append(each)
    return reads


def _skipped_silently(life: Life, at: int) -> bool:
    """A chunk of a room without peers was given up, and nothing terminal was written."""
    past = replace(life, events=life.events[:at], ghosts=())
    return past.state not in (State.ABSENT, State.FAILED, State.SUCCESS) and not peers_present(past)
