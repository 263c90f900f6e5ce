"""False success: a room ends in Success although its abort came first (invariants I7 and I1).

The abort counts when it belongs to this life and precedes the moment at which Success was stored;
one that comes after Success, or that was meant for an earlier life of the id, is none.
"""

from __future__ import annotations

from tracekv.detect.base import Detector, Found, finding
from tracekv.detect.blocked import NOTHING
from tracekv.detect.context import Context
from tracekv.event import Event, Op, State
from tracekv.finding import PROOF, SUSPICION
from tracekv.rooms import Life

_ABORTS = frozenset({Op.ABORT_RECEIVED, Op.ABORT_REQUESTED, Op.ABORT_SENT})


def find(life: Life, context: Context) -> Found:
    """At most one finding: the Success that came after the abort and stayed."""
    success = success_that_stayed(life)
    abort = abort_of(life)
    if success is None or abort is None or abort.seq > success.seq:
        return Found()
    what = "Failed was stored" if abort.op == Op.STATUS_WRITTEN else f"{abort.op} at seq {abort.seq}"
    return Found(
        (
            finding(
                "false_success",
                life,
                context,
                success,
                certainty=SUSPICION if concurrent(abort, success) else PROOF,
                state=State.SUCCESS,
                blocked_on=NOTHING,
                claim=f"the room ended in Success although it had been aborted before ({what})",
                decisive=(abort.seq, success.seq),
                reasons=(f"{abort.op} (seq {abort.seq}) precedes Success (seq {success.seq})",),
            ),
        )
    )


def concurrent(abort: Event, success: Event) -> bool:
    """Whether the write could not be numbered at its effect, and may have preceded the abort after all."""
    if success.old == State.FAILED or success.seq_before is None:
        return False
    return success.seq_before < abort.seq


def success_that_stayed(life: Life) -> Event | None:
    """The row that stored the Success in which the life ended."""
    found: Event | None = None
    for row in life.body:
        stored = row.op == Op.STATUS_WRITTEN and row.new != row.old
        if stored or (row.op == Op.CONCLUDE_SET and life.role == "decode"):
            found = row if row.new == State.SUCCESS else None
    return found


def abort_of(life: Life) -> Event | None:
    """The first row that says that this life was to fail: an abort of its own, or Failed stored."""
    for row in life.body:
        if row.op == Op.STATUS_WRITTEN and row.new == State.FAILED:
            return row
        if row.op in _ABORTS and not _of_earlier_life(life, row):
            return row
    return None


def _of_earlier_life(life: Life, abort: Event) -> bool:
    """Decode sends metadata before it aborts: an ABORT before it was meant for the life before."""
    if life.n == 0 or abort.op != Op.ABORT_RECEIVED:
        return False
    meta = next((row for row in life.body if row.op == Op.META_RECEIVED), None)
    return meta is not None and abort.seq < meta.seq


DETECTOR = Detector(
    id="false_success",
    claim="A room that was aborted, or had failed, does not end in Success.",
    invariant="I7",
    seams={"prefill": ("status", "control_in", "sender"), "decode": ("status", "receiver")},
    find=find,
)
