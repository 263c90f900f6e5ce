"""In which order a scenario is executed: derived from a room's rows, or steered towards them.

Two kinds.  A *strict* schedule is the exact order of the gated events, for the same code on the same
rig.  An *anchored* one keeps what every build does (frames, chunks, transfers, the scheduler's polls,
threads back at their loop heads) as hard anchors that must come in this order, and follows the rest of
the trace only as far as the code goes along; it carries across builds and rigs.

Pure: rows in, steps out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracekv.errors import CannotTellError
from tracekv.event import Event, Op, State
from tracekv.replay.rigs import Pending, Scenario
from tracekv.seams import GATE_OF, Wait

POLL: Final = "poll"  # the gate of a scheduler's poll, told apart from its other reads
SENT_BEFORE: Final = {Op.META_RECEIVED: Op.META_SENT, Op.ABORT_RECEIVED: Op.ABORT_SENT}

#: Events of these gates happen on every build: they anchor a schedule.
HARD: Final = frozenset(
    {
        Op.META_SENT,
        Op.ABORT_SENT,
        "control.in",
        Op.CHUNK_ENQUEUED,
        Op.CHUNK_DEQUEUED,
        Op.XFER_POSTED,
        "xfer.settled",
        POLL,
    }
)

#: A row that says that a thread came back to a gate, and that gate.
ARRIVALS: Final = {Op.CONTROL_WAITING: "control.in", Op.WORKER_WAITING: Op.CHUNK_DEQUEUED}

CHUNK_PAGES: Final = 16  # of a chunk at most: the interleaving does not depend on how large it is
ROOM_PAGES: Final = 256  # of a room in all: what the smallest rig holds

_LETTERS: Final = {"scheduler": "S", "bootstrap": "B", "decode": "D"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a schedule.

    ``arrives`` means: the actor is back at ``gate``, rather than through it.  A step that is not
    ``hard`` is followed where the code offers it and passed over where it does not.
    """

    actor: str
    gate: str
    chunk: int | None = None
    arrives: bool = False
    hard: bool = True

    def __str__(self) -> str:
        chunk = "" if self.chunk is None else f" c{self.chunk}"
        return f"{self.actor} {'back at ' if self.arrives else ''}{self.gate}{chunk}"

    def fits(self, pending: Pending) -> bool:
        """Whether an actor that stands at ``pending`` stands before this step."""
        same_gate = gate_of(pending) == self.gate
        return same_gate and (self.chunk is None or pending.chunk is None or self.chunk == pending.chunk)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in order.  ``kind`` is ``strict`` or ``anchored``."""

    kind: str
    steps: tuple[Step, ...]


def gate_of(pending: Pending) -> str:
    """The gate's name in a schedule."""
    return POLL if pending.waits is Wait.VALUE_CHANGED else pending.gate


def actor_of(row: Event, prefill: frozenset[tuple[str, int | None]]) -> str | None:
    """The actor that made a row, as a letter; ``None`` for what a rig does not play.

    ``prefill`` holds the (process, manager) pairs of the prefill role; decode's part in a schedule is
    only what it sends.
    """
    if row.op in (Op.META_SENT, Op.ABORT_SENT):
        return "D"
    if (row.process, row.manager) not in prefill or row.thread is None:
        return None
    if row.thread.startswith("worker"):
        return "W"
    letter = _LETTERS.get(row.thread)
    return letter if letter != "D" else None


def scenario_of(rows: Iterable[Event]) -> Scenario:
    """What the rows of one room executed, with chunks cut to what a rig holds.

    Raises CannotTellError where a rig does not even hold one page of each chunk.
    """
    pages: list[int] = []
    abort = False
    for row in rows:
        if row.op == Op.CHUNK_ENQUEUED:
            found = row.attr("pages", 1)
            pages.append(found if isinstance(found, int) else 1)
        abort = abort or row.op in (Op.ABORT_SENT, Op.ABORT_RECEIVED)
    if len(pages) > ROOM_PAGES:
        raise CannotTellError(
            f"the room has {len(pages):,} chunks, a rig holds {ROOM_PAGES}",
            hint="A replay of one with fewer chunks shows the same interleavings.",
        )
    most = min(CHUNK_PAGES, ROOM_PAGES // max(len(pages), 1))
    return Scenario(tuple(min(max(each, 1), most) for each in pages) or (1,), abort)


def strict_schedule(rows: Sequence[Event], prefill: frozenset[tuple[str, int | None]]) -> Schedule:
    """The exact order of the gated events of one room, from a trace at detail ``gates``."""
    return Schedule("strict", tuple(step for step, _ in _gated(_completed(rows), prefill)))


def anchored_schedule(rows: Sequence[Event], prefill: frozenset[tuple[str, int | None]]) -> Schedule:
    """Hard anchors and soft steps of one room.

    ``rows`` are the room's rows and the rows without a room of the threads that worked on it (their
    ``control.waiting`` and ``worker.waiting``), in order.
    """
    steps: list[Step] = []
    rows = _completed(rows)
    gated = {id(row): step for step, row in _gated(rows, prefill)}
    busy: set[str] = set()  # the actors that have work of this room in hand
    for row in rows:
        actor = actor_of(row, prefill)
        if row.op in ARRIVALS:
            if actor in busy:
                busy.discard(actor)
                steps.append(Step(actor, ARRIVALS[row.op], arrives=True))
            continue
        step = gated.get(id(row))
        if step is None:
            continue
        steps.append(step)
        if step.gate in ("control.in", Op.CHUNK_DEQUEUED):
            busy.add(step.actor)
        if _opens(row, actor):
            steps.append(Step("S", POLL, arrives=True))
    return Schedule("anchored", tuple(steps))


def _opens(row: Event, actor: str | None) -> bool:
    """Whether this write ends the sender's constructor: next it will be polled."""
    return (
        actor == "S" and row.op == Op.STATUS_WRITTEN and row.requested in (State.BOOTSTRAPPING, State.WAITING)
    )


def _gated(rows: Sequence[Event], prefill: frozenset[tuple[str, int | None]]) -> Iterable[tuple[Step, Event]]:
    polled: int | None = None
    for row in rows:
        gate, actor = GATE_OF.get(row.op), actor_of(row, prefill)
        if gate is None or actor is None or _passes_gate(row):
            continue
        if row.op == Op.CHUNK_ENQUEUED:
            polled = None
        if actor == "S" and _is_poll(row):
            if row.old == polled:
                continue  # a poll that saw nothing new: a rig waits for a change instead
            polled, gate = row.old, POLL
        chunk = row.chunk if gate in (Op.XFER_POSTED, "xfer.settled", Op.CHUNK_ENQUEUED) else None
        yield Step(actor, gate, chunk, hard=gate in HARD), row


def _passes_gate(row: Event) -> bool:
    """Rows of a gated operation at which nobody parks: the peers inside a room's entry."""
    return row.op == Op.PEER_ADDED and row.peer is not None


def _completed(rows: Sequence[Event]) -> list[Event]:
    """The rows, and those that they imply where a trace does not hold them."""
    sent = _with_sends(rows)
    return sent if any(_is_poll(row) for row in rows) else _with_polls(sent)


def _is_poll(row: Event) -> bool:
    return row.op == Op.STATUS_CHECKED and row.attr("call") == "poll"


def _with_polls(rows: Sequence[Event]) -> list[Event]:
    """The rows with the polls of a trace at detail ``writes``.

    There a poll left a row only where its result changed; and a scheduler that enqueued had seen its
    room wait.
    """
    made: list[Event] = []
    seen = False
    for row in rows:
        if row.op == Op.POLL_CHANGED or (row.op == Op.CHUNK_ENQUEUED and not seen):
            seen = True
            made.append(_poll_of(row))
        made.append(row)
    return made


def _poll_of(row: Event) -> Event:
    old = row.new if row.op == Op.POLL_CHANGED else State.WAITING
    return replace(row, op=Op.STATUS_CHECKED, old=old, new=None, attrs='{"call":"poll"}', source="inferred")


def _with_sends(rows: Sequence[Event]) -> list[Event]:
    """The rows with a send before each received frame whose sender's own row is not among them."""
    sent = {row.op for row in rows}
    made: list[Event] = []
    for row in rows:
        send = SENT_BEFORE.get(row.op)
        if send is not None and send not in sent:
            made.append(_send_of(row, send))
        made.append(row)
    return made


def _send_of(row: Event, op: str) -> Event:
    return Event(seq=row.seq, op=op, process=row.process, room=row.room, source="inferred")
