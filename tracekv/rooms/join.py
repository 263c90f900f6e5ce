"""Both roles of a room, and the ranks of one role, joined by room and by overlap in time.

Two lives fit when their spans on the wall clock overlap, within the precision of the rows.  Where
more than one fits, the answer says so and names them all: nothing is picked silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekv.rooms.life import Life, Room

#: How far two hosts' wall clocks may be apart where no message pair says better.
CLOCK_SLACK_NS = 50_000_000


@dataclass(frozen=True)
class Partners:
    """The lives of the other role that fit one life."""

    lives: tuple[Life, ...]

    @property
    def text(self) -> str | None:
        """What has to be said about the join; nothing when it is plain."""
        if len({life.n for life in self.lives}) <= 1:
            return None
        names = ", ".join(f"incarnation {life.n} of process {life.process}" for life in self.lives)
        return f"more than one life of the other role fits in time: {names}"


def partners(life: Life, room: Room) -> Partners:
    """The lives of the other role that overlap with ``life`` in time."""
    others = [other for other in room.lives if other.role != life.role]
    return Partners(tuple(other for other in others if overlap(life, other)))


def ranks_of(life: Life, lives: Sequence[Life]) -> tuple[Life, ...]:
    """``life`` and the lives of the other managers of its role that share its time, one a manager.

    A manager's own other incarnations are no ranks; of several lives of one other manager the latest counts.
    """
    found: dict[tuple[str, int], Life] = {}
    for other in lives:
        if other.role == life.role and overlap(life, other):
            found[(other.process, other.manager)] = other
    found[(life.process, life.manager)] = life
    return tuple(found[key] for key in sorted(found))


def overlap(one: Life, other: Life) -> bool:
    """Whether two lives share time; a side without wall clocks fits everything."""
    a, b = _span(one), _span(other)
    if a is None or b is None:
        return True
    slack = 0 if one.process == other.process else CLOCK_SLACK_NS
    return a[0] <= b[1] + slack and b[0] <= a[1] + slack


def _span(life: Life) -> tuple[int, float] | None:
    """From the first row to the last; a life that is open lasts as long as the trace."""
    times = [event.wall_ns for event in life.body if event.wall_ns is not None]
    if not times:
        return None
    return min(times), float("inf") if life.open else max(times)
