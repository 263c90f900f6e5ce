"""What a reader could not give: bytes that made no sense, and rows that are known to be missing.

The promise: whoever reads rows gets these beside them, so that nobody takes silence for health.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
    return [_loss(event, json_object(event.attrs)) for event in events if event.op == Op.ROWS_LOST]


def _loss(event: Event, said: dict[str, Any]) -> Loss:
    return Loss(
        event.process,
        text_of(said.get("thread")) or event.thread,  # told by another thread where the loser could not
        max(number_of(said.get("n")) or 1, 1),
        number_of(said.get("from_ns")),
        number_of(said.get("to_ns")),
        str(said.get("why", "unknown")),
    )


def json_object(text: str | None) -> dict[str, Any]:
    """The JSON object in ``text``, an empty one where it is none.

    Half of a surrogate pair, which JSON can spell and nothing can print, is replaced.
    """
    try:
        found = json.loads(text or "{}")
        if "\\ud" in (text or "").lower():
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text_of(value: object) -> str | None:
    """A text, or ``None`` for anything else."""
    return value if isinstance(value, str) else None


def number_of(value: object) -> int | None:
    """An integer of 64 bits, or ``None`` for anything else."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if fits else None  # type: ignore[return-value]
