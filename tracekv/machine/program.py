"""The four programs: for each label the gate before its event, and what the event does.

A label names the one event that its actor performs next.  The function beside it performs that
event on a :class:`~tracekv.machine.run.Run`, and all code up to the next gate, and returns the next
label.  The order of the labels of an actor is the order of the lines in SGLang's own source; what
a build does otherwise is asked of the :class:`~tracekv.machine.policy.Policy`, nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tracekv.event import Op, State
from tracekv.machine.policy import Abort, Guard, Merge
from tracekv.machine.run import Run
from tracekv.machine.state import ABORT, DECODE_WAITING, DONE, META
from tracekv.seams import Wait

Body = Callable[[Run], str]


@dataclass(frozen=True, slots=True)
class Instruction:
    """The gate before one event, what a parked actor waits for there, and the event."""

    gate: str
    body: Body
    waits: Wait = Wait.NOTHING


PROGRAM: Final[dict[str, Instruction]] = {}


def _at(label: str, gate: str, waits: Wait = Wait.NOTHING) -> Callable[[Body], Body]:
    def enter(body: Body) -> Body:
        PROGRAM[label] = Instruction(gate, body, waits)
        return body

    return enter


# -- update_status, called by every thread of the prefill side


@_at("update.override", Op.STATUS_CHECKED)
def _override(run: Run) -> str:
    return run.refused() if run.check_status("get") is State.FAILED else "update.find"


@_at("update.find", Op.STATUS_CHECKED)
def _find(run: Run) -> str:
    want = run.me.want
    if run.check_status("in") is State.ABSENT:
        run.keep(read=State.ABSENT)
        return "update.store" if want in run.policy.creates else run.refused()
    if want is State.FAILED and run.policy.merge is not Merge.TERMINAL_STICKY:
        run.keep(read=State.FAILED)  # Failed overwrites, whatever is there
        return "update.store"
    return "update.read"


@_at("update.read", Op.STATUS_CHECKED)
def _read(run: Run) -> str:
    status = run.check_status("get")
    if status is State.ABSENT:
        return run.raises("KeyError")
    if run.policy.merge is Merge.TERMINAL_STICKY and status.terminal:
        return run.refused()
    run.keep(read=status)
    return "update.store"


@_at("update.store", Op.STATUS_WRITTEN)
def _store(run: Run) -> str:
    want, read = run.me.want, run.me.read
    assert want is not None and read is not None
    new = want if want is State.FAILED else max(read, want)
    run.row(Op.STATUS_WRITTEN, requested=int(want), old=int(run.status), new=int(new))
    run.status = new
    return run.returns()


# -- S: the scheduler's sender, from its constructor to clear()


@_at("sender.open", Op.STATUS_CHECKED)
def _open(run: Run) -> str:
    run.row(Op.ROOM_OPENED)
    return PROGRAM[run.update(State.BOOTSTRAPPING, "sender.poll")].body(run)


@_at("sender.poll", Op.STATUS_CHECKED, Wait.VALUE_CHANGED)
def _poll(run: Run) -> str:
    status = run.check_status("poll")
    answer = run.policy.absent_reads if status is State.ABSENT else status
    if answer is None:
        return run.raises("KeyError")
    run.seen = status
    _polled(run, answer)
    if answer is State.WAITING and run.chunk() < run.state.chunks:
        return "sender.send"
    return _concludes(run) if answer.terminal else "sender.poll"


def _polled(run: Run, answer: State) -> None:
    if answer is not run.polled:
        old = None if run.polled is None else int(run.polled)
        run.row(Op.POLL_CHANGED, old=old, new=int(answer))
    run.polled = answer


def _concludes(run: Run) -> str:
    if run.polled is State.FAILED:
        run.row(Op.CONCLUDE_SET, new=int(State.FAILED))
    return "sender.drop"


@_at("sender.send", Op.CHUNK_ENQUEUED)
def _send(run: Run) -> str:
    chunk, last = run.chunk(), run.last()
    run.row(Op.CHUNK_ENQUEUED, chunk=chunk, last=last)
    run.queue += (chunk,)
    run.keep(chunk=chunk + 1)
    run.seen = None  # the inflight queue polls it afresh
    return "sender.poll" if last else "sender.send"


@_at("sender.drop", Op.STATUS_DROPPED)
def _drop(run: Run) -> str:
    run.row(Op.STATUS_DROPPED, old=int(run.status))
    run.status = State.ABSENT
    run.row(Op.PREFIX_POPPED)
    return "sender.forget"


@_at("sender.forget", Op.PEER_POPPED)
def _forget(run: Run) -> str:
    run.pop_peers()
    run.row(Op.ROOM_CLEARED)
    return DONE


def times_out(run: Run) -> str:
    """The sender's poll finds the room Bootstrapping for too long: it writes and answers Failed."""
    run.check_status("poll")
    run.row(Op.FAILURE_RECORDED, reason="timed out in KVPoll.Bootstrapping")
    _polled(run, State.FAILED)
    return run.update(State.FAILED, "sender.drop")


# -- B: the bootstrap thread


@_at("control.idle", "control.in", Wait.FRAME_ANNOUNCED)
def _receive(run: Run) -> str:
    frame, run.frames = run.frames[0], run.frames[1:]
    if frame == META:
        run.row(Op.META_RECEIVED)
        return "meta.find"
    run.row(Op.ABORT_RECEIVED)
    return run.raises("AssertionError") if run.policy.abort is Abort.DIES else "abort.find"


@_at("meta.find", Op.PEER_CHECKED)
def _meta_find(run: Run) -> str:
    run.keep(left=run.policy.peer_reads)
    return "meta.read" if run.check_peers("in") else "meta.enter"


@_at("meta.enter", Op.PEER_ADDED)
def _meta_enter(run: Run) -> str:
    run.row(Op.PEER_ADDED, peer=None)
    run.peers = True
    return "meta.read"


@_at("meta.read", Op.PEER_CHECKED)
def _meta_read(run: Run) -> str:
    if not run.check_peers("get"):
        return run.raises("KeyError")
    if run.me.left == run.policy.peer_reads:
        run.row(Op.PEER_ADDED, peer="decode")
    run.keep(left=run.me.left - 1)
    if run.me.left:
        return "meta.read"
    run.row(Op.PREFIX_ADDED)
    return run.update(State.WAITING, "control.idle")


@_at("abort.find", Op.STATUS_CHECKED)
def _abort_find(run: Run) -> str:
    return _abort_ends(run) if run.check_status("in") is State.ABSENT else "abort.check"


@_at("abort.check", Op.STATUS_CHECKED)
def _abort_check(run: Run) -> str:
    answer = run.answer()
    if answer is None:
        return run.raises("KeyError")
    if answer is State.SUCCESS:
        return _abort_ends(run)
    run.row(Op.FAILURE_RECORDED, reason="Aborted by decode")
    return run.update(State.FAILED, _abort_ends(run))


def _abort_ends(run: Run) -> str:
    return "abort.pop" if run.policy.abort_pops else "control.idle"


@_at("abort.pop", Op.PEER_POPPED)
def _abort_pop(run: Run) -> str:
    run.pop_peers()
    run.row(Op.PREFIX_POPPED)
    return "control.idle"


# -- W: the transfer worker

_GUARD_OPENS: Final = {
    Guard.ASSERT: "worker.check",
    Guard.PEERS: "worker.find_peers",
    Guard.STATUS: "worker.find_status",
}


@_at("worker.idle", Op.CHUNK_DEQUEUED, Wait.QUEUE_FILLED)
def _dequeue(run: Run) -> str:
    chunk, run.queue = run.queue[0], run.queue[1:]
    run.keep(chunk=chunk)
    run.row(Op.CHUNK_DEQUEUED, chunk=chunk, last=run.last())
    return _GUARD_OPENS[run.policy.guard]


@_at("worker.find_peers", Op.PEER_CHECKED)
def _guard_peers(run: Run) -> str:
    return "worker.check" if run.check_peers("in") else _skips(run)


@_at("worker.find_status", Op.STATUS_CHECKED)
def _guard_status(run: Run) -> str:
    return _skips(run) if run.check_status("in") is State.ABSENT else "worker.check"


@_at("worker.check", Op.STATUS_CHECKED)
def _guard_check(run: Run) -> str:
    answer = run.answer()
    if answer is None:
        return run.raises("KeyError")
    if answer is State.FAILED:
        return _skips(run)
    return "worker.assert" if run.policy.guard is Guard.ASSERT else _starts(run)


@_at("worker.assert", Op.PEER_CHECKED)
def _guard_assert(run: Run) -> str:
    return _starts(run) if run.check_peers("in") else run.raises("AssertionError")


def _skips(run: Run) -> str:
    return "worker.skip" if run.policy.skip_concludes else "worker.idle"


@_at("worker.skip", Op.STATUS_CHECKED)
def _skip_concludes(run: Run) -> str:
    answer = run.answer()
    if answer is None:
        return run.raises("KeyError")
    if answer.terminal:
        return "worker.idle"
    run.row(Op.FAILURE_RECORDED, reason="KV transfer aborted before completion")
    return run.update(State.FAILED, "worker.idle")


def _starts(run: Run) -> str:
    if run.policy.transferring:
        return run.update(State.TRANSFERRING, "worker.snapshot")
    return "worker.snapshot"


@_at("worker.snapshot", Op.PEER_CHECKED)
def _snapshot(run: Run) -> str:
    return "worker.post_kv" if run.check_peers("get") else run.raises("KeyError")


@_at("worker.post_kv", Op.XFER_POSTED)
def _post_kv(run: Run) -> str:
    run.row(Op.XFER_POSTED, {"part": "kv"}, chunk=run.chunk(), last=run.last())
    run.keep(posted=True)
    return "worker.post_aux" if run.last() else "worker.settle_kv"


@_at("worker.post_aux", Op.XFER_POSTED)
def _post_aux(run: Run) -> str:
    run.row(Op.XFER_POSTED, {"part": "aux"}, chunk=run.chunk(), last=True)
    return "worker.settle_kv"


@_at("worker.settle_kv", "xfer.settled", Wait.TRANSFER_SETTLED)
def _settle_kv(run: Run) -> str:
    run.row(Op.XFER_DONE, {"part": "kv"}, chunk=run.chunk(), last=run.last())
    if run.last():
        return "worker.settle_aux"
    return run.update(State.TRANSFERRING, "worker.idle") if run.policy.transferring else "worker.idle"


@_at("worker.settle_aux", "xfer.settled", Wait.TRANSFER_SETTLED)
def _settle_aux(run: Run) -> str:
    run.row(Op.XFER_DONE, {"part": "aux"}, chunk=run.chunk(), last=True)
    return run.update(State.SUCCESS, "worker.pop" if run.policy.success_pops else "worker.idle")


@_at("worker.pop", Op.PEER_POPPED)
def _worker_pop(run: Run) -> str:
    run.pop_peers()
    run.row(Op.PREFIX_POPPED)
    return "worker.idle"


def transfer_fails(run: Run) -> str:
    """The transport reports an error for the transfer that the worker waits for."""
    if run.me.chunk is not None:
        part = "aux" if run.me.at == "worker.settle_aux" else "kv"
        run.row(Op.XFER_FAILED, {"part": part}, chunk=run.chunk(), last=run.last(), reason="transport error")
    return run.fails("transport error")


# -- D: the decode engine


@_at("decode.meta", Op.META_SENT)
def _meta_sent(run: Run) -> str:
    run.row(Op.META_SENT)
    run.frames += (META,)
    return "decode.abort" if run.state.aborts else DECODE_WAITING


@_at("decode.abort", Op.ABORT_SENT)
def decode_aborts(run: Run) -> str:
    """Decode gives the room up, by its client's wish or because it waited too long."""
    run.row(Op.ABORT_SENT)
    run.frames += (ABORT,)
    return DONE
