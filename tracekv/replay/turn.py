"""Where a replay that ended otherwise stopped being like the original.

Compared is what was done to the room's status, thread by thread: the first write, refusal or removal
that differs is the step at which the other build decided otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from tracekv.event import Event, Op
from tracekv.explain import sentence
from tracekv.rooms import Life

DECIDING: Final = frozenset(
    {Op.STATUS_WRITTEN, Op.STATUS_REFUSED, Op.STATUS_DROPPED, Op.PEER_POPPED, Op.CHUNK_SKIPPED}
)


@dataclass(frozen=True, slots=True)
class Turn:
    """The first difference: ``step`` counts the deciding events from 1; ``None`` means nothing came."""

    step: int
    original: str | None
    again: str | None

    def __str__(self) -> str:
        return (
            f"at deciding step {self.step}: then {self.original or 'nothing more was done'}; "
            f"now {self.again or 'nothing more was done'}"
        )


def first_turn(original: Life, again: Life) -> Turn | None:
    """The first deciding event at which the two lives differ, ``None`` where none does."""
    pairs = zip_longest(_deciding(original), _deciding(again))
    for step, (then, now) in enumerate(pairs, start=1):
        if then is None or now is None or _facts(then) != _facts(now):
            return Turn(step, then and sentence(then), now and sentence(now))
    return None


def _deciding(life: Life) -> list[Event]:
    return [row for row in life.events if row.op in DECIDING]


def _facts(row: Event) -> tuple[object, ...]:
    thread = (row.thread or "").partition("-")[0]
    return (thread, row.op, row.requested, row.old, row.new, row.attr("had"))
