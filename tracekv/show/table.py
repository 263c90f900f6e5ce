"""The table of rooms: one line a life."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tracekv.event import Op
from tracekv.finding import Finding, Note
from tracekv.rooms import Life, Room
from tracekv.show.escape import escape
from tracekv.show.json import utc

COLUMNS: Final = ("room", "incarnation", "role", "process", "state", "opened", "age_s", "chunks", "flags")


def rows(
    rooms: Mapping[int, Room], findings: Iterable[Finding], notes: Iterable[Note] = ()
) -> list[dict[str, Any]]:
    """One row a life, in the order of the lives' first rows.

    ``age_s`` is from the first row to the last one of the life; ``flags`` are the kinds of its findings, the
    notes of its room, ``open`` and ``aborted``.
    """
    flags = _flags(findings, notes)
    return [_row(life, flags) for room in rooms.values() for life in room.lives]


def _flags(findings: Iterable[Finding], notes: Iterable[Note]) -> dict[tuple[Any, ...], list[str]]:
    found: dict[tuple[Any, ...], list[str]] = {}
    for each in findings:
        key = (each.room, each.process, each.manager, each.incarnation)
        found.setdefault(key, []).append(f"{each.kind} ({each.certainty})")
    for note in notes:
        found.setdefault((note.room,), []).append(note.kind)
    return found


def _row(life: Life, flags: dict[tuple[Any, ...], list[str]]) -> dict[str, Any]:
    own = flags.get((life.room, life.process, life.manager, life.n), [])
    state = life.concluded if life.role == "decode" and life.concluded is not None else life.state
    return {
        "room": str(life.room),
        "incarnation": life.n,
        "role": life.role,
        "process": life.process,
        "state": state.label if not life.cleared else f"cleared after {_before_clear(life)}",
        "opened": utc(life.opened.wall_ns) if life.opened else None,
        "age_s": _age_s(life),
        "chunks": life.chunks,
        "flags": [*own, *flags.get((life.room,), []), *_plain_flags(life)],
    }


def _before_clear(life: Life) -> str:
    """What the scheduler saw last, or where that was not recorded what was stored last."""
    from tracekv.rooms.life import as_state

    if life.polled is not None:
        return life.polled.label
    if life.concluded is not None:
        return life.concluded.label
    stored = (as_state(row.new) for row in reversed(life.body) if row.op == Op.STATUS_WRITTEN)
    found = next(stored, None)
    return "unknown" if found is None else found.label


def _plain_flags(life: Life) -> list[str]:
    aborted = any(life.has(op) for op in (Op.ABORT_RECEIVED, Op.ABORT_REQUESTED, Op.ABORT_SENT))
    return [*(["aborted"] if aborted else []), *(["open"] if life.open else [])]


def _age_s(life: Life) -> float | None:
    first, last = life.first.mono_ns, life.last.mono_ns
    return None if first is None or last is None else round((last - first) / 1e9, 6)


def as_csv(table: Sequence[Mapping[str, Any]]) -> str:
    """The table as CSV; flags are joined with semicolons, control characters are escaped."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in table:
        cells = {**row, "flags": ";".join(row["flags"])}
        texts = {name: escape(cell) for name, cell in cells.items() if isinstance(cell, str)}
        writer.writerow(cells | texts)
    return out.getvalue()


def as_text(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people."""
    lines = [[_cell(name, row[name]) for name in COLUMNS] for row in table]
    return grid([[name.replace("_", " ") for name in COLUMNS], *lines])


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "flags":
        return ", ".join(escape(flag) for flag in value) or "-"
    if name == "process":
        return escape(value)[:12]
    return f"{value:.3f}" if isinstance(value, float) else escape(value)


def grid(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells in columns; the first line is the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(_padded(line, widths) for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
    return "  ".join(cells).rstrip() + "\n"
