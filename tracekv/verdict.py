"""Three answers, and the only place that may say clean.

``Clean`` needs evidence: rooms that settled and show each step that their others presuppose, rows that
agree with each other, the seams that every kind needs, no rows lost, nothing damaged, nothing left
undone.  Whatever is missing makes it ``CannotTell``, with the reason; a violation stays a
violation on partial input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Union

from tracekv.detect import DETECTORS, Context
from tracekv.detect.observed import unfinished
from tracekv.detect.policies import fits_of
from tracekv.errors import EXIT_CANNOT_TELL, EXIT_CLEAN, EXIT_VIOLATION
from tracekv.examine import Examined, examine
from tracekv.finding import Finding, Note, Step
from tracekv.rooms import Life, Room, missing, opposite, unsent

__all__ = [
    "CannotTell",
    "Clean",
    "Evidence",
    "Finding",
    "Note",
    "Step",
    "Verdict",
    "Violation",
    "analyze",
    "judge",
]


@dataclass(frozen=True)
class Evidence:
    """What a verdict rests on.  Times are wall clock in ns; ``seams`` are those seen installed anywhere."""

    rooms: int
    lives: int
    settled: int
    open: int
    invariants: dict[str, str]
    seams: tuple[str, ...]
    rows: int
    rows_lost: int
    processes: tuple[Any, ...]
    managers: tuple[Any, ...] = ()
    damage: tuple[Any, ...] = ()
    partial: bool = False
    first_wall_ns: int | None = None
    last_wall_ns: int | None = None


@dataclass(frozen=True)
class Violation:
    """At least one invariant is broken."""

    findings: tuple[Finding, ...]
    evidence: Evidence
    notes: tuple[Note, ...] = ()
    reasons: tuple[str, ...] = ()
    name: ClassVar[str] = "violation"
    exit_code: ClassVar[int] = EXIT_VIOLATION


@dataclass(frozen=True)
class Clean:
    """Every room settled, every invariant held, and everything that had to be seen was seen."""

    evidence: Evidence
    notes: tuple[Note, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), init=False)
    reasons: tuple[str, ...] = field(default=(), init=False)
    name: ClassVar[str] = "clean"
    exit_code: ClassVar[int] = EXIT_CLEAN


@dataclass(frozen=True)
class CannotTell:
    """Nothing was found, and the evidence does not carry more than that."""

    reasons: tuple[str, ...]
    evidence: Evidence
    notes: tuple[Note, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), init=False)
    name: ClassVar[str] = "cannot_tell"
    exit_code: ClassVar[int] = EXIT_CANNOT_TELL


Verdict = Union[Violation, Clean, CannotTell]  # noqa: UP007 (a runtime alias on Python 3.10)


def analyze(trace: Any, *, stuck_after_s: float | None = None, room: int | str | None = None) -> Verdict:
    """Judge a trace, or one room of it.

    Parameters
    ----------
    trace
        a path, what ``tracekv.open`` gives, or what ``tracekv.trace.store.open_trace`` gives: rows,
        processes, managers, losses, damage.
    stuck_after_s
        seconds without progress after which a room is suspected; derived from the trace if not given.
    room
        judge this room only (a number, or decimal or ``0x`` hex text); the rest of the trace still serves
        as evidence about its threads.

    Raises
    ------
    UsageError
        when ``room`` is not in the trace, or ``stuck_after_s`` is no time to wait.
    """
    return judge(examine(_trace_of(trace), stuck_after_s=stuck_after_s, room=room))


def _trace_of(given: Any) -> Any:
    """The trace itself: a recording holds one, a path leads to one."""
    if isinstance(given, (str, PathLike)):
        from tracekv.trace.store import open_trace

        return open_trace(Path(given))
    return getattr(given, "trace", given)


def judge(seen: Examined) -> Verdict:
    """The verdict on what an examination found."""
    evidence = _evidence(seen)
    reasons = _reasons(seen, evidence)
    if seen.findings:
        return Violation(seen.findings, evidence, seen.notes, reasons)
    if reasons:
        return CannotTell(reasons, evidence, seen.notes)
    return Clean(evidence, seen.notes)


# ---------------------------------------------------------------------------------- the evidence


def _evidence(seen: Examined) -> Evidence:
    trace, lives = seen.trace, seen.lives
    settled = sum(life.settled for life in lives)
    damage = tuple(trace.damage)
    return Evidence(
        rooms=len(seen.chosen),
        lives=len(lives),
        settled=settled,
        open=len(lives) - settled,
        invariants=dict(sorted((each.invariant, each.claim) for each in DETECTORS)),
        seams=_seams_seen(lives, seen.context),
        rows=seen.survey.rows,
        rows_lost=sum(loss.n for loss in trace.losses),
        processes=tuple(trace.processes.values()),
        managers=tuple(trace.managers.values()),
        damage=damage,
        partial=bool(damage or trace.losses or getattr(trace, "partial", False)),
        first_wall_ns=seen.survey.first_wall_ns,
        last_wall_ns=seen.survey.last_wall_ns,
    )


def _seams_seen(lives: Iterable[Life], context: Context) -> tuple[str, ...]:
    seen: set[str] = set()
    for life in _one_a_manager(lives):
        seen |= {name for name, state in context.seams_of(life).items() if state == "installed"}
    return tuple(sorted(seen))


def _one_a_manager(lives: Iterable[Life]) -> Iterable[Life]:
    return {(life.process, life.manager): life for life in lives}.values()


def _reasons(seen: Examined, evidence: Evidence) -> tuple[str, ...]:
    """Why this trace cannot be called clean, most telling first; empty where it can.

    A pinned room is open too, and that it is needs no reason of its own.
    """
    found: list[str] = []
    stuck = {(each.process, each.manager, each.room) for each in seen.findings if each.kind == "pinned"}
    if not seen.lives:
        found.append("the trace holds no rooms")
    going = [life for life in seen.lives if (life.process, life.manager, life.room) not in stuck]
    found += [*_open_reasons(going, seen.context), *_unfinished_reasons(seen.lives, seen.context)]
    found += [*_doubt_reasons(seen.lives, seen.context), *_missing_reasons(going, seen.rooms)]
    found += [*_loss_reasons(seen.context), *_damage_reasons(evidence), *_label_reasons(seen)]
    for life in _one_a_manager(seen.lives):
        found.extend(_seam_reasons(life, seen.context))
    if seen.lives and evidence.settled == 0 and not stuck:
        found.append("no room settled in this trace")
    return tuple(found)


def _open_reasons(lives: Iterable[Life], context: Context) -> Iterator[str]:
    still = [life for life in lives if life.open]
    if not still:
        return
    oldest = min(still, key=lambda life: life.first.wall_ns or 0)
    age = _age_s(oldest, context)
    since = "" if age is None else f", {age:.3f} s old at the last row of its process"
    noun = "life is" if len(still) == 1 else "lives are"
    yield (
        f"{len(still)} {noun} still open where the trace ends; the oldest is room {oldest.room} "
        f"({oldest.role}, incarnation {oldest.n}) in {oldest.state.label}{since}"
    )


def _unfinished_reasons(lives: Iterable[Life], context: Context) -> Iterator[str]:
    """What a thread still had in hand for a room that is over: its next row may be the bad one."""
    told = ((life, unfinished(life, context)) for life in lives if life.settled and life.entered)
    yield from _grouped(
        (f"{what} of room {life.room} where the trace ends", what) for life, what in told if what
    )


def _doubt_reasons(lives: Iterable[Life], context: Context) -> Iterator[str]:
    yield from _grouped((doubt, life.role) for life in lives for doubt in life.doubts)
    for process in dict.fromkeys(life.process for life in lives):
        if process in context.misordered:
            yield context.misordered[process]


def _missing_reasons(lives: Iterable[Life], rooms: Mapping[int, Room]) -> Iterator[str]:
    told = (
        (life, lack)
        for life in lives
        for lack in (*missing(life), *unsent(life, partial(opposite, life, rooms[life.room])))
    )
    yield from _grouped((f"rows of room {life.room} are missing: {lack}", lack) for life, lack in told)


def _grouped(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The first sentence of each kind, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for sentence, kind in told:
        kinds.setdefault(kind, []).append(sentence)
    for first, *more in kinds.values():
        yield f"{first} ({len(more)} more like it)" if more else first


def _label_reasons(seen: Examined) -> Iterator[str]:
    """Where the code that ran is not the code that the process names, nothing about the build is known."""
    for life in _one_a_manager(life for life in seen.lives if life.role == "prefill"):
        fits = fits_of(life, seen.context)
        if fits.contradicted:
            yield f"process {life.process}: {fits.why}"


def _age_s(life: Life, context: Context) -> float | None:
    times = context.times.get(life.process)
    begin = life.first.mono_ns
    return (times[-1] - begin) / 1e9 if times and begin is not None else None


def _loss_reasons(context: Context) -> Iterator[str]:
    for loss in context.losses:
        yield f"{loss.n} rows of process {loss.process}, thread {loss.thread}, were lost ({loss.why})"


def _damage_reasons(evidence: Evidence) -> Iterator[str]:
    for each in evidence.damage:
        yield f"damaged: {each.file}, {each.where}: {each.why}"
    if evidence.partial and not evidence.damage and not evidence.rows_lost:
        yield "the trace says that it is partial"


def _seam_reasons(life: Life, context: Context) -> Iterator[str]:
    where = f"{life.role} manager {life.manager} of process {life.process}"
    engine = getattr(context.processes.get(life.process), "engine", None)
    if context.manager_of(life) is None or engine is None:
        yield f"nothing says which engine ran, and as what: the {where}"
    if not context.seams_of(life):
        yield f"nothing says which seams were installed for the {where}"
        return
    needed = sorted({name for each in DETECTORS for name in each.seams.get(life.role, ())})
    missing = context.seams_missing(life, needed)
    if missing:
        kinds = [each.id for each in DETECTORS if set(each.seams.get(life.role, ())) & set(missing)]
        yield f"seams not installed for the {where}: {', '.join(missing)} (needed for {', '.join(kinds)})"
