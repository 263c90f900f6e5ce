"""The verdict as JSON, schema ``tracekv.analysis/1`` (``docs/reference/json.md``).

Room ids are decimal strings always, and so is any integer beyond 2**53: no reader loses a digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, Final

from tracekv.event import COLUMNS, Event
from tracekv.finding import Finding, Note, Step
from tracekv.rooms import Room
from tracekv.verdict import Evidence, Verdict

SCHEMA: Final = "tracekv.analysis/1"
SAFE_INTEGER: Final = 2**53
ALWAYS_TEXT: Final = frozenset({"room", "mono_ns", "wall_ns"})


def analysis(verdict: Verdict) -> dict[str, Any]:
    """The whole answer of ``tracekv analyze``."""
    evidence = verdict.evidence
    return {
        "schema": SCHEMA,
        "verdict": verdict.name,
        "findings": [finding_json(each) for each in verdict.findings],
        "notes": [note_json(each) for each in verdict.notes],
        "reasons": list(verdict.reasons),
        "evidence": evidence_json(evidence),
        "partial": evidence.partial,
        "damage": [{"file": str(d.file), "where": str(d.where), "why": str(d.why)} for d in evidence.damage],
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """One finding."""
    return {
        "id": finding.id,
        "kind": finding.kind,
        "certainty": finding.certainty,
        "room": str(finding.room),
        "incarnation": finding.incarnation,
        "process": finding.process,
        "manager": finding.manager,
        "role": finding.role,
        "ranks": list(finding.ranks),
        "since": moment(finding.since),
        "state": finding.state.label,
        "queue": finding.queue,
        "blocked_on": finding.blocked_on,
        "claim": finding.claim,
        "why": list(finding.reasons),
        "story": [step_json(step) for step in finding.story],
        "implies": list(finding.implies),
        "remedy": finding.remedy,
    }


def step_json(step: Step) -> dict[str, Any]:
    """One step of a story: its sentence and its row."""
    return {
        "n": step.n,
        "text": step.text,
        "decisive": step.decisive,
        "why": step.why,
        "event": event_json(step.event),
    }


def event_json(event: Event) -> dict[str, Any]:
    """One row: the columns that have a value."""
    found = {name: getattr(event, name) for name in COLUMNS}
    return {
        name: text(value) if name in ALWAYS_TEXT else safe(value)
        for name, value in found.items()
        if value is not None
    }


def moment(event: Event) -> dict[str, Any]:
    """A row's place in its process's order and on both clocks."""
    return {
        "seq": safe(event.seq),
        "mono_ns": text(event.mono_ns),
        "wall_ns": text(event.wall_ns),
        "utc": utc(event.wall_ns),
    }


def utc(wall_ns: int | None) -> str | None:
    """A wall clock time in ISO 8601 with microseconds; ``None`` where there is none or it is no date."""
    if wall_ns is None:
        return None
    try:
        whole = datetime.fromtimestamp(wall_ns // 10**9, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{wall_ns % 10**9 // 1000:06d}Z"


def safe(value: Any) -> Any:
    """An integer beyond 2**53 as a decimal string, everything else as it is."""
    too_big = isinstance(value, int) and not isinstance(value, bool) and abs(value) > SAFE_INTEGER
    return str(value) if too_big else value


def text(value: int | None) -> str | None:
    """A room or a clock: always a decimal string, so that its type does not change with its size."""
    return None if value is None else str(value)


def note_json(note: Note) -> dict[str, Any]:
    """One note."""
    return {"kind": note.kind, "room": str(note.room), "text": note.text}


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """What the verdict rests on."""
    return {
        "rooms": evidence.rooms,
        "lives": evidence.lives,
        "settled": evidence.settled,
        "open": evidence.open,
        "invariants": [{"id": key, "claim": claim} for key, claim in evidence.invariants.items()],
        "seams": list(evidence.seams),
        "rows": evidence.rows,
        "rows_lost": evidence.rows_lost,
        "processes": [process_json(each, evidence.managers) for each in evidence.processes],
    }


def process_json(process: Any, managers: Iterable[Any] = ()) -> dict[str, Any]:
    """What the trace says about one process and its managers, with the coverage of each."""
    names = ("uuid", "host", "pid", "engine", "version", "build", "detail", "ended")
    found = {name: getattr(process, name, None) for name in names}
    here = [manager_json(each) for each in managers if each.process == process.uuid]
    return {**found, "managers": here}


def manager_json(manager: Any) -> dict[str, Any]:
    """One manager: its role, its rank, and each seam with ``installed`` or ``absent``."""
    names = ("manager", "role", "backend", "engine_rank", "tp_size", "tp_rank", "pp_size", "pp_rank")
    found = {name: getattr(manager, name, None) for name in names}
    return {**found, "seams": dict(getattr(manager, "seams", {}))}


def rooms_json(rooms: Mapping[int, Room], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer of ``tracekv rooms``; ``rows`` come from ``show.table``."""
    return {"schema": "tracekv.rooms/1", "count": len(rooms), "rooms": rows}
