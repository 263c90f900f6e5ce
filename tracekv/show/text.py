"""The verdict and the rooms in sentences, for an operator at a terminal.

Pure: everything comes back as one string.  Whatever came out of a trace is escaped, since a host
name or a failure text may hold anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import Any, Final

from tracekv.event import Event
from tracekv.explain import lives_beside, story_of
from tracekv.finding import GAUGES, Finding, Step
from tracekv.rooms import Life, Room
from tracekv.show.escape import escape
from tracekv.show.json import utc
from tracekv.show.table import grid
from tracekv.verdict import Evidence, Verdict

#: With more findings of a kind than this, they become a table and only the first one is told.
TOLD_SINGLY: Final = 3
WIDTH: Final = 100

Paint = Callable[[str, str], str]


def plain(text: str, style: str) -> str:
    """No colour at all."""
    return text


def verdict_text(verdict: Verdict, path: str, paint: Paint = plain) -> str:
    """The answer of ``tracekv analyze``: what is there, the verdict, the findings, the next command."""
    blocks = [
        contents(verdict.evidence, path),
        headline(verdict, paint),
        *_findings(verdict.findings, paint),
        _listed("notes", (f"room {note.room}: {note.text}" for note in verdict.notes)),
        _listed("reasons" if verdict.name == "cannot_tell" else "also", verdict.reasons),
        _evidence(verdict.evidence) if verdict.name != "cannot_tell" else "",
        next_commands(verdict, path),
    ]
    return "\n\n".join(block.rstrip("\n") for block in blocks if block) + "\n"


def contents(evidence: Evidence, path: str) -> str:
    """What is in the trace."""
    counts = f"{_count(evidence.rooms, 'room')}, {_count(evidence.rows, 'row')}"
    lines = [f"{escape(path)}: {counts}, {_span(evidence)}"]
    lines += [f"  {_process(each)}" for each in evidence.processes[:8]]
    if len(evidence.processes) > 8:
        lines.append(f"  and {len(evidence.processes) - 8} more processes")
    return "\n".join(lines)


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _span(evidence: Evidence) -> str:
    first, last = evidence.first_wall_ns, evidence.last_wall_ns
    if first is None or last is None:
        return "no clock"
    return f"{(last - first) / 1e9:.3f} s from {utc(first)}"


def _process(process: Any) -> str:
    build = getattr(process, "build", None) or getattr(process, "version", None) or "unknown build"
    engine, host = getattr(process, "engine", None) or "unknown engine", getattr(process, "host", None)
    place = f", pid {getattr(process, 'pid', None)} on {host}" if host else ""
    uuid = getattr(process, "uuid", "?")
    detail = getattr(process, "detail", None) or "unknown"
    return escape(f"process {uuid}: {engine} {build}{place}, detail {detail}")


def headline(verdict: Verdict, paint: Paint = plain) -> str:
    """The verdict in one line."""
    evidence = verdict.evidence
    if verdict.name == "clean":
        claims = ", ".join(_holding(claim, verdict) for claim in evidence.invariants)
        settled = "the room" if evidence.rooms == 1 else f"all {evidence.rooms} rooms"
        text = f"{settled} settled; {claims} hold"
        return paint("CLEAN", "green") + f": {text}; every needed seam was installed and no rows were lost"
    if verdict.name == "cannot_tell":
        return paint("CANNOT TELL", "yellow") + f": {escape(verdict.reasons[0])}"
    return paint("VIOLATION", "red") + f": {_summary(verdict.findings)}"


def _holding(claim: str, verdict: Verdict) -> str:
    """An invariant that held; a resurrection that healed is not passed over in silence."""
    healed = sum(note.kind == "healed_resurrection" for note in verdict.notes) if claim == "I1" else 0
    return f"{claim} (but for {_count(healed, 'healed resurrection')}, see the notes)" if healed else claim


def _summary(findings: Sequence[Finding]) -> str:
    kinds: dict[tuple[str, str], set[int]] = {}
    for each in findings:
        kinds.setdefault((each.kind, each.certainty), set()).add(each.room)
    parts = [
        f"{kind.replace('_', ' ')} by {certainty} in {_count(len(rooms), 'room')}"
        if certainty == "suspicion" or kind == "pinned"
        else f"{kind.replace('_', ' ')} in {_count(len(rooms), 'room')}"
        for (kind, certainty), rooms in kinds.items()
    ]
    return "; ".join(parts)


# ------------------------------------------------------------------------------------ the findings


def _findings(findings: Sequence[Finding], paint: Paint) -> list[str]:
    """Pinned rooms first: they are what an operator came for."""
    kinds = sorted({each.kind for each in findings}, key=lambda kind: (kind != "pinned", kind))
    told: set[tuple[int, str]] = set()
    blocks = []
    for kind in kinds:
        group = [each for each in findings if each.kind == kind]
        if len(group) > TOLD_SINGLY:
            blocks.append(_group(kind, group))
            group = group[:1]
        blocks += [_finding(each, paint, with_story=(each.room, each.process) not in told) for each in group]
        told |= {(each.room, each.process) for each in group}
    return blocks


def _group(kind: str, group: Sequence[Finding]) -> str:
    head = ["room", "role", "state", "since", "blocked on", "certainty"]
    lines = [
        [str(each.room), each.role, each.state.label, _since(each), each.blocked_on, each.certainty]
        for each in group
    ]
    title = f"{len(group)} findings of kind {kind.replace('_', ' ')}; the first one is told below"
    return f"{title}\n{indent(grid([head, *lines]))}"


def _since(finding: Finding) -> str:
    return utc(finding.since.wall_ns) or "-"


def _finding(finding: Finding, paint: Paint, *, with_story: bool) -> str:
    lines = [paint(title(finding), "bold"), *(f"  {line}" for line in facts(finding))]
    if with_story:
        lines += ["", *(f"  {line}" for line in story_lines(finding.story, paint))]
    else:
        decisive = [step for step in finding.story if step.decisive]
        lines += ["", "  the steps that decide, of the story above:"]
        lines += [f"  {line}" for line in story_lines(decisive, paint, finding.story[0].event)]
    return "\n".join([*lines, "", *(f"  {line}" for line in outcome(finding))])


def title(finding: Finding) -> str:
    """The finding in one line."""
    kind = finding.kind.replace("_", " ")
    return escape(f"{kind} (by {finding.certainty}): room {finding.room}, {finding.claim}")


def facts(finding: Finding) -> list[str]:
    """Since when, where, in which queue, blocked on what, how sure."""
    ranks = ", ".join(map(str, finding.ranks))
    gauge = f" (gauge {GAUGES[finding.queue]})" if finding.queue in GAUGES else ""
    return [
        f"since       {utc(finding.since.wall_ns) or 'an unknown time'} (seq {finding.since.seq})",
        escape(f"where       {finding.role} rank {ranks}, process {finding.process}"),
        f"life        {finding.incarnation} of this room id",
        f"state       {finding.state.label}",
        f"queue       {finding.queue or 'none of the transfer queues'}{gauge}",
        f"blocked on  {finding.blocked_on}",
        *(line for reason in finding.reasons for line in wrapped("because", reason)),
    ]


def story_lines(story: Sequence[Step], paint: Paint = plain, start: Event | None = None) -> list[str]:
    """The numbered sentences; decisive ones are marked with ``>``, reasons stand below their step."""
    lines: list[str] = []
    start = start or next((step.event for step in story), None)
    for step in story:
        mark = ">" if step.decisive else " "
        text = f"{mark}{step.n:3d}. {_relative(step.event, start):>12}  {escape(step.text)}"
        lines.append(paint(text, "bold") if step.decisive else text)
        if step.why:
            lines.append(f"{'':20}{escape(step.why)}")
    return lines


def _relative(event: Event, start: Event | None) -> str:
    if start is None or event.process != start.process or None in (event.mono_ns, start.mono_ns):
        return "other clock" if start is not None and event.process != start.process else "no clock"
    assert event.mono_ns is not None and start.mono_ns is not None
    return f"+{(event.mono_ns - start.mono_ns) / 1e6:.3f} ms"


def outcome(finding: Finding) -> list[str]:
    """What follows, and the remedy."""
    told = [line for each in finding.implies for line in wrapped("implies", each)]
    return [*told, *wrapped("remedy", finding.remedy)]


def wrapped(name: str, text: str) -> list[str]:
    """A named paragraph, twelve columns in."""
    head, rest = name.ljust(12), " " * 12
    return wrap(escape(text), WIDTH, initial_indent=head, subsequent_indent=rest, break_long_words=False)


# ---------------------------------------------------------------------------------------- one room


def room_text(room: Room, verdict: Verdict, path: str, paint: Paint = plain) -> str:
    """The answer of ``tracekv show``: every life of the room in sentences, then the verdict on it.

    ``verdict`` is the one on this room alone.
    """
    about = [each for each in verdict.findings if each.room == room.room]
    blocks = [f"room {room.room} (0x{room.room:x}): {_lives(room)}"]
    blocks += [_life(life, room, about, paint) for life in _tellers(room)]
    blocks += [_summarized(each, paint) for each in about]
    if not about:
        blocks.append(headline(verdict, paint))
    blocks.append(_listed("what this trace cannot tell", verdict.reasons))
    blocks.append(_listed("notes", (note.text for note in verdict.notes if note.room == room.room)))
    blocks.append(_next_of_room(room.room, path, bool(about)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _summarized(finding: Finding, paint: Paint) -> str:
    lines = [*facts(finding), *outcome(finding)]
    return "\n".join([paint(title(finding), "bold"), *(f"  {line}" for line in lines)])


def _lives(room: Room) -> str:
    told = [f"{life.role} life {life.n} in process {life.process}" for life in room.lives]
    return escape(", ".join(told))


def _tellers(room: Room) -> tuple[Life, ...]:
    """The lives whose stories together tell the room: the prefill ones, or whatever there is."""
    seen: set[tuple[str, int, int]] = set()
    told = []
    for life in room.prefill or room.lives:
        if _key(life) not in seen:
            told.append(life)
            seen |= {_key(each) for each in lives_beside(life, room)}
    return tuple(told)


def _life(life: Life, room: Room, findings: Iterable[Finding], paint: Paint) -> str:
    own = [each for each in findings if (each.process, each.manager, each.incarnation) == _key(life)]
    decisive = sorted({seq for each in own for seq in each.decisive})
    story = story_of(lives_beside(life, room), life.process, decisive)
    lines = [escape(f"life {life.n} ({life.role}): {_ending(life)}")]
    start = next((step.event for step in story), None)
    for step in story:
        head = f"{'>' if step.decisive else ' '}{step.n:3d}. {_clocks(step.event, start)}"
        line = f"{head}  {escape(step.text)}{_detail(step.event)}"
        lines.append(paint(line, "bold") if step.decisive else line)
        if step.why:
            lines.append(f"{'':8}{escape(step.why)}")
    return "\n".join(lines)


def _key(life: Life) -> tuple[str, int, int]:
    return life.process, life.manager, life.n


def _ending(life: Life) -> str:
    if life.cleared is not None:
        return "cleared"
    if life.replaced:
        return "another life of the id was opened before this one was cleared"
    verb = "settled in" if life.settled else "still open where the trace ends, in"
    return f"{verb} {life.state.label}"


def _clocks(event: Event, start: Event | None) -> str:
    return f"{_relative(event, start):>12}  {utc(event.wall_ns) or 'no wall clock':27}"


def _detail(event: Event) -> str:
    site = f" at {event.site}" if event.site else ""
    return escape(f"  [{event.thread or '?'} seq {event.seq}{site}]")


# -------------------------------------------------------------------------------------- the ending


def _listed(name: str, lines: Iterable[str]) -> str:
    told = [f"  {escape(line)}" for line in lines]
    return "\n".join([f"{name}:", *told]) if told else ""


def _evidence(evidence: Evidence) -> str:
    checked = [f"  {key}  {claim}" for key, claim in evidence.invariants.items()]
    seen = f"  on {_count(evidence.rooms, 'room')}; seams: {', '.join(map(escape, evidence.seams)) or 'none'}"
    return "\n".join(["checked:", *checked, f"{seen}; rows lost: {evidence.rows_lost}"])


def next_commands(verdict: Verdict, path: str) -> str:
    """The next command to run."""
    first = sorted(verdict.findings, key=lambda each: each.kind != "pinned")[:1]
    if first:
        return _next_of_room(first[0].room, path, True)
    return f"next: tracekv rooms {shlex.quote(escape(path))}"


def _next_of_room(room: int, path: str, suspicious: bool) -> str:
    trace = shlex.quote(escape(path))
    lines = [f"next: tracekv show {trace} {room} -o room.png"]
    if suspicious:
        lines.append(f"      tracekv replay {trace} --room {room}")
    return "\n".join(lines)


def indent(text: str) -> str:
    """Every line two further to the right."""
    return "\n".join(f"  {line}" for line in text.rstrip("\n").split("\n"))
