"""A replay's answer as text for people and as one JSON object for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from tracekv.replay.answer import Replay

SCHEMA: Final = "tracekv.replay/1"


def replay_json(answer: Replay) -> dict[str, Any]:
    """The object of ``tracekv replay --format json``; see ``docs/reference/json.md``."""
    return {
        "schema": SCHEMA,
        "room": str(answer.room),
        "rig": answer.rig,
        "manager": answer.manager,
        "build": answer.build,
        "schedule_kind": answer.schedule.kind,
        "times": answer.times,
        "reproduced": answer.reproduced,
        "pinned": answer.pinned,
        "kinds": answer.kinds,
        "outcomes": answer.outcomes,
        "left_behind": answer.left_behind,
        "diverged": None if answer.diverged is None else asdict(answer.diverged),
        "divergences": answer.divergences,
        "disputed": answer.disputed,
        "corrupted": answer.corrupted,
        "ended_otherwise": None if answer.turn is None else asdict(answer.turn),
        "bytes_checked": answer.bytes_checked,
        "bytes_wrong": answer.bytes_wrong,
        "expect": answer.expect,
        "met": answer.met,
    }


def replay_text(answer: Replay) -> str:
    """The answer in sentences."""
    lines = [
        f"room {answer.room} again, {answer.times} times",
        f"  rig         {answer.rig}",
        f"  manager     {answer.manager}",
        f"  build       {answer.build}",
        f"  schedule    {answer.schedule.kind}, {len(answer.schedule.steps)} steps",
        "",
        f"reproduced {answer.reproduced}/{answer.times}{_findings(answer)}",
        *(f"  ended {state}: {count}/{answer.times}" for state, count in answer.outcomes.items()),
        *_kinds(answer),
        *(f"  left behind: {what}, {count} times" for what, count in answer.left_behind.items()),
        *_disputed(answer),
        *_corrupted(answer),
        *_turned(answer),
        *_diverged(answer),
        f"  bytes checked at decode: {answer.bytes_checked:,}, wrong: {answer.bytes_wrong:,}",
        "",
        _verdict(answer),
    ]
    return "\n".join(lines)


def _findings(answer: Replay) -> str:
    if not answer.original:
        return ": the room has no finding, it was compared by how it ended"
    kinds = ", ".join(f"{each.kind} at {each.state.label}" for each in answer.original)
    return f": {kinds}"


def _kinds(answer: Replay) -> list[str]:
    found = (f"{kind.replace('_', ' ')} {count}/{answer.times}" for kind, count in answer.kinds.items())
    return [f"  the analyzer finds: {', '.join(found)}"] if answer.kinds else []


def _disputed(answer: Replay) -> list[str]:
    said = "the analyzer and the rig disagree about a pinned sender; counted for nothing"
    return [f"  {answer.disputed}/{answer.times} {said}"] if answer.disputed else []


def _corrupted(answer: Replay) -> list[str]:
    said = "WRONG BYTES at decode although the transfer was seen done; counted for nothing"
    return [f"  {answer.corrupted}/{answer.times} {said}"] if answer.corrupted else []


def _turned(answer: Replay) -> list[str]:
    return [] if answer.turn is None else [f"  what happened instead: {answer.turn}"]


def _diverged(answer: Replay) -> list[str]:
    if answer.diverged is None:
        return []
    found = answer.diverged
    last = ", ".join(found.last) or "none"
    lines = [f"  {answer.divergences}/{answer.times} {found}", f"    the last events: {last}"]
    return lines + ([f"    {line}" for line in found.stack.splitlines()] if found.stack else [])


def _verdict(answer: Replay) -> str:
    said = f"expected {answer.expect}: {answer.met}/{answer.times}"
    return f"{said}, as expected" if answer.held else f"{said}, not as expected"
