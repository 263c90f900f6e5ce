"""What of a room is still to come: chunks that nobody took, transfers that nobody saw the end of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tracekv.event import Event, Op

_SETTLED_TRANSFER: Final = frozenset({Op.XFER_DONE, Op.XFER_FAILED, Op.XFER_RELEASED})


def queued_chunks(rows: Iterable[Event]) -> tuple[int, ...]:
    """The ordinals of the chunks that were enqueued and not dequeued."""
    queue: dict[int, None] = {}
    taken: set[int | None] = set()
    for row in rows:
        if row.op == Op.CHUNK_ENQUEUED and row.chunk is not None:
            queue[row.chunk] = None
        elif row.op == Op.CHUNK_DEQUEUED:
            taken.add(row.chunk)
    return tuple(chunk for chunk in queue if chunk not in taken)


def chunk_in_flight(rows: Iterable[Event]) -> int | None:
    """The chunk with a transfer that is posted and not settled."""
    flying: dict[object, int] = {}
    for row in rows:
        if row.op == Op.XFER_POSTED:
            flying[_flight(row)] = row.chunk if row.chunk is not None else 0
        elif row.op in _SETTLED_TRANSFER:
            flying.pop(_flight(row), None)
    return next(iter(flying.values()), None)


def _flight(row: Event) -> object:
    return row.handle if row.handle is not None else (row.chunk, row.attr("part"))


def outstanding(rows: tuple[Event, ...]) -> str | None:
    """What a worker still has to do for the room, in words; ``None`` where there is nothing."""
    flying = chunk_in_flight(rows)
    if flying is not None:
        return f"the transfer of chunk {flying} was in flight"
    queue = queued_chunks(rows)
    return f"chunk {queue[0]} was in its queue" if queue else None
