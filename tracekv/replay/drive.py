"""One room on one rig, driven step by step; and what is said when it does not go along.

The promise: a run ends.  Either the schedule was consumed and the rig is quiescent, or there is a
:class:`Divergence` that says at which step, what was expected, what was there instead and who could
have gone on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tracekv.event import Event, Op
from tracekv.replay.rigs import End, Pending, Rig, Scenario, Stalled
from tracekv.replay.schedule import HARD, POLL, Schedule, Step, gate_of

REST_ORDER: Final = ("W", "B", "S", "D")  # who goes first once the schedule is consumed
#: A soft write comes after the reads that lead to it, however many of them this build has.
EFFECTS: Final = frozenset({Op.STATUS_WRITTEN, Op.STATUS_DROPPED, Op.PEER_ADDED, Op.PEER_POPPED})
READS: Final = frozenset({Op.STATUS_CHECKED, Op.PEER_CHECKED})
STEP_LIMIT: Final = 20_000


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a schedule and the code part.

    ``step`` counts from 0.  ``enabled`` lists who could have gone on, and where they stood;
    ``last`` the last three events before.
    """

    step: int
    expected: str
    got: str
    enabled: tuple[str, ...]
    last: tuple[str, ...] = ()
    stack: str | None = None

    def __str__(self) -> str:
        enabled = ", ".join(self.enabled) or "nobody"
        return f"diverged at step {self.step}: expected {self.expected}, got {self.got}; enabled: {enabled}"


@dataclass(slots=True)
class Run:
    """One execution: the room's id, how it ended, and how far the schedule was followed."""

    room: int
    end: End
    consumed: int
    divergence: Divergence | None = None


class _Diverged(Exception):
    def __init__(self, divergence: Divergence) -> None:
        super().__init__(str(divergence))
        self.divergence = divergence


class _Driver:
    """Follows one schedule on one rig."""

    def __init__(self, rig: Rig, schedule: Schedule) -> None:
        self.rig = rig
        self.schedule = schedule
        self.index = 0
        self.events: list[str] = []

    def drive(self) -> None:
        """All steps in order, then whatever is left, in a fixed order."""
        follow = self._strictly if self.schedule.kind == "strict" else self._towards
        for index, step in enumerate(self.schedule.steps):
            self.index = index
            follow(step)
        self.index = len(self.schedule.steps)
        self._rest()

    def _strictly(self, step: Step) -> None:
        pending = self.rig.parked().get(step.actor)
        if pending is None:
            raise self._diverged(step, f"{step.actor} has finished or died")
        if not step.fits(pending):
            raise self._diverged(step, describe(pending))
        if not pending.enabled:
            raise self._diverged(step, f"{step.actor} blocked: it waits for {pending.waits.value}")
        self._grant(step.actor, step)

    def _towards(self, step: Step) -> None:
        """Run the step's actor until it is through the step (or back at it, or it is passed over)."""
        for _ in range(STEP_LIMIT):
            pending = self.rig.parked().get(step.actor)
            if pending is None:
                if not step.hard:
                    return
                raise self._diverged(step, f"{step.actor} has finished or died")
            if step.fits(pending) and (step.arrives or pending.enabled):
                if not step.arrives:
                    self._grant(step.actor, step)
                return
            if step.gate == POLL and step.fits(pending):
                return  # a poll that would see nothing new
            if not step.hard and not (step.gate in EFFECTS and gate_of(pending) in READS and pending.enabled):
                return  # a soft step that the code does not offer
            if not pending.enabled:
                self._unblock(step, pending)
            elif gate_of(pending) in HARD:
                raise self._diverged(step, describe(pending))
            else:
                self._grant(step.actor, step)
        raise self._diverged(step, f"{STEP_LIMIT} events without it")

    def _unblock(self, step: Step, blocked: Pending) -> None:
        """Let somebody else do something that no anchor orders, since the actor cannot go on."""
        for actor, pending in self.rig.parked().items():
            if actor != step.actor and pending.enabled and gate_of(pending) not in HARD:
                self._grant(actor, step)
                return
        raise self._diverged(step, f"{step.actor} blocked: it waits for {blocked.waits.value}")

    def _rest(self) -> None:
        for _ in range(STEP_LIMIT):
            parked = self.rig.parked()
            ready = [actor for actor in REST_ORDER if actor in parked and parked[actor].enabled]
            if not ready:
                return
            done = Step(ready[0], gate_of(parked[ready[0]]))
            if self.schedule.kind == "strict":
                raise self._diverged(Step("-", "the end of the schedule"), str(done))
            self._grant(ready[0], done)

    def _grant(self, actor: str, step: Step) -> None:
        try:
            row = self.rig.grant(actor)
        except Stalled as stalled:
            raise self._diverged(step, f"{actor} stalled", stack=str(stalled)) from stalled
        self.events.append(_told(actor, row))

    def _diverged(self, step: Step, got: str, stack: str | None = None) -> _Diverged:
        enabled = tuple(describe(p) for p in self.rig.parked().values() if p.enabled)
        return _Diverged(Divergence(self.index, str(step), got, enabled, tuple(self.events[-3:]), stack))


def describe(pending: Pending) -> str:
    """An actor and the gate that it stands at."""
    return str(Step(pending.actor, gate_of(pending), pending.chunk))


def _told(actor: str, row: Event | None) -> str:
    return f"{actor} (an operation that raised)" if row is None else f"{actor} {row.op}"


def run_once(rig: Rig, scenario: Scenario, schedule: Schedule) -> Run:
    """Execute ``scenario`` once in the order of ``schedule`` on a fresh room of ``rig``.

    Raises Stalled where the rig does not even bring every actor to its first gate.
    """
    room = rig.begin(scenario)
    driver = _Driver(rig, schedule)
    divergence: Divergence | None = None
    try:
        driver.drive()
    except _Diverged as diverged:
        divergence = diverged.divergence
    end = rig.end()
    if divergence is not None and end.died:
        divergence = _died(divergence, end.died)
    return Run(room, end, driver.index, divergence)


def _died(divergence: Divergence, died: Mapping[str, str]) -> Divergence:
    said = "; ".join(f"{actor} died: {why}" for actor, why in died.items())
    return replace(divergence, got=f"{divergence.got} ({said})")
