"""One pass over a trace: its rooms, what is known about their surroundings, and what the detectors find.

It finds and explains; it judges nothing.  ``verdict.py`` does that with what is returned here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import index
from typing import Any, Final

from tracekv.detect import DETECTORS, Context, Survey
from tracekv.errors import UsageError
from tracekv.event import parse_room
from tracekv.explain import explain
from tracekv.finding import Finding, Note
from tracekv.rooms import Life, Partners, Room, lives_of, opposite

#: Longest time after which a room can be suspected, in seconds: thirty years.
LONGEST_S: Final = 1e9

#: How many lives of the other role are looked at for a note about an ambiguous join.
LOOKED_AT: Final = 64


@dataclass(frozen=True)
class Examined:
    """A trace after its examination; ``chosen`` are the rooms that were looked at."""

    trace: Any
    survey: Survey
    context: Context
    rooms: dict[int, Room]
    chosen: tuple[Room, ...]
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]

    @property
    def lives(self) -> tuple[Life, ...]:
        """The lives of the rooms that were looked at."""
        return tuple(life for room in self.chosen for life in room.lives)


def examine(trace: Any, *, stuck_after_s: float | None = None, room: int | str | None = None) -> Examined:
    """Look at every room of a trace, or at one; arguments as in :func:`tracekv.verdict.analyze`.

    Raises
    ------
    UsageError
        when ``room`` is no room id or not in the trace, or ``stuck_after_s`` is no time to wait.
    """
    if stuck_after_s is not None and not 0 < stuck_after_s <= LONGEST_S:
        hint = "give a number of seconds above 0, up to 1e9"
        raise UsageError(f"a room cannot be suspected after {stuck_after_s} s", hint=hint)
    survey = Survey()
    rooms = _rooms(trace, survey)
    context = survey.context(rooms, trace, stuck_after_s)
    chosen = tuple(rooms.values()) if room is None else (find_room(rooms, room),)
    findings, notes = _detect(chosen, context)
    told = tuple(explain(each, rooms[each.room], context) for each in findings)
    return Examined(trace, survey, context, rooms, chosen, told, tuple(notes))


def _rooms(trace: Any, survey: Survey) -> dict[int, Room]:
    by_room: dict[int, list[Life]] = {}
    for life in lives_of(map(survey.take, trace.events()), trace.managers):
        by_room.setdefault(life.room, []).append(life)
    return {room: Room(room, tuple(lives)) for room, lives in by_room.items()}


def build_of(trace: Any, room: Room) -> str | None:
    """The build of the process that hosted the room's prefill side, else of any that hosted it."""
    for life in (*room.prefill, *room.lives):
        process = trace.processes.get(life.process)
        if process is not None and process.build:
            return str(process.build)
    return None


def room_id(given: object) -> int:
    """A room id as somebody gave it: a whole number, or decimal or ``0x`` hex text; never a float."""
    try:
        return parse_room(given if isinstance(given, str) else str(index(given)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        hint = "give it in decimal or as 0x hex, up to 64 bits"
        raise UsageError(f"{given!r} is no room id", hint=hint) from None


def find_room(rooms: dict[int, Room], given: int | str) -> Room:
    """The room with this id, or an error that names the nearest one that is there."""
    room = room_id(given)
    if room in rooms:
        return rooms[room]
    if not rooms:
        raise UsageError(f"no room {room} in the trace", hint="the trace holds no rooms at all")
    nearest = min(rooms, key=lambda other: (_distance(room, other), other))
    raise UsageError(
        f"no room {room} in the trace",
        hint=f"the nearest id is {nearest}; `tracekv rooms TRACE` lists all {len(rooms)}",
    )


def _distance(one: int, other: int) -> int:
    """How many digits differ: a mistyped id is near, whatever its size."""
    a, b = str(one), str(other)
    return abs(len(a) - len(b)) + sum(x != y for x, y in zip(a, b, strict=False))


def _detect(rooms: Iterable[Room], context: Context) -> tuple[list[Finding], list[Note]]:
    findings: list[Finding] = []
    notes: list[Note] = []
    for room in rooms:
        for life in room.lives:
            for detector in DETECTORS:
                found = detector.find(life, context)
                findings.extend(found.findings)
                notes.extend(found.notes)
        notes.extend(_join_notes(room))
    return findings, notes


def _join_notes(room: Room) -> Iterator[Note]:
    for life in room.prefill:
        text = Partners(tuple(islice(opposite(life, room), LOOKED_AT))).text
        if text:
            yield Note("ambiguous_join", room.room, text)
