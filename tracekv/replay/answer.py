"""What N runs of one room come to: how often it happened again, and how it ended otherwise.

The promise: a run counts as reproduced only where its own trace shows the same findings, and where the
rig's own dictionaries and the analyzer do not contradict each other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tracekv.examine import Examined
from tracekv.explain import story_of
from tracekv.finding import Finding
from tracekv.replay.choose import prefill_life
from tracekv.replay.drive import Divergence, Run
from tracekv.replay.job import Job
from tracekv.replay.repeat import Repeated
from tracekv.replay.schedule import Schedule
from tracekv.replay.turn import Turn, first_turn
from tracekv.rooms import Life

Signature = frozenset[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer: how often the room's findings happened again, and how it ended otherwise.

    ``outcomes`` counts the end states of the runs that followed the schedule, ``kinds`` the runs in which
    the analyzer found each kind, ``left_behind`` what rooms left after they were cleared.  ``disputed``
    counts runs about which the analyzer and the rig's own dictionaries disagree, ``corrupted`` those in
    which bytes differed although their transfer was seen done; neither meets any expectation.  ``turn``
    is the first step at which a run that ended otherwise was no longer like the original.
    """

    room: int
    rig: str
    manager: str
    build: str
    schedule: Schedule
    times: int
    reproduced: int
    kinds: dict[str, int]
    outcomes: dict[str, int]
    left_behind: dict[str, int]
    diverged: Divergence | None
    divergences: int
    disputed: int
    corrupted: int
    bytes_checked: int
    bytes_wrong: int
    expect: str
    met: int
    original: tuple[Finding, ...]
    turn: Turn | None = None

    @property
    def pinned(self) -> int:
        """Runs in which the analyzer found the room pinned."""
        return self.kinds.get("pinned", 0)

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

    @property
    def sound(self) -> bool:
        """Whether the run counts: analyzer and rig agree, and the bytes are right."""
        return not self.disputed and not self.run.end.bytes_wrong

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


def answer_of(
    job: Job, done: Repeated, again: Examined, life: Life, original: tuple[Finding, ...], expect: str
) -> Replay:
    runs = _judged(done.runs, again.findings)
    followed = [each for each in runs if each.run.divergence is None]
    sound = [each for each in followed if each.sound]
    same = [each for each in sound if each.same(original, life)]
    met = {"reproduced": same, "pinned": [each for each in sound if each.pinned]}.get(expect)
    if met is None:
        met = [each for each in sound if each.run.end.label.lower() == expect and not each.pinned]
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
        kinds=dict(Counter(kind for each in runs for kind in sorted({f.kind for f in each.findings}))),
        outcomes=dict(Counter(each.run.end.label for each in followed)),
        left_behind=dict(Counter(what for run in done.runs for what in run.end.left)),
        diverged=diverged[0] if diverged else None,
        divergences=len(diverged),
        disputed=sum(each.disputed for each in runs),
        corrupted=sum(bool(run.end.bytes_wrong) for run in done.runs),
        bytes_checked=sum(run.end.bytes_checked for run in done.runs),
        bytes_wrong=sum(run.end.bytes_wrong for run in done.runs),
        expect=expect,
        met=len(met),
        original=original,
        turn=None if otherwise is None else _turn(life, original, again, otherwise.room),
    )


def _turn(life: Life, original: tuple[Finding, ...], again: Examined, room: int) -> Turn | None:
    story = original[0].story if original else story_of((life,), life.process)
    numbers = {step.event.seq: step.n for step in story}
    return first_turn(life, prefill_life(again, room), numbers)


def _ended(life: Life) -> str:
    polled = life.polled
    return polled.label if polled is not None and polled.terminal else life.state.label
