"""The chunk queues between the scheduler and the transfer workers.

Put and get are replaced on each queue object.  A worker that comes back for the next chunk without
having posted anything for the last one has skipped it; that it is back at all is a row of its own,
because it is what proves that nothing more will come.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tracekv.event import Op
from tracekv.record.recorder import Here, Recorder, to_json


class ChunkCount:
    """Numbers the chunks of each open room: the ordinal is ours, since newer releases have no id."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._lock = threading.Lock()  # taken at a put only, never around the engine's own code

    def number(self, room: int, last: bool) -> int:
        """The ordinal of the next chunk of ``room``; the last one ends the count."""
        with self._lock:
            ordinal = self._next.pop(room, 0)
            if not last:
                self._next[room] = ordinal + 1
            return ordinal

    def forget(self, room: int) -> None:
        """A new life of the room begins: its chunks count from 0 again."""
        with self._lock:
            self._next.pop(room, None)


def take_queues(queues: Sequence[Any], recorder: Recorder, manager: int, count: ChunkCount) -> Any:
    """Record puts and gets of every queue in the list; gives the same list back."""
    for index, queue in enumerate(queues):
        _take_put(queue, index, recorder, manager, count)
        _take_get(queue, index, recorder, manager)
    return queues


def _take_put(queue: Any, index: int, recorder: Recorder, manager: int, count: ChunkCount) -> None:
    put = queue.put

    def recorded_put(chunk: Any, *args: Any, **kwargs: Any) -> Any:
        room = getattr(chunk, "room", None)
        if room is None:
            return put(chunk, *args, **kwargs)
        last = is_last(chunk)
        ordinal = count.number(room, last)
        _mark(chunk, ordinal, recorder)
        if recorder.gate is not None:
            recorder.gate.arrive(Op.CHUNK_ENQUEUED, manager=manager, room=room, chunk=ordinal)
        stamp = recorder.order.now()  # before the put: a worker may take it at once
        result = put(chunk, *args, **kwargs)
        recorder.emit(
            Op.CHUNK_ENQUEUED, stamp=stamp, manager=manager, room=room, chunk=ordinal, last=last,
            attrs=to_json({"pages": pages_of(chunk), "queue": index}),
        )
        return result

    queue.put = recorded_put


def _take_get(queue: Any, index: int, recorder: Recorder, manager: int) -> None:
    get = queue.get

    def recorded_get(*args: Any, **kwargs: Any) -> Any:
        here = recorder.here
        recorder.name_thread(f"worker-{index}")
        _came_back(here, recorder, manager)
        recorder.emit(
            Op.WORKER_WAITING, manager=manager, attrs=to_json({"queue": index, "length": length_of(queue)})
        )
        if recorder.gate is not None:
            recorder.gate.arrive(
                Op.CHUNK_DEQUEUED, manager=manager, ready=lambda: bool(length_of(queue))
            )
        chunk = get(*args, **kwargs)
        _took(here, chunk)
        if here.room is not None:
            recorder.emit(
                Op.CHUNK_DEQUEUED, manager=manager, room=here.room, chunk=here.chunk, last=here.last,
                attrs=to_json({"pages": pages_of(chunk), "queue": index}),
            )
        return chunk

    queue.get = recorded_get


def _came_back(here: Here, recorder: Recorder, manager: int) -> None:
    if here.room is not None and not here.posted:
        recorder.emit(
            Op.CHUNK_SKIPPED, manager=manager, room=here.room, chunk=here.chunk, last=here.last
        )
    here.room = here.chunk = here.last = None


def _took(here: Here, chunk: Any) -> None:
    here.room = getattr(chunk, "room", None)
    here.chunk = getattr(chunk, "tracekv_ordinal", None)
    here.last = is_last(chunk) if here.room is not None else None
    here.posted = 0


def _mark(chunk: Any, ordinal: int, recorder: Recorder) -> None:
    try:
        chunk.tracekv_ordinal = ordinal
    except AttributeError as error:
        recorder.trouble(f"a chunk takes no mark: {error!r}")


def is_last(chunk: Any) -> bool:
    """Whether it is the room's last chunk, under either of the names that releases use."""
    return bool(getattr(chunk, "is_last_chunk", getattr(chunk, "is_last", False)))


def pages_of(chunk: Any) -> int | None:
    """How many KV pages the chunk carries."""
    indices = getattr(chunk, "prefill_kv_indices", None)
    return None if indices is None else len(indices)


def length_of(queue: Any) -> int:
    """How many chunks wait in a queue, 0 where it does not say."""
    return len(getattr(queue, "_buf", ()))
