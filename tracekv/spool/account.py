"""What a reader could not give: bytes that made no sense, and rows that are known to be missing.

The promise: whoever reads rows gets these beside them, so that nobody takes silence for health.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracekv.event import Event, Op


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that could not be read: in which file (relative to the trace), where, and why."""

    file: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}, {self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class Loss:
    """At least ``n`` rows of a thread that are not in the trace; the times are its monotonic clock's."""

    process: str
    thread: str | None
    n: int
    from_ns: int | None
    to_ns: int | None
    why: str


def losses_of(events: Iterable[Event]) -> list[Loss]:
    """What the ``rows.lost`` rows among these say."""
    return [
        Loss(
            event.process,
            event.attr("thread", event.thread),  # told by another thread where the loser could not
            _number(event.attr("n")) or 1,
            _number(event.attr("from_ns")),
            _number(event.attr("to_ns")),
            str(event.attr("why", "unknown")),
        )
        for event in events
        if event.op == Op.ROWS_LOST
    ]


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
