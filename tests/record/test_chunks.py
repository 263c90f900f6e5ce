"""Chunks through the queues: their ordinals, which one was last, and which one was skipped."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.recorded import Recorded
from tracekv.event import Event, Op
from tracekv.record.wrap.chunks import ChunkCount, take_queues


@dataclass
class Chunk:
    """As the NIXL releases have it."""

    room: Any
    is_last_chunk: bool = False
    prefill_kv_indices: Any = field(default_factory=lambda: [1, 2, 3])


@dataclass
class OlderChunk:
    """Mooncake's own, up to 0.5.11."""

    room: Any
    is_last: bool = False


class SealedChunk:
    """Takes no mark."""

    __slots__ = ("is_last_chunk", "prefill_kv_indices", "room")

    def __init__(self, room: int) -> None:
        self.room, self.is_last_chunk, self.prefill_kv_indices = room, True, None


class FastQueue:
    """The engine's queue: a deque and a condition, ``get`` blocks."""

    def __init__(self) -> None:
        self._buf: deque[Any] = deque()
        self._cond = threading.Condition()

    def put(self, item: Any) -> None:
        with self._cond:
            self._buf.append(item)
            self._cond.notify()

    def get(self) -> Any:
        with self._cond:
            while not self._buf:
                self._cond.wait()
            return self._buf.popleft()


class Worker:
    """Two queues that are recorded, and a thread that does with each chunk what it is told."""

    def __init__(self, *, posts_seen: bool = True) -> None:
        self.recorder = Recorded()
        self.count = ChunkCount()
        self.queues = take_queues(
            [FastQueue(), FastQueue()], self.recorder, 0, self.count, lambda: posts_seen
        )

    def run(self, *chunks: Any, posting: tuple[int, ...] = ()) -> list[Event]:
        """Put all, let a worker take all, and wait for it; it posts for the chunks at these places."""
        for chunk in chunks:
            self.queues[1].put(chunk)
        self.queues[1].put(None)  # the engine's own way to end a worker
        thread = threading.Thread(target=self._work, args=(posting,))
        thread.start()
        thread.join(10)
        assert not thread.is_alive() and not self.error
        return self.recorder.rows

    error: BaseException | None = None

    def _work(self, posting: tuple[int, ...]) -> None:
        try:
            place = 0
            while (self.queues[1].get()) is not None:
                self.recorder.here.posted += place in posting
                place += 1
        except BaseException as error:
            self.error = error


def told(rows: list[Event], op: str) -> list[tuple[Any, ...]]:
    return [(row.room, row.chunk, row.last) for row in rows if row.op == op]


def test_ordinals_and_the_last_one() -> None:
    rows = Worker().run(Chunk(5), Chunk(6), Chunk(5), Chunk(6, True), Chunk(5, True))
    expected = [(5, 0, False), (6, 0, False), (5, 1, False), (6, 1, True), (5, 2, True)]
    assert told(rows, Op.CHUNK_ENQUEUED) == expected
    assert told(rows, Op.CHUNK_DEQUEUED) == expected
    sizes = [row.attrs for row in rows if row.op in (Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED)]
    assert set(sizes) == {'{"pages":3,"queue":1}'}


def test_skipped_is_what_the_worker_posted_nothing_for() -> None:
    rows = Worker().run(Chunk(5), Chunk(5), Chunk(6), Chunk(5, True), posting=(0, 2))
    assert told(rows, Op.CHUNK_SKIPPED) == [(5, 1, False), (5, 2, True)]
    later = [row.op for row in rows if row.thread == "worker-1"]
    assert later[-2:] == [Op.CHUNK_SKIPPED, Op.WORKER_WAITING]


def test_nothing_is_called_skipped_where_posts_are_not_seen() -> None:
    assert told(Worker(posts_seen=False).run(Chunk(5, True)), Op.CHUNK_SKIPPED) == []


def test_the_worker_is_back_at_its_queue() -> None:
    rows = Worker().run(Chunk(5), Chunk(5, True), posting=(0, 1))
    waiting = [row for row in rows if row.op == Op.WORKER_WAITING]
    told = [(row.room, row.attr("queue"), row.attr("length")) for row in waiting]
    assert told == [(None, 1, 3), (None, 1, 2), (None, 1, 1)]
    assert {row.thread for row in waiting} == {"worker-1"}


def test_a_room_that_is_used_again_counts_from_zero() -> None:
    worker = Worker()
    worker.run(Chunk(5), Chunk(5))  # aborted: its last chunk never comes
    worker.count.forget(5)
    worker.run(Chunk(5), Chunk(5, True))
    worker.run(Chunk(5))
    assert [chunk for _, chunk, _ in told(worker.recorder.rows, Op.CHUNK_ENQUEUED)] == [0, 1, 0, 1, 0]


def test_older_and_sealed_chunks() -> None:
    worker = Worker()
    rows = worker.run(OlderChunk(5), OlderChunk(5, True), SealedChunk(6))
    assert told(rows, Op.CHUNK_ENQUEUED) == [(5, 0, False), (5, 1, True), (6, 0, True)]
    assert told(rows, Op.CHUNK_DEQUEUED) == [(5, 0, False), (5, 1, True), (6, None, True)]
    assert any("tracekv_ordinal" in trouble for trouble in worker.recorder.troubles)


@pytest.mark.parametrize("room", [None, "a room", -1, 2**64])
def test_what_is_no_chunk_of_a_room_passes(room: Any) -> None:
    worker = Worker()
    rows = worker.run(Chunk(room), Chunk(5, True, prefill_kv_indices=7))
    assert told(rows, Op.CHUNK_ENQUEUED) == [(5, 0, True)]
    assert len(worker.recorder.troubles) == 2  # a number has no length, at the put and at the get


def test_many_threads_number_the_chunks_of_one_room_once() -> None:
    count, found = ChunkCount(), [[] for _ in range(8)]  # type: ignore[var-annotated]

    def play(mine: list[int]) -> None:
        mine.extend(count.number(1, False) for _ in range(2000))

    threads = [threading.Thread(target=play, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for mine in found for number in mine) == list(range(16000))
