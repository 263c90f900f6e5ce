"""Where one room stands on the prefill side: two dictionaries, a queue, a socket, four actors.

Every value is frozen and hashable, and two rooms that can do the same things from now on are
equal: what an actor no longer needs it has forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracekv.event import State

ACTORS: Final = ("S", "B", "W", "D")

#: Labels at which an actor takes no further step of its own.
DONE: Final = "done"
DEAD: Final = "dead"
DECODE_WAITING: Final = "decode.waiting"  # decode sent its metadata and polls; only its timeout acts
WORKER_BUSY: Final = "worker.busy"  # an observed worker is somewhere inside a chunk
RESTING: Final = frozenset({DONE, DEAD, DECODE_WAITING, WORKER_BUSY})

META: Final = "meta"
ABORT: Final = "abort"


@dataclass(frozen=True, slots=True)
class Action:
    """One event that one actor performs.

    ``gate`` is a value of :data:`tracekv.seams.GATE_OF`.  ``cause`` is empty for a step of the
    program, ``timeout`` where only the clock brings it about, ``error`` where a transfer fails.
    """

    actor: str
    gate: str
    chunk: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Actor:
    """The program counter and the locals of one thread.

    ``at`` is a label of :data:`tracekv.machine.program.PROGRAM`.  ``want``, ``read`` and ``back``
    are the frame of a call of ``update_status``; ``chunk`` is the chunk in the worker's hand, or the
    next that the scheduler sends; ``catching``: inside the worker's ``except``; ``posted``: the
    chunk in hand has a transfer; ``left`` counts reads of the peers still to do.  ``error`` is what
    killed it.
    """

    at: str
    want: State | None = None
    read: State | None = None
    back: str = ""
    chunk: int | None = None
    catching: bool = False
    posted: bool = False
    left: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class RoomState:
    """One room.

    ``status`` and ``peers`` are ``request_status[room]`` and whether ``transfer_infos`` holds the
    room; ``queue`` the ordinals of the queued chunks out of ``chunks``; ``frames`` what is on its
    way to the bootstrap thread.  ``seen`` is what the dictionary held when the scheduler last
    polled, ``None`` where it will poll again whatever it holds; ``polled`` the answer it got.
    """

    chunks: int
    aborts: bool
    status: State
    peers: bool
    queue: tuple[int, ...]
    frames: tuple[str, ...]
    seen: State | None
    polled: State | None
    scheduler: Actor
    bootstrap: Actor
    worker: Actor
    decode: Actor

    def actor(self, letter: str) -> Actor:
        """The actor of that letter: S, B, W or D."""
        actor: Actor = getattr(self, FIELD_OF[letter])
        return actor

    @property
    def concluded(self) -> bool:
        """Whether the scheduler has seen a terminal state, and so releases the room."""
        return self.scheduler.at in CONCLUDED

    @property
    def died(self) -> dict[str, str]:
        """The actors that an exception ended, and its class."""
        actors = {letter: self.actor(letter) for letter in ACTORS}
        return {letter: actor.error for letter, actor in actors.items() if actor.at == DEAD}

    @property
    def left(self) -> tuple[str, ...]:
        """What the room left behind although the scheduler has cleared it."""
        if self.scheduler.at != DONE:
            return ()
        status = () if self.status is State.ABSENT else (f"request_status: {self.status.label}",)
        peers = ("transfer_infos",) if self.peers else ()
        return status + peers + (("transfer_queue",) if self.queue else ())


FIELD_OF: Final = {"S": "scheduler", "B": "bootstrap", "W": "worker", "D": "decode"}
CONCLUDED: Final = frozenset({"sender.drop", "sender.forget", DONE})


def opening(*, chunks: int = 2, aborts: bool = True) -> RoomState:
    """A room before anything happened: no sender, no metadata, every thread idle.

    Raises
    ------
    ValueError
        for less than one chunk: a request always sends its last chunk.
    """
    if chunks < 1:
        raise ValueError(f"a room has at least one chunk, not {chunks}")
    return RoomState(
        chunks=chunks,
        aborts=aborts,
        status=State.ABSENT,
        peers=False,
        queue=(),
        frames=(),
        seen=None,
        polled=None,
        scheduler=Actor("sender.open", chunk=0),
        bootstrap=Actor("control.idle"),
        worker=Actor("worker.idle"),
        decode=Actor("decode.meta"),
    )


def observed(
    *,
    status: State,
    peers: bool,
    chunks: int,
    unsent: int = 0,
    queue: tuple[int, ...] = (),
    in_flight: int | None = None,
    worker_idle: bool = True,
    abort_pending: bool = False,
    abort_consumed: bool = False,
    meta_pending: bool = False,
    polled: State | None = None,
    opened: bool = True,
    dead: tuple[str, ...] = (),
) -> RoomState:
    """The room as a trace shows it, with the scheduler at its poll.

    Parameters
    ----------
    chunks, unsent, queue, in_flight
        how many chunks the request has; how many of them (its last ones) are not yet enqueued;
        the ordinals in the queue; the chunk that is posted and not settled.
    worker_idle
        the worker holds no chunk of this room.  ``False`` without ``in_flight`` says that it is
        somewhere inside a chunk: whatever it is at may still raise and write Failed, so such a
        room is never proved to be pinned.
    abort_pending, meta_pending
        a frame that is sent, or may still be, or is being handled, and whose handling has not ended.
    abort_consumed
        an ABORT of this life was handled.  Where it was not and none is pending, decode may
        still send one when its waiting time is over, on builds that arm that timeout.
    polled
        what the scheduler saw last: once it saw WaitingForInput it sends what is unsent.
    opened
        ``False`` before the sender was constructed.
    dead
        letters of threads that have died.

    Raises
    ------
    ValueError
        where the numbers contradict each other.
    """
    if not 0 <= unsent <= chunks or chunks < 1:
        raise ValueError(f"{unsent} of {chunks} chunks cannot be unsent")
    if any(not 0 <= chunk < chunks - unsent for chunk in (*queue, *_maybe(in_flight))):
        raise ValueError(f"queue {queue} and in_flight {in_flight} hold chunks that were not sent")
    frames = ((META,) if meta_pending else ()) + ((ABORT,) if abort_pending else ())
    aborted = abort_pending or abort_consumed
    actors = {
        "scheduler": _observed_scheduler(chunks - unsent, chunks, polled, opened),
        "bootstrap": Actor("control.idle"),
        "worker": _observed_worker(in_flight, worker_idle),
        "decode": Actor(DONE if aborted else DECODE_WAITING),
    }
    for letter in dead:
        actors[FIELD_OF[letter]] = Actor(DEAD, error="observed")
    return RoomState(
        chunks=chunks,
        aborts=aborted,
        status=status,
        peers=peers,
        queue=queue,
        frames=frames,
        seen=None,
        polled=polled,
        **actors,
    )


def _maybe(value: int | None) -> tuple[int, ...]:
    return () if value is None else (value,)


def _observed_scheduler(sent: int, chunks: int, polled: State | None, opened: bool) -> Actor:
    if not opened:
        return Actor("sender.open", chunk=0)
    sending = sent < chunks and (sent > 0 or polled is State.WAITING)
    return Actor("sender.send" if sending else "sender.poll", chunk=sent)


def _observed_worker(in_flight: int | None, idle: bool) -> Actor:
    if in_flight is not None:
        return Actor("worker.settle_kv", chunk=in_flight, posted=True)
    return Actor("worker.idle" if idle else WORKER_BUSY)
