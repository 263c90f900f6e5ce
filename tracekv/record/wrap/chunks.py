"""The chunk queues between the scheduler and the transfer workers.

Put and get are replaced on each queue object.  A worker that comes back for the next chunk without
having posted anything for the last one has skipped it; that it is back at all is a row of its own,
because it is what proves that nothing more will come.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tracekv.event import Op
from tracekv.record.recorder import Here, Recorder, as_room, to_json


class ChunkCount:
    """Numbers the chunks of each open room: the ordinal is ours, since newer releases have no id."""

    def __init__(self) -> None:
        self._counts: dict[int, Iterator[int]] = {}

    def number(self, room: int, last: bool) -> int:
        """The ordinal of the next chunk of ``room``; the last one ends the count."""
        ordinal = next(self._counts.setdefault(room, itertools.count()))
        if last:
            self.forget(room)
        return ordinal

    def forget(self, room: int) -> None:
        """The room ends, or a new life of it begins: its chunks count from 0 again."""
        self._counts.pop(room, None)


def take_queues(
    queues: Sequence[Any],
    recorder: Recorder,
    manager: int,
    count: ChunkCount,
    posts_seen: Callable[[], bool] = lambda: True,
) -> Any:
    """Record puts and gets of every queue in the list; gives the same list back.

    ``posts_seen`` says whether a transfer posted by a worker would be recorded: where it would not,
    nobody can say that a chunk was skipped.
    """
    for index, queue in enumerate(queues):
        _take_put(queue, index, recorder, manager, count)
        _take_get(queue, index, recorder, manager, posts_seen)
    return queues


def _take_put(queue: Any, index: int, recorder: Recorder, manager: int, count: ChunkCount) -> None:
    put = queue.put

    def recorded_put(chunk: Any, *args: Any, **kwargs: Any) -> Any:
        room = as_room(getattr(chunk, "room", None))
        if room is None:
            return put(chunk, *args, **kwargs)
        last = is_last(chunk)
        ordinal = count.number(room, last)
        recorder.tell(_mark, chunk, ordinal)
        attrs = recorder.tell(_size, chunk, index)
        if recorder.gate is not None:
            recorder.gate.arrive(Op.CHUNK_ENQUEUED, manager=manager, room=room, chunk=ordinal)
        stamp = recorder.order.now()  # before the put: a worker may take it at once
        result = put(chunk, *args, **kwargs)
        recorder.emit(
            Op.CHUNK_ENQUEUED, stamp=stamp, manager=manager, room=room, chunk=ordinal, last=last, attrs=attrs
        )
        return result

    queue.put = recorded_put


def _take_get(
    queue: Any, index: int, recorder: Recorder, manager: int, posts_seen: Callable[[], bool]
) -> None:
    get = queue.get

    def recorded_get(*args: Any, **kwargs: Any) -> Any:
        here = recorder.here
        recorder.name_thread(f"worker-{index}")
        _came_back(here, recorder, manager, posts_seen)
        length = to_json({"queue": index, "length": length_of(queue)})
        recorder.emit(Op.WORKER_WAITING, manager=manager, attrs=length)
        if recorder.gate is not None:
            recorder.gate.arrive(Op.CHUNK_DEQUEUED, manager=manager, ready=lambda: bool(length_of(queue)))
        chunk = get(*args, **kwargs)
        recorder.tell(_took, here, chunk)
        if here.room is not None:
            recorder.emit(
                Op.CHUNK_DEQUEUED, manager=manager, room=here.room, chunk=here.chunk, last=here.last,
                attrs=recorder.tell(_size, chunk, index),
            )  # fmt: skip
        return chunk

    queue.get = recorded_get


def _came_back(here: Here, recorder: Recorder, manager: int, posts_seen: Callable[[], bool]) -> None:
    if here.room is not None and not here.posted and posts_seen():
        recorder.emit(Op.CHUNK_SKIPPED, manager=manager, room=here.room, chunk=here.chunk, last=here.last)
    here.room = here.chunk = here.last = None


def _took(here: Here, chunk: Any) -> None:
    here.posted, here.did = 0, Op.CHUNK_DEQUEUED
    here.room = as_room(getattr(chunk, "room", None))
    here.chunk = getattr(chunk, "tracekv_ordinal", None)
    here.last = is_last(chunk) if here.room is not None else None


def _mark(chunk: Any, ordinal: int) -> None:
    chunk.tracekv_ordinal = ordinal


def _size(chunk: Any, index: int) -> str:
    return to_json({"pages": pages_of(chunk), "queue": index})


def is_last(chunk: Any) -> bool:
    """Whether it is the room's last chunk, under either of the names that releases use."""
    return bool(getattr(chunk, "is_last_chunk", getattr(chunk, "is_last", False)))


def pages_of(chunk: Any) -> int | None:
    """How many KV pages the chunk carries."""
    indices = getattr(chunk, "prefill_kv_indices", None)
    return None if indices is None else len(indices)


def length_of(queue: Any) -> int:
    """How many chunks wait in a queue, 0 where it does not say."""
    try:
        return len(queue._buf)
    except (AttributeError, TypeError):
        return 0
