"""The rows that a process writes before its first room, so that a story is a whole trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tracekv.event import Event, Op
from tracekv.seams import SEAM_NAMES
from tracekv.story.letters import EPOCH_NS
from tracekv.story.read import story


def recording(line: str, *, room: int = 7, process: str = "p", **of_process: Any) -> list[Event]:
    """A whole process: the rows of :func:`preamble`, then those of the story."""
    opening = preamble(process=process, **of_process)
    return opening + story(line, room=room, process=process, seq=len(opening))


def preamble(
    *,
    build: str | None = "0.5.14+fork",
    process: str = "p",
    seams: Iterable[str] = SEAM_NAMES,
    roles: Sequence[str] = ("prefill", "decode"),
    detail: str = "gates",
    **ranks: int,
) -> list[Event]:
    """The rows that a process writes before its first room.

    ``roles`` are the roles of managers 0, 1, ...; ``ranks`` overrides ``tp_size``, ``tp_rank`` and the like.
    """
    started: dict[str, Any] = {"host": "h0", "pid": 42, "engine": "sglang", "version": "0.5.14"}
    started |= {"build": build, "detail": detail, "python": "3.11.7", "argv_digest": "0", "schema": 1}
    rows: list[tuple[str, int | None, dict[str, Any]]] = [(Op.PROCESS_STARTED, None, started)]
    for number, role in enumerate(roles):
        rows.append((Op.MANAGER_STARTED, number, _manager(role) | ranks))
    for name in seams:
        rows.append((Op.SEAM_INSTALLED, 0, {"seam": name, "state": "installed", "where": name}))
    return [_opening_row(process, number, *row) for number, row in enumerate(rows)]


def _opening_row(process: str, seq: int, op: str, manager: int | None, attrs: dict[str, Any]) -> Event:
    return Event(
        seq=seq,
        op=op,
        process=process,
        thread="scheduler",
        tid=100,
        manager=manager,
        mono_ns=0,
        wall_ns=EPOCH_NS,
        attrs=json.dumps(attrs),
    )


def _manager(role: str) -> dict[str, Any]:
    axes = ("tp", "pp", "dp", "cp")
    sizes = {f"{axis}_{what}": int(what == "size") for axis in axes for what in ("size", "rank")}
    return {"role": role, "backend": "nixl", "engine_rank": 0, **sizes, "bootstrap_timeout_s": 300}
