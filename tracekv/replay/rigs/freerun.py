"""Rooms that run freely on the real engine, with aborts at random times: what happens without gates.

Two threads of ours play the scheduler's loop and the decode engine's loop; nothing else is steered.
What became of each room is read from the engine's own dictionaries at the end, never from the trace,
so that it can label one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracekv.event import State
from tracekv.record.recorder import Recorder
from tracekv.replay.rigs.engine import Engine

TICK_S: Final = 0.001
SETTLE_S: Final = 1.0  # how long after the last abort a room may still move before it counts as stuck


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rooms, in batches, of what size, polled how often, and which of them are aborted.

    ``pages`` are those of each chunk.  An aborted room is aborted at a time uniform over
    [0, ``abort_within_s``] after its batch began.  ``poll_s`` is the scheduler's poll interval: a
    scheduler that is busy in forward passes polls slowly, and that makes pins likelier.
    """

    rooms: int = 200
    batch: int = 16
    pages: tuple[int, ...] = (32, 32)
    poll_s: float = 0.05
    aborted_share: float = 1.0
    abort_within_s: float = 0.1
    seed: int = 1


@dataclass(slots=True)
class Fate:
    """What became of one room: what the scheduler saw last, and what the dictionaries hold at the end."""

    room: int
    aborted: bool = False
    polled: State | None = None
    released: bool = False
    status: State = State.ABSENT
    peers: bool = False
    failure: str | None = None

    @property
    def pinned(self) -> bool:
        """Never released, not terminal, and its peers are gone."""
        return not self.released and not self.status.terminal and not self.peers

    @property
    def false_success(self) -> bool:
        """The engine recorded a failure of the room, and its scheduler was told Success."""
        return self.polled is State.SUCCESS and self.failure is not None

    @property
    def ghost(self) -> bool:
        """Released, and yet there are entries."""
        return self.released and (self.status is not State.ABSENT or self.peers)


class _Room:
    def __init__(self, fate: Fate, abort_at: float | None) -> None:
        self.fate = fate
        self.abort_at = abort_at
        self.sender: Any = None
        self.receiver: Any = None
        self.sent = False
        self.decode_done = False


def run_freely(
    engine: Engine, recorder: Recorder, plan: Plan, told: Callable[[int], None] = lambda _: None
) -> list[Fate]:
    """Run all rooms of ``plan`` on a started engine; ``told`` hears the number of rooms done."""
    chance = random.Random(plan.seed)
    fates: list[Fate] = []
    while len(fates) < plan.rooms:
        size = min(plan.batch, plan.rooms - len(fates))
        rooms = [_make_room(chance, plan) for _ in range(size)]
        _batch(engine, recorder, plan, rooms)
        fates += [each.fate for each in rooms]
        told(len(fates))
    for fate in fates:
        _read_fate(engine, fate)
    return fates


def _make_room(chance: random.Random, plan: Plan) -> _Room:
    aborted = chance.random() < plan.aborted_share
    fate = Fate(chance.randrange(2**62, 2**63), aborted)
    return _Room(fate, chance.random() * plan.abort_within_s if aborted else None)


def _batch(engine: Engine, recorder: Recorder, plan: Plan, rooms: list[_Room]) -> None:
    begun = time.monotonic()
    stop = threading.Event()
    decode = threading.Thread(target=_decode, args=(engine, recorder, plan, rooms, begun, stop))
    decode.start()
    _schedule(engine, plan, rooms, begun)
    stop.set()
    decode.join()


def _schedule(engine: Engine, plan: Plan, rooms: list[_Room], begun: float) -> None:
    """The scheduler's loop: make senders, poll them, send what may be sent, release what is terminal."""
    for room in rooms:
        room.sender = engine.sender(room.fate.room)
    deadline = begun + plan.abort_within_s + SETTLE_S
    while time.monotonic() < deadline and not all(room.fate.released for room in rooms):
        for room in rooms:
            if not room.fate.released:
                _poll(engine, plan, room)
        time.sleep(plan.poll_s)
    _until(lambda: not any(len(queue._buf) for queue in engine.prefill.transfer_queues), SETTLE_S)
    for room in rooms:
        if not room.fate.released:
            _poll(engine, plan, room)


def _poll(engine: Engine, plan: Plan, room: _Room) -> None:
    state = State(int(room.sender.poll()))
    room.fate.polled = state
    if state is State.WAITING and not room.sent:
        room.sent = True
        _send(room, plan)
    elif state.terminal:
        _release(room, state)


def _send(room: _Room, plan: Plan) -> None:
    room.sender.init(sum(plan.pages), aux_index=room.fate.room % 60)
    first = 0
    for pages in plan.pages:
        room.sender.send(np.arange(first, first + pages, dtype=np.int32))
        first += pages


def _release(room: _Room, state: State) -> None:
    room.fate.released = True
    if state is State.SUCCESS:
        room.sender.clear()
        return
    try:
        room.sender.failure_exception()
    except Exception:  # that is how the engine hands the reason over
        return


def _decode(
    engine: Engine, recorder: Recorder, plan: Plan, rooms: list[_Room], begun: float, stop: threading.Event
) -> None:
    """The decode engine's loop: announce pages, abort when the client goes away, take notifications."""
    recorder.name_thread("decode")
    for room in rooms:
        room.receiver = engine.receiver(room.fate.room)
        indices = np.arange(sum(plan.pages), dtype=np.int32)
        room.receiver.send_metadata(indices, aux_index=room.fate.room % 60, state_indices=None)
    deadline = begun + plan.abort_within_s + SETTLE_S
    while not all(room.decode_done for room in rooms):
        for room in rooms:
            if not room.decode_done:
                _receive(room, time.monotonic() - begun)
        if stop.is_set() and time.monotonic() > deadline:
            return
        time.sleep(TICK_S)


def _receive(room: _Room, elapsed: float) -> None:
    if room.abort_at is not None and elapsed >= room.abort_at:
        room.receiver.abort()
    if State(int(room.receiver.poll())).terminal:
        room.receiver.clear()
        room.decode_done = True


def _read_fate(engine: Engine, fate: Fate) -> None:
    found = dict.get(engine.prefill.request_status, fate.room)
    fate.status = State.ABSENT if found is None else State(int(found))
    fate.peers = dict.get(engine.prefill.transfer_infos, fate.room) is not None
    fate.failure = dict.get(engine.prefill.failure_records, fate.room)


def _until(condition: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
