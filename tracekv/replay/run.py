"""Execute a recorded room again, N times, and let the analyzer say what happened.

A room's rows become a scenario and a schedule; a rig executes them; every execution is recorded, and
its trace is judged by the same analyzer that judged the original.  *Reproduced* means the same
findings (kind, state, role) with the whole schedule followed.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tracekv.errors import CannotTellError, UsageError
from tracekv.event import Event
from tracekv.examine import Examined, examine, find_room
from tracekv.finding import Finding
from tracekv.replay.drive import Divergence, Run
from tracekv.replay.job import Job
from tracekv.replay.repeat import Repeated, repeat
from tracekv.replay.schedule import (
    ARRIVALS,
    Schedule,
    anchored_schedule,
    scenario_of,
    strict_schedule,
)
from tracekv.replay.turn import Turn, first_turn
from tracekv.rooms import Life

RIGS: Final = ("nixl", "sglang")
EXPECTATIONS: Final = ("reproduced", "pinned", "failed", "success")
KINDS: Final = ("strict", "anchored")
STEPS_LIMIT: Final = 50_000  # gated events of one room; a healthy one has some tens

Signature = frozenset[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer: how often the room's findings happened again, and how it ended otherwise.

    ``outcomes`` counts end states, ``pinned`` the runs that the analyzer found pinned, ``left_behind``
    what rooms left after they were cleared.  ``disputed`` counts runs about which the analyzer and the
    rig's own dictionaries disagree; they count for no expectation.  ``turn`` is the first step at which
    a run that ended otherwise was no longer like the original.
    """

    room: int
    rig: str
    manager: str
    build: str
    schedule: Schedule
    times: int
    reproduced: int
    pinned: int
    outcomes: dict[str, int]
    left_behind: dict[str, int]
    diverged: Divergence | None
    divergences: int
    disputed: int
    bytes_checked: int
    bytes_wrong: int
    expect: str
    met: int
    original: tuple[Finding, ...]
    turn: Turn | None = None

    @property
    def held(self) -> bool:
        """Whether the expectation held every time."""
        return self.met == self.times

    @property
    def exit_code(self) -> int:
        """0 where the expectation held N/N, 3 where a run diverged, 1 otherwise."""
        if self.held:
            return 0
        return 3 if self.diverged is not None else 1


def replay(
    trace: Any,
    *,
    room: int | None = None,
    rig: str = "nixl",
    build: str | None = None,
    times: int = 1,
    expect: str = "reproduced",
    kind: str | None = None,
    fetch: bool = False,
    keep: Path | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> Replay:
    """Execute one room of ``trace`` again.

    Parameters
    ----------
    room
        the room; without it the only one with findings.
    rig
        ``nixl``: our model of the manager over real NIXL; ``sglang``: the engine's own code.
    build
        as :func:`tracekv.replay.rigs.build.parse_build` reads it; the trace's own otherwise.
    kind
        ``strict`` or ``anchored``; otherwise strict for the trace's own build and kind of manager.
    keep
        a folder that receives the recorded replays as a spool.

    Raises
    ------
    UsageError
        when no room or several could be meant, a build or a package is missing, a patch does not match.
    CannotTellError
        when the trace does not hold the room's prefill side.
    """
    _check(rig, expect, kind, times)
    _check_keep(trace, keep)
    seen = examine(trace)
    chosen = room if room is not None else only_violating(seen)
    life = prefill_life(seen, chosen)
    about = tuple(each for each in seen.findings if each.room == chosen)
    process = trace.processes.get(life.process)
    target = build or (process.build if process else None)
    if not target:
        raise UsageError("the trace does not say which build it is from", hint="Name one with --build.")
    rows = rows_of(trace, life, _before(seen, life))
    prefill = prefill_managers(trace, life.process)
    strict = (kind or _kind(process, rig, target)) == "strict"
    schedule = (strict_schedule if strict else anchored_schedule)(rows, prefill)
    _check_steps(schedule, chosen)
    with _folder(keep) as folder:
        source = _source(rig, target, fetch)
        job = Job(rig, target, str(folder), scenario_of(rows), schedule, times, source)
        done = repeat(job, told)
        return _answer(job, done, _examined(folder), life, about, expect)


def _check(rig: str, expect: str, kind: str | None, times: int) -> None:
    """Refuse an option that means nothing, and name those that do."""
    for what, said, known in (("rig", rig, RIGS), ("expectation", expect, EXPECTATIONS)):
        if said not in known:
            raise UsageError(f"there is no {what} {said!r}", hint="There are: " + ", ".join(known))
    if kind is not None and kind not in KINDS:
        raise UsageError(f"there is no kind of schedule {kind!r}", hint="There are: " + ", ".join(KINDS))
    if times < 1:
        raise UsageError(f"a room cannot be replayed {times} times", hint="Once, or more often.")


def _check_keep(trace: Any, keep: Path | None) -> None:
    path = getattr(trace, "path", None)
    if keep is not None and path is not None and keep.resolve() == Path(path).resolve():
        raise UsageError(f"{keep} is the trace itself", hint="Keep the replays in a folder of their own.")


def _check_steps(schedule: Schedule, room: int) -> None:
    if not any(step.hard for step in schedule.steps):
        raise CannotTellError(
            f"room {room}: the trace holds no step that could be executed again",
            hint="A replay needs rows of frames, chunks or transfers; was it recorded at the seams?",
        )
    if len(schedule.steps) > STEPS_LIMIT:
        raise CannotTellError(
            f"room {room}: the trace holds {len(schedule.steps):,} steps, a replay follows {STEPS_LIMIT:,}",
            hint="Is the trace damaged, or one room id used for many requests?",
        )


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


def _before(seen: Examined, life: Life) -> int:
    """The number of the last row of the life before this one, 0 where it is the first."""
    lives = seen.rooms[life.room].prefill
    earlier = (each for each in lives if (each.process, each.manager) == (life.process, life.manager))
    return max((each.last.seq for each in earlier if each.n < life.n), default=0)


def _kind(process: Any, rig: str, target: str) -> str:
    """Strict for the same code on the same kind of manager, if the trace has every gated event."""
    real = process is not None and process.engine == "sglang"
    same = process is not None and process.build == target and real == (rig == "sglang")
    return "strict" if same and process.detail == "gates" else "anchored"


def _source(rig: str, build: str, fetch: bool) -> str | None:
    if rig != "sglang":
        return None
    from tracekv.replay.rigs.build import find_source, parse_build
    from tracekv.replay.rigs.patches import patched_sources

    parsed = parse_build(build)
    source = find_source(parsed, fetch=fetch)
    patched_sources(source, parsed.patches)  # a patch that does not match is refused before a rig starts
    return str(source)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
    else:
        with tempfile.TemporaryDirectory(prefix="tracekv-replay-") as made:
            yield Path(made)


def _examined(folder: Path) -> Examined:
    from tracekv.trace.store import open_trace

    return examine(open_trace(folder))


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """A run and what the analyzer found in the trace of it."""

    run: Run
    findings: tuple[Finding, ...]

    @property
    def pinned(self) -> bool:
        return any(each.kind == "pinned" for each in self.findings)

    @property
    def disputed(self) -> bool:
        """Whether analyzer and rig disagree about a pinned sender at the end of a followed schedule."""
        found = any(each.kind == "pinned" and each.role == "prefill" for each in self.findings)
        return self.run.divergence is None and found != self.run.end.pinned

    def same(self, original: tuple[Finding, ...], life: Life) -> bool:
        """The same findings; for a room without any, the same end."""
        ended = bool(original) or self.run.end.label == _ended(life)
        return ended and signature(self.findings) == signature(original)


def _judged(runs: list[Run], findings: tuple[Finding, ...]) -> list[_Judged]:
    by_room: dict[int, list[Finding]] = {}
    for each in findings:
        by_room.setdefault(each.room, []).append(each)
    return [_Judged(run, tuple(by_room.get(run.room, ()))) for run in runs]


def signature(findings: tuple[Finding, ...]) -> Signature:
    """What must be the same for a room to be reproduced: kind, state and role of each finding."""
    return frozenset((each.kind, each.state.label, each.role) for each in findings)


def _answer(
    job: Job, done: Repeated, again: Examined, life: Life, original: tuple[Finding, ...], expect: str
) -> Replay:
    runs = _judged(done.runs, again.findings)
    followed = [each for each in runs if each.run.divergence is None]
    same = [each for each in followed if each.same(original, life) and not each.disputed]
    pinned = [each for each in runs if each.pinned and not each.disputed]
    met = {"reproduced": same, "pinned": pinned}.get(expect)
    if met is None:
        met = [each for each in followed if each.run.end.label.lower() == expect and not each.pinned]
    otherwise = next((each.run for each in followed if each not in same), None)
    diverged = [each.run.divergence for each in runs if each.run.divergence is not None]
    return Replay(
        room=life.room,
        rig=job.rig,
        manager=done.manager,
        build=job.build,
        schedule=job.schedule,
        times=len(done.runs),
        reproduced=len(same),
        pinned=len(pinned),
        outcomes=dict(Counter(run.end.label for run in done.runs)),
        left_behind=dict(Counter(what for run in done.runs for what in run.end.left)),
        diverged=diverged[0] if diverged else None,
        divergences=len(diverged),
        disputed=sum(each.disputed for each in runs),
        bytes_checked=sum(run.end.bytes_checked for run in done.runs),
        bytes_wrong=sum(run.end.bytes_wrong for run in done.runs),
        expect=expect,
        met=len(met),
        original=original,
        turn=None if otherwise is None else first_turn(life, prefill_life(again, otherwise.room)),
    )


def _ended(life: Life) -> str:
    polled = life.polled
    return polled.label if polled is not None and polled.terminal else life.state.label
