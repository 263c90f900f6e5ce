"""Where a replay that ended otherwise stopped being like the original.

Compared is what each thread did to the room, thread by thread: the order between two threads may differ
although both decide the same.  Of the differences that are left the one that comes first in the
original is where the other build decided otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tracekv.event import Event, Op
from tracekv.explain import sentence
from tracekv.rooms import Life

DECIDING: Final = frozenset(
    {Op.STATUS_WRITTEN, Op.STATUS_REFUSED, Op.STATUS_DROPPED, Op.PEER_POPPED, Op.CHUNK_SKIPPED}
)


@dataclass(frozen=True, slots=True)
class Turn:
    """The first difference.

    ``step`` is the number that the original's story gives to it, ``None`` where that has no such step.
    ``original`` and ``again`` are what one thread did there, ``None`` where it did nothing more.
    """

    step: int | None
    original: str | None
    again: str | None

    def __str__(self) -> str:
        place = "after its last step" if self.step is None else f"at step {self.step} of the story"
        return (
            f"{place}: then {self.original or 'that thread did nothing more'}; "
            f"now {self.again or 'that thread does nothing more'}"
        )


def first_turn(original: Life, again: Life, numbers: Mapping[int, int]) -> Turn | None:
    """The first deciding event at which the two lives differ, ``None`` where none does.

    ``numbers`` gives the story's number of a row of the original by its ``seq``.
    """
    to_come: dict[str, deque[Event]] = {}
    for row in _deciding(again):
        to_come.setdefault(_thread(row), deque()).append(row)
    for then in _deciding(original):
        ahead = to_come.get(_thread(then))
        now = ahead.popleft() if ahead else None
        if now is None or _facts(then) != _facts(now):
            return Turn(numbers.get(then.seq), _told(then), _told(now))
    more = min((ahead[0] for ahead in to_come.values() if ahead), key=lambda row: row.seq, default=None)
    return None if more is None else Turn(None, None, _told(more))


def _thread(row: Event) -> str:
    """The kind of thread: which of the workers it was does not matter."""
    return (row.thread or "").partition("-")[0]


def _told(row: Event | None) -> str | None:
    return None if row is None else sentence(row)


def _deciding(life: Life) -> list[Event]:
    return [row for row in life.events if row.op in DECIDING]


def _facts(row: Event) -> tuple[object, ...]:
    return (row.op, row.requested, row.old, row.new, row.attr("had"))
