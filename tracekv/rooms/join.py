"""Both roles of a room, and the ranks of one role, joined by room and by overlap in time.

Two lives fit when their spans on the wall clock overlap, within the precision of the rows.  Where
more than one fits, the answer says so and names them all: nothing is picked silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracekv.rooms.life import Life, Room

#: How far two hosts' wall clocks may be apart where no message pair says better.
CLOCK_SLACK_NS = 50_000_000

#: How many of several lives that fit are named.
NAMED = 8


@dataclass(frozen=True)
class Partners:
    """The lives of the other role that fit one life."""

    lives: tuple[Life, ...]

    @property
    def text(self) -> str | None:
        """What has to be said about the join; nothing when it is plain."""
        if len({life.n for life in self.lives}) <= 1:
            return None
        names = [f"incarnation {life.n} of process {life.process}" for life in self.lives[:NAMED]]
        more = ["others"] if len(self.lives) > NAMED else []
        return f"more than one life of the other role fits in time: {', '.join([*names, *more])}"


def partners(life: Life, room: Room) -> Partners:
    """The lives of the other role that overlap with ``life`` in time."""
    return Partners(tuple(opposite(life, room)))


def opposite(life: Life, room: Room) -> Iterator[Life]:
    """The same, one after the other: there can be thousands where an id is used again and again."""
    return (other for other in beside(life, room) if other.role != life.role)


def ranks_of(life: Life, room: Room) -> tuple[Life, ...]:
    """``life`` and the lives of the other managers of its role that share its time, one a manager.

    A manager's own other incarnations are no ranks; of several lives of one other manager the latest counts.
    """
    found: dict[tuple[str, int], Life] = {}
    for other in beside(life, room):
        if other.role == life.role:
            found[(other.process, other.manager)] = other
    found[(life.process, life.manager)] = life
    return tuple(found[key] for key in sorted(found))


def beside(life: Life, room: Room) -> Iterator[Life]:
    """The lives of the room that share time with ``life``, itself included, by their beginnings."""
    span = life.span
    if span is None:
        yield from room.lives
        return
    near = room.timeline.between(span[0] - CLOCK_SLACK_NS, span[1] + CLOCK_SLACK_NS)
    yield from (other for other in near if overlap(life, other))


def overlap(one: Life, other: Life) -> bool:
    """Whether two lives share time; a side without wall clocks fits everything."""
    a, b = one.span, other.span
    if a is None or b is None:
        return True
    slack = 0 if one.process == other.process else CLOCK_SLACK_NS
    return a[0] <= b[1] + slack and b[0] <= a[1] + slack
