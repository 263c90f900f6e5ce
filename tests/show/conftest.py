"""Rooms to draw, with times as an engine has them: microseconds, milliseconds, seconds of silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tracekv.event import Event, Op, State
from tracekv.finding import Finding, Step
from tracekv.rooms import Room, lives_of

EPOCH = 1_772_366_401_234_567_000
ROOM = 6_917_529_027_641_081_857
US, MS, S = 1_000, 1_000_000, 1_000_000_000


@dataclass(frozen=True)
class Manager:
    role: str


MANAGERS = {("p-0", 0): Manager("prefill"), ("d-0", 0): Manager("decode")}


@dataclass
class Pen:
    """Writes rows of a prefill process ``p-0`` and a decode process ``d-0``; the clock moves by hand."""

    now: int = 0
    skew: int = 0  # of decode's clocks
    rows: list[Event] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def __call__(self, who: str, op: str, after: int = 4 * US, **columns: Any) -> Event:
        self.now += after
        process = "d-0" if who.startswith("d.") else "p-0"
        seq = self.seqs[process] = self.seqs.get(process, 0) + 1
        late = self.skew if process == "d-0" else 0
        attrs = columns.pop("attrs", None)
        event = Event(
            seq=seq,
            op=op,
            process=process,
            manager=0,
            thread=who.removeprefix("d."),
            mono_ns=self.now + late,
            wall_ns=EPOCH + self.now + late,
            room=None if op in (Op.WORKER_WAITING, Op.CONTROL_WAITING) else ROOM,
            attrs=json.dumps(attrs) if attrs else None,
            **columns,
        )
        self.rows.append(event)
        return event

    def write(self, who: str, state: int, after: int = 4 * US) -> Event:
        side = "d" if who.startswith("d.") else "p"
        old, self.held[side] = self.held.get(side, -1), int(state)
        return self(who, Op.STATUS_WRITTEN, after, requested=int(state), old=old, new=int(state))

    def drop(self, who: str) -> Event:
        return self(who, Op.STATUS_DROPPED, old=self.held.pop("d" if who.startswith("d.") else "p", -1))

    def clear(self, who: str, after: int) -> None:
        self.now += after
        self.drop(who)
        if not who.startswith("d."):
            self(who, Op.PEER_POPPED, attrs={"had": False})
        self(who, Op.ROOM_CLEARED)

    def room(self) -> Room:
        rows = sorted(self.rows, key=lambda e: (e.process, e.seq))
        return Room(ROOM, tuple(lives_of(rows, MANAGERS)))


def opening(pen: Pen, chunks: int = 2) -> None:
    """Both sides open, metadata arrives, the scheduler enqueues its chunks."""
    pen("d.scheduler", Op.ROOM_OPENED)
    pen.write("d.scheduler", State.BOOTSTRAPPING)
    pen("scheduler", Op.ROOM_OPENED, 310 * US)
    pen.write("scheduler", State.BOOTSTRAPPING)
    pen.write("d.scheduler", State.WAITING, 40 * US)
    pen("d.scheduler", Op.META_SENT, 45 * US, peer="10.0.0.7:8998")
    pen("bootstrap", Op.META_RECEIVED, 120 * US)
    pen("bootstrap", Op.PEER_ADDED)
    pen("bootstrap", Op.PEER_ADDED, peer="d0")
    pen("bootstrap", Op.STATUS_CHECKED, old=1, attrs={"call": "in"})
    pen.write("bootstrap", State.WAITING)
    pen("scheduler", Op.POLL_CHANGED, 230 * US, old=1, new=2)
    for chunk in range(chunks):
        last = chunk == chunks - 1
        pen("scheduler", Op.CHUNK_ENQUEUED, 18 * MS, chunk=chunk, last=last, attrs={"pages": 32, "queue": 1})


def send(pen: Pen, chunk: int, last: bool, took: int = 4 * MS, worker: str = "worker-1") -> None:
    """One chunk goes as it should."""
    pen(worker, Op.CHUNK_DEQUEUED, 20 * US, chunk=chunk, last=last)
    pen(worker, Op.PEER_CHECKED, attrs={"call": "in", "found": True})
    pen(worker, Op.STATUS_CHECKED, old=2)
    pen.write(worker, State.TRANSFERRING)
    pen(worker, Op.XFER_POSTED, 60 * US, chunk=chunk, handle=chunk, bytes=8 << 20)
    pen(worker, Op.XFER_DONE, took, chunk=chunk, handle=chunk)


def pinned(skew: int = 0) -> Pen:
    """The twelve steps: an abort lands in the transfer of c0, and the worker lifts Failed to Transferring."""
    pen = Pen(skew=skew)
    opening(pen)
    pen("worker-1", Op.CHUNK_DEQUEUED, 20 * US, chunk=0, last=False)
    pen("worker-1", Op.PEER_CHECKED, attrs={"call": "in", "found": True})
    pen("worker-1", Op.STATUS_CHECKED, old=2)
    pen.write("worker-1", State.TRANSFERRING)
    pen("worker-1", Op.PEER_CHECKED, attrs={"call": "get", "found": True})
    pen("worker-1", Op.XFER_POSTED, 60 * US, chunk=0, handle=0, bytes=8 << 20)
    pen("d.scheduler", Op.ABORT_REQUESTED, 900 * US)
    pen.write("d.scheduler", State.FAILED)
    pen("d.scheduler", Op.ABORT_SENT, 30 * US, peer="10.0.0.7:8998")
    pen("bootstrap", Op.ABORT_RECEIVED, 110 * US)
    pen("bootstrap", Op.STATUS_CHECKED, old=3, attrs={"call": "in"})
    pen("bootstrap", Op.FAILURE_RECORDED, reason="aborted by decode")
    pen.write("bootstrap", State.FAILED)
    pen("bootstrap", Op.PEER_POPPED, attrs={"had": True})
    pen("bootstrap", Op.PREFIX_POPPED)
    pen.clear("d.scheduler", 150 * US)
    pen("worker-1", Op.XFER_DONE, 3 * MS, chunk=0, handle=0)
    pen.write("worker-1", State.TRANSFERRING)
    pen("worker-1", Op.CHUNK_DEQUEUED, 25 * US, chunk=1, last=True)
    pen("worker-1", Op.PEER_CHECKED, attrs={"call": "in", "found": False})
    pen("worker-1", Op.CHUNK_SKIPPED, chunk=1, last=True)
    pen("worker-1", Op.WORKER_WAITING, attrs={"queue": 1, "length": 0})
    pen("bootstrap", Op.CONTROL_WAITING)
    pen("scheduler", Op.STATUS_CHECKED, 2 * MS, old=3, attrs={"call": "poll"})
    pen("scheduler", Op.STATUS_CHECKED, 61 * S, old=3, attrs={"call": "poll"})
    return pen


def healthy() -> Pen:
    """Two chunks, Success, both sides cleared."""
    pen = Pen()
    opening(pen)
    send(pen, 0, False)
    send(pen, 1, True, 2 * MS)
    pen.write("worker-1", State.SUCCESS)
    pen("worker-1", Op.PEER_POPPED, attrs={"had": True})
    pen("d.decode", Op.NOTIF_RECEIVED, 80 * US, peer="p0")
    pen("d.scheduler", Op.CONCLUDE_SET, 200 * US, new=4)
    pen("scheduler", Op.POLL_CHANGED, 500 * US, old=3, new=4)
    pen.clear("scheduler", 10 * US)
    pen.clear("d.scheduler", 700 * US)
    return pen


def aborted() -> Pen:
    """An abort between the chunks: Failed stays, the last chunk is skipped, everybody clears."""
    pen = Pen()
    opening(pen)
    send(pen, 0, False)
    pen("d.scheduler", Op.ABORT_REQUESTED, 900 * US)
    pen.write("d.scheduler", State.FAILED)
    pen("d.scheduler", Op.ABORT_SENT, 30 * US)
    pen("bootstrap", Op.ABORT_RECEIVED, 110 * US)
    pen.write("bootstrap", State.FAILED)
    pen("bootstrap", Op.PEER_POPPED, attrs={"had": True})
    pen("worker-1", Op.CHUNK_DEQUEUED, 2 * MS, chunk=1, last=True)
    pen("worker-1", Op.CHUNK_SKIPPED, chunk=1, last=True)
    pen("scheduler", Op.POLL_CHANGED, 1 * MS, old=3, new=0)
    pen.clear("scheduler", 10 * US)
    pen.clear("d.scheduler", 30 * US)
    return pen


def unfinished() -> Pen:
    """The trace ends while c1 is on its way."""
    pen = Pen()
    opening(pen)
    send(pen, 0, False)
    pen("worker-1", Op.CHUNK_DEQUEUED, 20 * US, chunk=1, last=True)
    pen.write("worker-1", State.TRANSFERRING)
    pen("worker-1", Op.XFER_POSTED, 60 * US, chunk=1, handle=1, bytes=8 << 20)
    return pen


def long() -> Pen:
    """About five hundred rows: fifty chunks with all their reads."""
    pen = Pen()
    opening(pen, 50)
    for chunk in range(50):
        send(pen, chunk, chunk == 49, (3 + chunk % 5) * MS)
        pen("scheduler", Op.STATUS_CHECKED, old=3, attrs={"call": "poll"})
        pen("scheduler", Op.STATUS_CHECKED, 700 * US, old=3, attrs={"call": "poll"})
    pen.write("worker-1", State.SUCCESS)
    pen("scheduler", Op.POLL_CHANGED, 500 * US, old=3, new=4)
    pen.clear("scheduler", 10 * US)
    return pen


def short() -> Pen:
    """Five rows, prefill only."""
    pen = Pen()
    pen("scheduler", Op.ROOM_OPENED)
    pen.write("scheduler", State.BOOTSTRAPPING)
    pen("bootstrap", Op.META_RECEIVED, 3 * MS)
    pen("bootstrap", Op.PEER_ADDED)
    pen.write("bootstrap", State.WAITING)
    return pen


HISTORIES = {
    "pinned": pinned,
    "healthy": healthy,
    "aborted": aborted,
    "unfinished": unfinished,
    "long": long,
    "short": short,
}


def found_in(pen: Pen) -> list[Finding]:
    """What the detectors say about :func:`pinned`, with a story of five steps."""
    rows = [row for row in pen.rows if row.process == "p-0"]

    def pick(op: str, **columns: Any) -> Event:
        return next(r for r in rows if r.op == op and all(getattr(r, k) == v for k, v in columns.items()))

    told = (
        (pick(Op.ABORT_RECEIVED), "the bootstrap thread receives an ABORT for the room", False),
        (pick(Op.STATUS_WRITTEN, new=0), "the bootstrap thread stores Failed over Transferring", True),
        (pick(Op.PEER_POPPED), "the bootstrap thread removes the peer metadata", True),
        (pick(Op.STATUS_WRITTEN, old=0, new=3), "worker 1 stores Transferring over Failed", True),
        (pick(Op.CHUNK_SKIPPED), "worker 1 skips the last chunk and stores nothing", True),
    )
    story = tuple(Step(n, row, text, decisive) for n, (row, text, decisive) in enumerate(told, 1))
    decisive = tuple(step.event.seq for step in story if step.decisive)
    about: dict[str, Any] = {"certainty": "proof", "room": ROOM, "incarnation": 0, "process": "p-0"}
    about |= {"manager": 0, "role": "prefill", "ranks": (0,), "state": State.TRANSFERRING}
    about |= {"queue": "inflight queue", "blocked_on": "peer metadata", "story": story, "decisive": decisive}
    lifted, skipped = story[3].event, story[4].event
    return [
        Finding(id="r", kind="resurrection", since=lifted, claim="Failed was overwritten", **about),
        Finding(id="p", kind="pinned", since=skipped, claim="nothing can end this room", **about),
    ]


@pytest.fixture
def history() -> Callable[[str], Pen]:
    """A history by its name."""
    return lambda name: HISTORIES[name]()


@pytest.fixture
def findings() -> Callable[[Pen], list[Finding]]:
    return found_in
