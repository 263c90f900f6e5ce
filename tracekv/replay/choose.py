"""Which room of a trace is executed again, which of its lives, and from which rows."""

from __future__ import annotations

from typing import Any

from tracekv.errors import CannotTellError, UsageError
from tracekv.event import Event
from tracekv.examine import Examined, find_room
from tracekv.replay.schedule import ARRIVALS
from tracekv.rooms import Life


def only_violating(seen: Examined) -> int:
    """The one room with findings.  Raises UsageError where there is none or more than one."""
    rooms = list(dict.fromkeys(each.room for each in seen.findings))
    if len(rooms) == 1:
        return rooms[0]
    if not rooms:
        raise UsageError("no room of this trace has a finding", hint="Name one with --room ROOM.")
    listed = "\n  ".join(str(each) for each in rooms[:20])
    more = f"\n  ... and {len(rooms) - 20} more" if len(rooms) > 20 else ""
    raise UsageError(
        f"{len(rooms)} rooms of this trace have findings; which one?",
        hint=f"Name one with --room:\n  {listed}{more}",
    )


def prefill_life(seen: Examined, room: int) -> Life:
    """The prefill life to execute: the one with findings, else the last."""
    lives = find_room(seen.rooms, room).prefill
    if not lives:
        raise CannotTellError(
            f"room {room}: the trace has no row of its prefill side", hint="Add the prefill process's trace."
        )
    wrong = {(each.process, each.manager, each.incarnation) for each in seen.findings if each.room == room}
    return next((life for life in lives if (life.process, life.manager, life.n) in wrong), lives[-1])


def prefill_managers(trace: Any, process: str) -> frozenset[tuple[str, int | None]]:
    """The (process, manager) pairs of the prefill role in one process."""
    return frozenset(key for key, m in trace.managers.items() if m.role == "prefill" and key[0] == process)


def rows_of(trace: Any, life: Life, after: int = 0) -> list[Event]:
    """The rows from which a life is executed again, in order.

    Those are its own, what decode sent for it from the same process, and the returns of the threads
    that worked on it to their loop heads.  ``after`` is the number of the last row of an earlier life of
    the same room.
    """
    threads = {(row.thread, row.tid) for row in life.events}
    first, last = life.events[0].seq, life.events[-1].seq
    return [
        row
        for row in trace.rows(life.process)
        if (row.room == life.room and after < row.seq <= last)
        or (row.op in ARRIVALS and row.seq >= first and (row.thread, row.tid) in threads)
    ]


def end_before(seen: Examined, life: Life) -> int:
    """The number of the last row of the life before this one, 0 where it is the first."""
    lives = seen.rooms[life.room].prefill
    earlier = (each for each in lives if (each.process, each.manager) == (life.process, life.manager))
    return max((each.last.seq for each in earlier if each.n < life.n), default=0)
