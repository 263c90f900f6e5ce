"""What follows from a finding, and what to do about it, in the operator's words.

The statements about releases are those that runs of the released code showed; they are listed with
their evidence in ``docs/concepts/verdicts.md``.
"""

from __future__ import annotations

from tracekv.detect import Context
from tracekv.detect.pinned import attempt
from tracekv.event import Op, State
from tracekv.finding import BOOTSTRAP_QUEUE, GAUGES, PROOF, Finding
from tracekv.rooms import Life


def implications(finding: Finding, life: Life, context: Context) -> tuple[str, ...]:
    """Which consequences of a finding happened, and which may still."""
    if finding.kind == "resurrection":
        return _after_resurrection(finding, life, pinned=attempt(life, context).proved)
    tellers = {"pinned": _after_pin, "ghost_room": _after_ghost, "false_success": _after_false_success}
    return tellers[finding.kind](finding)


def _after_resurrection(finding: Finding, life: Life, *, pinned: bool) -> tuple[str, ...]:
    late = any(row.op == Op.XFER_POSTED and row.seq > finding.since.seq for row in life.events)
    success = State.SUCCESS in (life.state, life.polled)
    pin = "happened" if pinned else "may still happen" if life.open else "did not happen"
    false = "happened" if success else "did not happen" if pinned or life.settled else "may still happen"
    return (
        f"pin: {pin}",
        f"late write: {'a' if late else 'no'} transfer was posted afterwards",
        f"false Success: {false}",
    )


def _after_pin(finding: Finding) -> tuple[str, ...]:
    held = _held(finding)
    gauge = GAUGES.get(finding.queue or "")
    shown = f"; the gauge {gauge} does not come down" if gauge else ""
    return (f"held: {held}{shown}", "the client gets no answer from this room")


def _held(finding: Finding) -> str:
    """What the scheduler keeps for the room; before the forward pass there are no pages yet."""
    if finding.queue == BOOTSTRAP_QUEUE:
        return f"a slot of the {finding.queue} (no KV pages yet)"
    slot = f"a slot of the {finding.queue}" if finding.queue else "the request"
    return f"{slot} and its KV pages"


def _after_ghost(finding: Finding) -> tuple[str, ...]:
    return (
        "leak: one entry that is never freed",
        "a next request with this room id would start from the ghost's state",
    )


def _after_false_success(finding: Finding) -> tuple[str, ...]:
    return ("the abort had no effect on this side", "the two sides may disagree about the room's end")


def remedy(finding: Finding, life: Life, context: Context) -> str:
    """Where the room is, what frees it, and which release or patch is known to fix it."""
    sentences = [where(finding, context)]
    if finding.kind == "pinned":
        sentences += _free_pin(finding, life, context)
    sentences += _known_fix(finding, life, bootstrap_died=context.died(life.process, "bootstrap") is not None)
    return " ".join(sentences)


def where(finding: Finding, context: Context) -> str:
    """Process, host and ranks, as far as the trace names them."""
    process = context.processes.get(finding.process)
    host, pid = getattr(process, "host", None), getattr(process, "pid", None)
    place = f" (pid {pid} on host {host})" if host is not None else ""
    noun = "rank" if len(finding.ranks) == 1 else "ranks"
    ranks = ", ".join(str(rank) for rank in finding.ranks)
    return f"Process {finding.process}{place}, {finding.role} {noun} {ranks}."


def _free_pin(finding: Finding, life: Life, context: Context) -> list[str]:
    if finding.certainty != PROOF:
        told = f"as far as the rows tell it is blocked on {finding.blocked_on}."
        return [f"Look at it before a restart: {told}"]
    grows = (
        "It grows: the bootstrap thread died, so every later room of this rank hangs too."
        if context.died(life.process, "bootstrap") is not None
        else "It does not grow by itself; every further abort at such a moment adds another room."
    )
    return [
        f"It holds {_held(finding)}; no timeout of this build covers it, and only a restart of that "
        f"{life.role} process frees it.",
        grows,
    ]


def _known_fix(finding: Finding, life: Life, *, bootstrap_died: bool) -> list[str]:
    if finding.kind == "pinned" and bootstrap_died:
        return [_FIX_DEAD_THREAD]
    if finding.kind in ("resurrection", "pinned") and life.role == "prefill" and life.has(Op.ABORT_RECEIVED):
        if life.state is State.BOOTSTRAPPING:
            return [_FIX_BOOTSTRAPPING]
        return [_FIX_TRANSFERRING] if finding.kind == "pinned" else [_FIX_RESURRECTION]
    if finding.kind == "ghost_room":
        return ["Known to fix most of it: 0.5.20, whose update_status creates no entry for a late write."]
    if finding.kind == "false_success":
        return ["Known to fix it on NIXL: 0.5.16, whose Failed is final."]
    return []


_FIX_DEAD_THREAD = (
    "Known to fix it where an ABORT killed the thread: release 0.5.16, the first on NIXL to handle one "
    "(0.5.13 to 0.5.15 send it and die of it)."
)
_FIX_TRANSFERRING = (
    "Known to fix it: release 0.5.16 removes this pin (its ABORT handler pops nothing and Failed is final). "
    "On the patched 0.5.14, fix B (a skipped chunk concludes the room) removes it; fix A (a terminal state "
    "is final) removes it but for a narrow race."
)
_FIX_BOOTSTRAPPING = (
    "Known to fix it: release 0.5.16 keeps Failed when the sender is constructed after the ABORT, and from "
    "0.5.18 a bootstrap timeout ends such a room. On the patched 0.5.14, fix A (a terminal state is final) "
    "removes it but for a narrow race; fix B alone does not."
)
_FIX_RESURRECTION = (
    "Known to fix it: release 0.5.16 on NIXL, fix A (a terminal state is final) on the patched 0.5.14; both "
    "leave a narrow race between reading and writing the status."
)
