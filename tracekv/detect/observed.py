"""From a life's rows to the machine's view of the room: what is recorded, and what may still come.

The promise: whatever the rows leave open is handed to the machine as *may still happen*, so that a
proof never rests on something that was not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekv.detect.context import Context
from tracekv.event import Event, Op, State
from tracekv.machine import RoomState, observed
from tracekv.rooms import Life, partners
from tracekv.rooms.life import as_state
from tracekv.rooms.outstanding import chunk_in_flight, queued_chunks


@dataclass(frozen=True)
class Sighting:
    """The observed facts about one prefill life, in the words of the room."""

    status: State
    peers: bool
    enqueued: int
    all_sent: bool
    queue: tuple[int, ...]
    in_flight: int | None
    worker_idle: bool
    meta_pending: bool
    abort_pending: bool
    abort_consumed: bool
    polled: State | None
    dead: tuple[str, ...]

    def room_state(self) -> RoomState:
        """The machine's room; raises ValueError where the rows contradict each other."""
        unsent = 0 if self.all_sent else 1
        return observed(
            status=self.status,
            peers=self.peers,
            chunks=max(1, self.enqueued + unsent),
            unsent=unsent,
            queue=self.queue,
            in_flight=self.in_flight,
            worker_idle=self.worker_idle,
            abort_pending=self.abort_pending,
            abort_consumed=self.abort_consumed,
            meta_pending=self.meta_pending,
            polled=self.polled,
            dead=self.dead,
        )


def sight(life: Life, context: Context) -> Sighting:
    """Everything that the machine wants to know about ``life`` at the end of the trace."""
    enqueued = [row for row in life.body if row.op == Op.CHUNK_ENQUEUED]
    abort_busy, meta_busy = frames_in_hand(life, context)
    aborted = _aborts_received(life) and not abort_busy
    return Sighting(
        status=life.state,
        peers=peers_present(life),
        enqueued=len(enqueued),
        all_sent=any(row.last for row in enqueued),
        queue=queued_chunks(life.body),
        in_flight=chunk_in_flight(life.body),
        worker_idle=worker_idle(life, context),
        meta_pending=meta_busy or not _meta_complete(life),
        abort_pending=abort_busy or (_abort_on_its_way(life, context) and not aborted),
        abort_consumed=aborted,
        polled=life.polled,
        dead=_dead(life, context),
    )


def peers_present(life: Life) -> bool:
    """Whether ``transfer_infos`` still holds the room."""
    for row in reversed(life.events):
        if row.op == Op.PEER_POPPED:
            return False
        if row.op == Op.PEER_ADDED:
            return True
    return False


def unfinished(life: Life, context: Context) -> str | None:
    """What a thread still had in hand for a life that is over, in words."""
    if life.outstanding is not None:
        return life.outstanding
    if not worker_idle(life, context):
        return "a worker was still inside a chunk"
    if any(frames_in_hand(life, context)):
        return "the bootstrap thread was still inside a frame"
    return None


def _last_of_thread(life: Life, prefix: str) -> Event | None:
    return next((row for row in reversed(life.events) if (row.thread or "").startswith(prefix)), None)


def worker_idle(life: Life, context: Context) -> bool:
    """The worker went on: back at its queue, or at another room."""
    last = _last_of_thread(life, "worker")
    if last is None or last.op == Op.CHUNK_SKIPPED or last.thread is None:
        return True
    return context.went_on(life.process, last.thread, last.seq)


def frames_in_hand(life: Life, context: Context) -> tuple[bool, bool]:
    """Whether the bootstrap thread may still be inside this life's last (ABORT, metadata) frame."""
    last = _last_of_thread(life, "bootstrap")
    if last is None or context.went_on(life.process, "bootstrap", last.seq):
        return False, False
    frames = (row for row in reversed(life.events) if row.op in (Op.META_RECEIVED, Op.ABORT_RECEIVED))
    frame = next(frames, None)
    is_abort = frame is not None and frame.op == Op.ABORT_RECEIVED
    return is_abort, not is_abort


def _aborts_received(life: Life) -> bool:
    """Every peer that may send an ABORT has sent one."""
    aborts = sum(row.op == Op.ABORT_RECEIVED for row in life.events)
    peers = {row.peer for row in life.events if row.op == Op.PEER_ADDED and row.peer is not None}
    return aborts >= max(1, len(peers))


def _meta_complete(life: Life) -> bool:
    """The bootstrap thread asked for WaitingForInput: it does so once all metadata is there."""
    asked = (Op.STATUS_WRITTEN, Op.STATUS_REFUSED)
    return any(
        row.thread == "bootstrap" and row.op in asked and State.WAITING in (row.requested, as_state(row.new))
        for row in life.events
    )


def _abort_on_its_way(life: Life, context: Context) -> bool:
    """Some decode side has sent an ABORT, or one of several peers still may."""
    if life.has(Op.ABORT_RECEIVED):
        return True
    others = partners(life, context.rooms[life.room]).lives
    return any(other.has(Op.ABORT_SENT) for other in others)


def _dead(life: Life, context: Context) -> tuple[str, ...]:
    """The letters of this room's threads that died."""
    queues = {row.attr("queue", 0) for row in life.events if row.op == Op.CHUNK_ENQUEUED}
    workers = {row.thread for row in life.events if (row.thread or "").startswith("worker")}
    workers |= {f"worker-{queue}" for queue in queues}
    tails = context.tails.items()
    dead = {thread for (process, thread), tail in tails if process == life.process and tail.died}
    letters = (("B", {"bootstrap"}), ("W", workers))
    return tuple(letter for letter, threads in letters if threads & dead)
