"""Which rows of a life must be missing, since others presuppose them.

Every step of a life has steps without which it cannot be.  The tables below hold those that are true of
every build; a life that shows the one and not the other was not recorded whole, and its silence
is no evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from tracekv.event import Event, Op, State
from tracekv.rooms.life import Life, is_background

_Rows = Mapping[str, Sequence[Event]]


def _every(row: Event) -> bool:
    return True


@dataclass(frozen=True)
class _Needs:
    """A row of ``op`` (``when`` that holds) cannot be without an earlier one of ``needed``.

    ``key`` names the column in which the two have to agree, where they have to.
    """

    op: str
    needed: tuple[str, ...]
    key: str | None = None
    when: Callable[[Event], bool] = _every
    earlier: bool = True

    def met(self, rows: _Rows) -> bool:
        asking = [row for row in rows.get(self.op, ()) if self.when(row)]
        if not asking:
            return True
        key: Callable[[Event], object] = attrgetter(self.key) if self.key else lambda row: True
        first: dict[object, int] = {}
        for row in (row for op in self.needed for row in rows.get(op, ())):
            first[key(row)] = min(row.seq, first.get(key(row), row.seq))
        keyed = ((row, key(row)) for row in asking)
        return all(k is None or (k in first and (first[k] < row.seq or not self.earlier)) for row, k in keyed)

    def __str__(self) -> str:
        return f"{self.op} without {' or '.join(self.needed)}"


def _by_worker(row: Event) -> bool:
    return (row.thread or "").startswith("worker")


def _failed_by_frame(row: Event) -> bool:
    return row.thread == "bootstrap" and row.new == State.FAILED


_BOTH: Final = (
    _Needs(Op.ROOM_CLEARED, (Op.ROOM_OPENED,)),
    _Needs(Op.STATUS_DROPPED, (Op.STATUS_WRITTEN,)),
)
_PREFILL: Final = (
    _Needs(Op.PEER_ADDED, (Op.META_RECEIVED,)),
    _Needs(Op.STATUS_WRITTEN, (Op.ABORT_RECEIVED,), when=_failed_by_frame),
    _Needs(Op.STATUS_WRITTEN, (Op.CHUNK_DEQUEUED,), when=_by_worker),
    _Needs(Op.CHUNK_DEQUEUED, (Op.CHUNK_ENQUEUED,), "chunk"),
    _Needs(Op.CHUNK_SKIPPED, (Op.CHUNK_DEQUEUED,), "chunk"),
    _Needs(Op.XFER_POSTED, (Op.CHUNK_DEQUEUED,), "chunk"),
    _Needs(Op.XFER_DONE, (Op.XFER_POSTED,), "handle"),
    _Needs(Op.XFER_FAILED, (Op.XFER_POSTED,), "handle"),
)
#: What a life that came to its end must show besides.
_ENDED: Final = (
    _Needs(Op.ROOM_OPENED, (Op.STATUS_WRITTEN,), earlier=False),
    _Needs(Op.ROOM_CLEARED, (Op.POLL_CHANGED, Op.CONCLUDE_SET)),
    _Needs(Op.ROOM_CLEARED, (Op.STATUS_DROPPED,)),
    _Needs(Op.STATUS_DROPPED, (Op.ROOM_CLEARED,), earlier=False),
    _Needs(Op.META_RECEIVED, (Op.PEER_ADDED,), earlier=False),
    _Needs(Op.CHUNK_DEQUEUED, (Op.XFER_POSTED, Op.CHUNK_SKIPPED), "chunk", earlier=False),
)


def missing(life: Life) -> tuple[str, ...]:
    """What of the life is missing, in words such as ``room.cleared without room.opened``."""
    if not life.entered:
        return ()
    rows: dict[str, list[Event]] = {}
    for row in life.events:
        rows.setdefault(row.op, []).append(row)
    rules = _BOTH + (_PREFILL if life.role == "prefill" else ()) + (_ENDED if life.settled else ())
    return (*(str(rule) for rule in rules if not rule.met(rows)), *_failures(rows), *_end(life, rows))


def _failures(rows: _Rows) -> Iterator[str]:
    """A worker and the bootstrap thread ask for Failed once they have recorded why."""
    asked: dict[str | None, int] = {}
    for row in (*rows.get(Op.STATUS_WRITTEN, ()), *rows.get(Op.STATUS_REFUSED, ())):
        if State.FAILED in (row.requested, row.new):
            asked[row.thread] = max(row.seq, asked.get(row.thread, row.seq))
    recorded = (row for row in rows.get(Op.FAILURE_RECORDED, ()) if is_background(row.thread))
    if any(asked.get(row.thread, row.seq) <= row.seq for row in recorded):
        yield f"{Op.FAILURE_RECORDED} without a {Op.STATUS_WRITTEN} of Failed"


def _end(life: Life, rows: _Rows) -> Iterator[str]:
    """The end itself: a life that settled was opened, and somebody stored the end that it came to."""
    if not life.settled:
        return
    if life.opened is None and life.cleared is None:
        yield "an end without room.opened"
    seen = life.polled is not None and life.polled.terminal
    if not (life.cleared or life.replaced or seen):
        yield "an end without room.cleared or a poll that saw it"
    stored = {row.new for op in (Op.STATUS_WRITTEN, Op.CONCLUDE_SET) for row in rows.get(op, ())}
    polled = [row.new for row in rows.get(Op.POLL_CHANGED, ()) if row.new in (State.FAILED, State.SUCCESS)]
    if polled and polled[-1] not in stored:
        yield f"the scheduler polled {State(polled[-1]).label}, and nobody stored it"
    if not (life.replaced or stored & {State.FAILED, State.SUCCESS}):
        yield "an end without Failed or Success"
    if life.role == "prefill" and life.cleared is not None and life.polled is None:
        yield f"{Op.ROOM_CLEARED} without {Op.POLL_CHANGED}"
    if life.role == "prefill" and life.polled is State.SUCCESS:
        whole = _Needs(Op.CHUNK_ENQUEUED, (Op.CHUNK_DEQUEUED,), "chunk", earlier=False)
        if not whole.met(rows):
            yield f"Success and {whole}"


_SENT: Final = {Op.META_RECEIVED: Op.META_SENT, Op.ABORT_RECEIVED: Op.ABORT_SENT}


def unsent(life: Life, others: Callable[[], Iterator[Life]]) -> tuple[str, ...]:
    """What ``life`` received and none of ``others()``, the lives of the other role, shows to have sent."""
    lone = next(others(), None) is None
    return tuple(
        f"{received} without {sent}"
        for received, sent in _SENT.items()
        if not lone and life.has(received) and not any(other.has(sent) for other in others())
    )
