"""Resurrection: a terminal state was overwritten before the room was cleared (invariant I1).

Proved by the row itself: ``old`` is what the dictionary held at the moment of the write.  A request
that changes nothing (``Success`` stays ``Success``) and a room id that lives again after its clear
are no resurrections.  One that healed before anybody saw it is told in a note, never dropped.
"""

from __future__ import annotations

from tracekv.detect.base import Detector, Found, finding
from tracekv.detect.blocked import NOTHING, blocked_on, queue_of
from tracekv.detect.context import Context
from tracekv.event import Event, Op, state_label
from tracekv.finding import PROOF, Finding, Note
from tracekv.rooms import Life
from tracekv.rooms.life import as_state


def find(life: Life, context: Context) -> Found:
    """The first resurrection of the life that did not heal; the healed ones become notes."""
    findings: list[Finding] = []
    notes: list[Note] = []
    rows = life.body
    for at, row in enumerate(rows):
        if not overwrites_terminal(row) or _of_earlier_life(life, rows[:at], row):
            continue
        healer = _healer(rows, at)
        if healer is not None:
            notes.append(_note(life, row, healer))
        elif not findings:
            findings.append(_finding(life, context, rows[:at], row))
    return Found(tuple(findings), tuple(notes))


def overwrites_terminal(row: Event) -> bool:
    """Whether this row stored something else over Failed or Success."""
    if row.op != Op.STATUS_WRITTEN or row.new is None or row.new == row.old:
        return False
    old = as_state(row.old)
    return old is not None and old.terminal


def _of_earlier_life(life: Life, before: tuple[Event, ...], row: Event) -> bool:
    """A life that opens over what an earlier one left uncleared resurrects nothing of its own."""
    return life.n > 0 and terminal_write(before, row.old) is None


def _healer(rows: tuple[Event, ...], at: int) -> Event | None:
    """The later write that put the same terminal state back before the wrong one had any effect."""
    terminal = rows[at].old
    for row in rows[at + 1 :]:
        if row.op == Op.STATUS_WRITTEN and row.new == terminal:
            return row
        if row.op == Op.XFER_POSTED or _scheduler_saw(row, terminal):
            return None
    return None


def _scheduler_saw(row: Event, terminal: int | None) -> bool:
    """Whether the scheduler read another state than the terminal one."""
    if row.op == Op.POLL_CHANGED:
        return row.new != terminal
    read = row.op == Op.STATUS_CHECKED and row.attr("call") in ("get", "poll")
    return read and row.thread == "scheduler" and row.old != terminal


def _finding(life: Life, context: Context, before: tuple[Event, ...], row: Event) -> Finding:
    terminal = terminal_write(before, row.old)
    old, new = state_label(row.old), state_label(row.new)
    decisive = (terminal.seq, row.seq) if terminal else (row.seq,)
    return finding(
        "resurrection",
        life,
        context,
        row,
        certainty=PROOF,
        queue=None if life.ended else queue_of(life),
        blocked_on=NOTHING if life.ended else blocked_on(life, context),
        claim=f"{old} was overwritten with {new} by {row.thread} before the room was cleared",
        decisive=decisive,
        reasons=(f"the write at seq {row.seq} found {old} in the dictionary and left {new} there",),
    )


def terminal_write(before: tuple[Event, ...], value: int | None) -> Event | None:
    """The write that first stored the terminal state that was overwritten."""
    held: Event | None = None
    for row in reversed(before):
        if row.op != Op.STATUS_WRITTEN:
            continue
        if row.new != value:
            break
        held = row
    return held


def _note(life: Life, row: Event, healer: Event) -> Note:
    old, new = state_label(row.old), state_label(row.new)
    text = (
        f"{old} was overwritten with {new} (seq {row.seq}) and {old} was stored again (seq {healer.seq}) "
        "before the scheduler polled the room and before another transfer was posted: the resurrection healed"
    )
    return Note("healed_resurrection", life.room, text)


DETECTOR = Detector(
    id="resurrection",
    claim="After Failed or Success nothing else is stored for a room before it is cleared.",
    invariant="I1",
    seams={"prefill": ("status", "sender"), "decode": ("status", "receiver")},
    find=find,
)
