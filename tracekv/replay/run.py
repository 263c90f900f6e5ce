"""Execute a recorded room again, N times, and let the analyzer say what happened.

A room's rows become a scenario and a schedule; a rig executes them; every execution is recorded, and
its trace is judged by the same analyzer that judged the original.  *Reproduced* means the same
findings (kind, state, role) with the whole schedule followed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tracekv.errors import CannotTellError, UsageError
from tracekv.examine import Examined, examine
from tracekv.replay.answer import Replay, answer_of
from tracekv.replay.choose import end_before, only_violating, prefill_life, prefill_managers, rows_of
from tracekv.replay.job import Job
from tracekv.replay.repeat import repeat
from tracekv.replay.rigs.build import normalized
from tracekv.replay.schedule import Schedule, anchored_schedule, scenario_of, strict_schedule

RIGS: Final = ("nixl", "sglang")
EXPECTATIONS: Final = ("reproduced", "pinned", "failed", "success")
KINDS: Final = ("strict", "anchored")
STEPS_LIMIT: Final = 50_000  # gated events of one room; a healthy one has some tens


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
    _check_keep(keep)
    seen = examine(trace)
    chosen = room if room is not None else only_violating(seen)
    life = prefill_life(seen, chosen)
    about = tuple(each for each in seen.findings if each.room == chosen)
    process = trace.processes.get(life.process)
    target = normalized(build if build is not None else (process and process.build) or "")
    if not target:
        raise UsageError("no build is named, and the trace names none", hint="Name one with --build.")
    rows = rows_of(trace, life, end_before(seen, life))
    prefill = prefill_managers(trace, life.process)
    strict = (kind or _kind(process, rig, target)) == "strict"
    if strict and (process is None or process.detail != "gates"):
        raise UsageError(
            "a strict schedule needs a trace with every gated event",
            hint="Record with TRACEKV_DETAIL=gates, or leave --schedule out.",
        )
    schedule = (strict_schedule if strict else anchored_schedule)(rows, prefill)
    _check_steps(schedule, chosen)
    with _folder(keep) as folder:
        source = _source(rig, target, fetch)
        job = Job(rig, target, str(folder), scenario_of(rows), schedule, times, source)
        done = repeat(job, told)
        return answer_of(job, done, _examined(folder), life, about, expect)


def _check(rig: str, expect: str, kind: str | None, times: int) -> None:
    """Refuse an option that means nothing, and name those that do."""
    for what, said, known in (("rig", rig, RIGS), ("expectation", expect, EXPECTATIONS)):
        if said not in known:
            raise UsageError(f"there is no {what} {said!r}", hint="There are: " + ", ".join(known))
    if kind is not None and kind not in KINDS:
        raise UsageError(f"there is no kind of schedule {kind!r}", hint="There are: " + ", ".join(KINDS))
    if times < 1:
        raise UsageError(f"a room cannot be replayed {times} times", hint="Once, or more often.")


def _check_keep(keep: Path | None) -> None:
    """A trace of its own: replays that lie among other rows would change what those say."""
    if keep is None:
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / ".tracekv").touch()
        (keep / ".tracekv").unlink()
        taken = any(keep.iterdir())
    except OSError as error:
        raise UsageError(f"cannot keep the replays in {keep}: {error.strerror}") from error
    if taken:
        raise UsageError(f"{keep} is not empty", hint="Keep the replays in a folder of their own.")


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
    """The replays' own trace, judged; nothing is said from a recording with holes."""
    from tracekv.trace.store import open_trace

    recorded = open_trace(folder)
    lost = [f"{loss.n} rows of {loss.thread}: {loss.why}" for loss in recorded.losses]
    holes = lost + [str(each) for each in recorded.damage]
    if holes:
        raise CannotTellError(
            f"the replays could not be recorded whole in {folder} ({holes[0]})",
            hint="Is the disk full? TMPDIR or --keep choose another one.",
        )
    return examine(recorded)
