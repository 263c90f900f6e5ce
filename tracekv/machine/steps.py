"""One step of one room: which events can happen now, and what each of them does.

:func:`step` is pure.  :func:`perform` is the same step with the rows that it leaves in a trace,
in the order in which the recorder would see them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tracekv.event import Op, State
from tracekv.machine.policy import Policy
from tracekv.machine.program import PROGRAM, Instruction, decode_aborts, times_out, transfer_fails
from tracekv.machine.run import Row, Run
from tracekv.machine.state import (
    ACTORS,
    DEAD,
    DECODE_WAITING,
    FIELD_OF,
    META,
    RESTING,
    WORKER_BUSY,
    Action,
    Actor,
    RoomState,
)
from tracekv.seams import GATE_OF, Wait

_READY = {
    Wait.QUEUE_FILLED: lambda state: bool(state.queue),
    Wait.FRAME_ANNOUNCED: lambda state: bool(state.frames),
    Wait.VALUE_CHANGED: lambda state: state.seen is None or state.status is not state.seen,
}

#: What only time or hardware can bring about, and the part of the program that then runs.
_CAUSES = {("S", "timeout"): times_out, ("D", "timeout"): decode_aborts, ("W", "error"): transfer_fails}


@dataclass(frozen=True, slots=True)
class Parked:
    """Where one actor stands: the event that it performs next, and whether it can."""

    action: Action
    ready: bool
    waits: Wait


@dataclass(frozen=True, slots=True)
class Performed:
    """The room after one step and the rows that it left; ``gated`` is the index of the event's own row."""

    state: RoomState
    rows: tuple[Row, ...]
    gated: int | None


def parked(state: RoomState) -> dict[str, Parked]:
    """Every actor that has a next event.  One that is done, dead or only waits for time is not in it."""
    standing = {letter: state.actor(letter) for letter in ACTORS}
    return {
        letter: _parked(state, letter, PROGRAM[actor.at])
        for letter, actor in standing.items()
        if actor.at not in RESTING
    }


def _parked(state: RoomState, letter: str, instruction: Instruction) -> Parked:
    action = Action(letter, instruction.gate, _chunk_at(state, letter, instruction.gate))
    ready = _READY.get(instruction.waits)
    return Parked(action, ready is None or ready(state), instruction.waits)


def _chunk_at(state: RoomState, letter: str, gate: str) -> int | None:
    if gate == Op.CHUNK_DEQUEUED:
        return state.queue[0] if state.queue else None
    if gate in (Op.CHUNK_ENQUEUED, Op.XFER_POSTED, "xfer.settled"):
        return state.actor(letter).chunk
    return None


def enabled(state: RoomState, policy: Policy) -> tuple[Action, ...]:
    """The events that can happen next, in the order S, B, W, D.  Time stands still and nothing breaks."""
    return tuple(each.action for each in parked(state).values() if each.ready)


def outcomes(state: RoomState, policy: Policy) -> tuple[Action, ...]:
    """What time and hardware may still do: the timeouts that the policy arms, a transfer that fails."""
    found = []
    bootstrapping = state.scheduler.at == "sender.poll" and state.status is State.BOOTSTRAPPING
    if policy.bootstrap_timeout and bootstrapping:
        found.append(Action("S", Op.STATUS_CHECKED, cause="timeout"))
    if policy.waiting_timeout and state.decode.at == DECODE_WAITING:
        found.append(Action("D", Op.ABORT_SENT, cause="timeout"))
    if state.worker.at in ("worker.settle_kv", "worker.settle_aux", WORKER_BUSY):
        found.append(Action("W", "xfer.settled", state.worker.chunk, cause="error"))
    return tuple(found)


def step(state: RoomState, action: Action, policy: Policy) -> RoomState:
    """The room after ``action``.

    Raises
    ------
    ValueError
        where the action is not among :func:`enabled` or :func:`outcomes`.
    """
    return perform(state, action, policy).state


def perform(state: RoomState, action: Action, policy: Policy) -> Performed:
    """As :func:`step`, with the rows that the step leaves."""
    if action not in (outcomes if action.cause else enabled)(state, policy):
        raise ValueError(f"{action} cannot happen now; enabled: {enabled(state, policy)}")
    run = Run(state, action.actor, policy)
    body = _CAUSES[action.actor, action.cause] if action.cause else PROGRAM[run.me.at].body
    label = body(run)
    gated = _gated_row(run, action.gate)
    _arrive(run, label)
    return Performed(_after(run), tuple(run.rows), gated)


def _gated_row(run: Run, gate: str) -> int | None:
    """The index of the granted event's own row among the rows of its step."""
    return next((n for n, row in enumerate(run.rows) if GATE_OF.get(row.op) == gate), None)


def _arrive(run: Run, label: str) -> None:
    """The actor reaches its next label; at a loop head it forgets the round that it finished."""
    if label == "worker.idle":
        _back_at_queue(run)
    elif label == "control.idle":
        run.row(Op.CONTROL_WAITING)
        run.me = Actor(label)
    elif label == DEAD:
        run.row(Op.THREAD_DIED, {"last": _last_taken(run)}, reason=run.me.error)
    elif label in RESTING:
        run.me = Actor(label)
    else:
        run.keep(at=label)


def _back_at_queue(run: Run) -> None:
    if run.me.chunk is not None and not run.me.posted:
        run.row(Op.CHUNK_SKIPPED, chunk=run.me.chunk, last=run.last())
    run.row(Op.WORKER_WAITING, {"length": len(run.queue)})
    run.me = Actor("worker.idle")


def _last_taken(run: Run) -> str:
    """The operation that began the round in which a thread died."""
    if run.letter != "B":
        return Op.CHUNK_DEQUEUED if run.letter == "W" else Op.ROOM_OPENED
    before = run.state.bootstrap
    taken = run.state.frames[0] if before.at == "control.idle" else before.at.split(".")[0]
    meta = taken == META or before.want is State.WAITING
    return Op.META_RECEIVED if meta else Op.ABORT_RECEIVED


def _after(run: Run) -> RoomState:
    changed: dict[str, Any] = {FIELD_OF[run.letter]: run.me}
    return replace(
        run.state,
        status=run.status,
        peers=run.peers,
        queue=run.queue,
        frames=run.frames,
        seen=run.seen,
        polled=run.polled,
        **changed,
    )
