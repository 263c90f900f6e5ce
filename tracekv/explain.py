"""From a finding to its causal slice, told as numbered sentences, with the proof of their order.

Pure functions: rows in, text in dataclasses out.  The promise: every sentence is one row of the
trace, the steps that decide are marked, and where only clocks order two rows that is said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tracekv.detect import Context
from tracekv.event import Event, Op, state_label
from tracekv.finding import Finding, Step
from tracekv.remedy import implications, remedy
from tracekv.rooms import Life, Room, partners, ranks_of

_READS = frozenset({Op.STATUS_CHECKED, Op.PEER_CHECKED})
_ASIDES = frozenset({Op.PREFIX_ADDED, Op.PREFIX_POPPED, Op.FAILURE_RECORDED, Op.QUEUE_ENTERED, Op.QUEUE_LEFT})


def explain(finding: Finding, room: Room, context: Context) -> Finding:
    """The finding with its story, its consequences and its remedy."""
    life = life_of(finding, room)
    return replace(
        finding,
        story=story_of(lives_beside(life, room), finding.process, finding.decisive),
        implies=implications(finding, life, context),
        remedy=remedy(finding, life, context),
    )


def life_of(finding: Finding, room: Room) -> Life:
    """The life that a finding is about."""
    key = (finding.process, finding.manager, finding.incarnation)
    return next(life for life in room.lives if (life.process, life.manager, life.n) == key)


def lives_beside(life: Life, room: Room) -> tuple[Life, ...]:
    """The life, the other ranks of its role, and the lives of the other role that fit it in time."""
    return (*ranks_of(life, room), *partners(life, room).lives)


def story_of(lives: Iterable[Life], process: str, decisive: Sequence[int] = ()) -> tuple[Step, ...]:
    """The story of these lives in order; ``decisive`` are sequence numbers of ``process``."""
    marks = {(process, seq) for seq in decisive}
    rows = merge(row for life in lives for row in life.events)
    kept = [row for row in rows if is_told(row) or (row.process, row.seq) in marks]
    steps: list[Step] = []
    processes = {row.process for row in kept}
    decided: list[Event] = []
    for n, row in enumerate(kept, 1):
        marked = (row.process, row.seq) in marks
        why = _why(row, decided if marked else [], kept[: n - 1])
        steps.append(Step(n, row, sentence(row, several=len(processes) > 1), marked, why))
        decided += [row] if marked else []
    return tuple(steps)


def is_told(row: Event) -> bool:
    """Whether a row is a step of its own: reads and side records are left out unless they decide."""
    if row.op in _READS or row.op in _ASIDES:
        return False
    inner_peer = row.op == Op.PEER_ADDED and row.peer is not None
    unchanged = row.op == Op.STATUS_WRITTEN and row.old == row.new
    return not (inner_peer or unchanged)


def merge(rows: Iterable[Event]) -> list[Event]:
    """One order: inside a process its own, across processes messages first and then the wall clocks."""
    by_process: dict[str, list[Event]] = {}
    for row in rows:
        by_process.setdefault(row.process, []).append(row)
    lanes = [deque(sorted(lane, key=lambda row: row.seq)) for lane in by_process.values()]
    merged: list[Event] = []
    while lanes:
        ready = [lane for lane in lanes if not _awaits_message(lane[0], lanes)] or lanes
        lane = min(ready, key=lambda each: (each[0].wall_ns or 0, each[0].process))
        merged.append(lane.popleft())
        lanes = [each for each in lanes if each]
    return merged


def _awaits_message(head: Event, lanes: Sequence[Iterable[Event]]) -> bool:
    """Whether another process has still to send what this row receives, whatever the clocks say."""
    sent = _MESSAGES.get(head.op)
    rows = (row for lane in lanes for row in lane)
    return sent is not None and any(row.op == sent and row.process != head.process for row in rows)


# ---------------------------------------------------------------------------------- why this order

_MESSAGES = {Op.ABORT_RECEIVED: Op.ABORT_SENT, Op.META_RECEIVED: Op.META_SENT, Op.ACK_RECEIVED: Op.ACK_SENT}


def _why(row: Event, decided: Sequence[Event], told: Sequence[Event]) -> str | None:
    before = _compared(row, [each for each in decided if each.process == row.process])
    if before is not None and before.thread != row.thread:
        return order_in_process(before, row)
    sent = _sender_of(row, told)
    if sent is not None:
        return f"a message is sent (seq {sent.seq}) before it is received (seq {row.seq})"
    if told and told[-1].process != row.process:
        return "another process: ordered by the wall clocks alone, so the two may be concurrent"
    return None


def _compared(row: Event, decided: Sequence[Event]) -> Event | None:
    """The earlier step that a decisive one is compared with: what it overwrote, or another thread's last."""
    written = [each for each in decided if each.op == Op.STATUS_WRITTEN and each.new == row.old]
    if row.op == Op.STATUS_WRITTEN and written:
        return written[-1]
    return next((each for each in reversed(decided) if each.thread != row.thread), None)


def order_in_process(before: Event, row: Event) -> str:
    """The sentence that proves the order of two rows of one process."""
    first, second = f"{who(before)}'s {what(before)} (seq {before.seq})", f"{who(row)}'s {what(row)}"
    if row.seq_before is not None and row.seq_before < before.seq:
        span = f"began after seq {row.seq_before} and took effect at seq {row.seq}"
        return f"{first} came into {second}, which {span}"
    return f"{first} precedes {second} (seq {row.seq}) in one process"


def _sender_of(row: Event, told: Sequence[Event]) -> Event | None:
    wanted = _MESSAGES.get(row.op)
    return next((each for each in reversed(told) if wanted and each.op == wanted), None)


# ---------------------------------------------------------------------------------- the sentences


def who(row: Event) -> str:
    """A row's thread as people say it."""
    names = {"scheduler": "the scheduler", "bootstrap": "the bootstrap thread", "decode": "the decode engine"}
    thread = row.thread or "an unknown thread"
    if thread.startswith("worker-"):
        return f"worker {thread[len('worker-') :]}"
    return names.get(thread, thread)


def what(row: Event) -> str:
    """A row in a few words, after its thread's genitive."""
    if row.op == Op.STATUS_WRITTEN:
        return state_label(row.new)
    chunk = "" if row.chunk is None else f" of chunk {row.chunk}"
    return {
        Op.PEER_POPPED: "pop of the peer metadata",
        Op.CHUNK_SKIPPED: f"skip{chunk}",
        Op.ROOM_CLEARED: "clear",
        Op.ABORT_RECEIVED: "receipt of the ABORT",
        Op.ABORT_REQUESTED: "abort",
        Op.PEER_ADDED: "new peer entry",
        Op.XFER_DONE: f"end of the transfer{chunk}",
    }.get(row.op, f"{row.op}{chunk}")


def sentence(row: Event, *, several: bool = False) -> str:
    """One row as a sentence; with ``several`` processes it names its own."""
    place = f" of process {row.process}" if several else ""
    return f"{who(row)}{place} {_predicate(row)}"


def _predicate(row: Event) -> str:
    if row.op in (Op.STATUS_WRITTEN, Op.STATUS_REFUSED, Op.STATUS_DROPPED, Op.STATUS_CHECKED):
        return _status_predicate(row)
    if row.chunk is not None or row.op in _CHUNKED:
        return _chunk_predicate(row)
    return _plain_predicate(row)


def _status_predicate(row: Event) -> str:
    old, new = state_label(row.old), state_label(row.new)
    if row.op == Op.STATUS_DROPPED:
        return f"removes the room's status, which was {old}"
    if row.op == Op.STATUS_CHECKED:
        return f"reads the status: {old}"
    if row.op == Op.STATUS_REFUSED:
        return f"asks for {state_label(row.requested)} and nothing is stored; the status stays {old}"
    asked = "" if row.requested in (None, row.new) else f", having asked for {state_label(row.requested)}"
    return f"stores {new} over {old}{asked}"


_CHUNKED = {
    Op.CHUNK_ENQUEUED: "enqueues {chunk}",
    Op.CHUNK_DEQUEUED: "takes from its queue {chunk}",
    Op.CHUNK_SKIPPED: "is back for more without having sent {chunk}: the chunk is skipped",
    Op.XFER_POSTED: "starts the transfer of {chunk}",
    Op.XFER_DONE: "sees the transfer of {chunk} done",
    Op.XFER_FAILED: "sees the transfer of {chunk} fail",
    Op.XFER_RELEASED: "releases the transfer of {chunk}",
}


def _chunk_predicate(row: Event) -> str:
    name = "a chunk" if row.chunk is None else f"chunk {row.chunk}"
    last = ", the last one" if row.last and row.op in (Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED) else ""
    reason = f" ({row.reason})" if row.reason else ""
    return _CHUNKED.get(row.op, f"{row.op} {{chunk}}").format(chunk=name + last) + reason


_PLAIN = {
    Op.ROOM_OPENED: "opens the room",
    Op.ROOM_CLEARED: "has cleared the room",
    Op.META_SENT: "sends its metadata",
    Op.META_RECEIVED: "receives decode's metadata",
    Op.ABORT_SENT: "sends an ABORT",
    Op.ABORT_RECEIVED: "receives an ABORT for the room",
    Op.ABORT_REQUESTED: "aborts the room locally",
    Op.ACK_SENT: "acknowledges the ABORT",
    Op.ACK_RECEIVED: "receives the acknowledgement of its ABORT",
    Op.NOTIF_RECEIVED: "receives a notification that a transfer arrived",
    Op.PAGES_RELEASED: "releases the pages",
}


def _plain_predicate(row: Event) -> str:
    if row.op == Op.PEER_ADDED:
        return "enters the peer metadata" if row.peer is None else f"adds peer {row.peer}"
    if row.op == Op.PEER_POPPED:
        had = row.attr("had", True)
        return "removes the peer metadata" if had else "removes the peer metadata, which was not there"
    if row.op == Op.PEER_CHECKED:
        return "looks the peer metadata up: " + ("found" if row.attr("found") else "not there")
    if row.op == Op.POLL_CHANGED:
        return f"polls the room and sees {state_label(row.new)}"
    if row.op == Op.CONCLUDE_SET:
        return f"concludes the room as {state_label(row.new)}"
    reason = f" ({row.reason})" if row.reason else ""
    return _PLAIN.get(row.op, row.op) + reason
