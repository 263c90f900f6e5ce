"""The model as the oracle: what a run of a build's policy did is known, and the detectors must say it.

Every run is a random interleaving of one room.  A proof of a pin at any moment of the run has to be
true of the state that the model was really in, and a room that the model left hanging must be proved.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from tests.memory import Memory
from tracekv.event import Event, Op
from tracekv.machine import POLICIES, Policy, RoomState, enabled, ending, opening, perform, settles
from tracekv.story import manager_of, preamble, thread_of
from tracekv.verdict import analyze

BUILDS = sorted(set(POLICIES) - {"mooncake"})


class Run:
    """One interleaving: the rows that it leaves, and the model's state after each of its steps."""

    def __init__(self, policy: Policy, seed: int, *, aborts: bool = True) -> None:
        self.policy, self.random = policy, random.Random(seed)
        self.states: list[tuple[int, RoomState]] = []
        self.rows: list[Event] = []
        state = opening(chunks=self.random.choice((1, 2)), aborts=aborts)
        while moves := enabled(state, policy):
            action = self.random.choice(moves)
            done = perform(state, action, policy)
            for row in done.rows:
                self._row(row.actor, row.op, dict(row.attrs), **row.columns)
            self._idle(action.actor, state, done.state)
            state = done.state
            self.states.append((len(self.rows), state))
        self.end = ending(state)

    def _row(
        self, letter: str, op: str, attrs: dict[str, object], *, room: int | None = 7, **columns: object
    ) -> None:
        seq = len(self.rows)
        event = Event(
            seq=1000 + seq, op=op, process="p", thread=thread_of(letter), manager=manager_of(letter),
            room=room, mono_ns=seq * 1000, wall_ns=seq * 1000, attrs=json.dumps(attrs), **columns,  # type: ignore[arg-type]
        )  # fmt: skip
        self.rows.append(event)

    def _idle(self, letter: str, before: RoomState, after: RoomState) -> None:
        """The rows of a thread that is back where it waits, and of one that died."""
        actor = after.actor(letter) if letter in "BW" else None
        if actor is None or before.actor(letter) == actor:
            return
        if actor.at == "worker.idle":
            if not self._posted():
                self._row("W", Op.CHUNK_SKIPPED, {}, chunk=before.worker.chunk or 0)
            self._row("W", Op.WORKER_WAITING, {"queue": 0, "length": len(after.queue)}, room=None)
        if actor.at == "control.idle":
            self._row("B", Op.CONTROL_WAITING, {}, room=None)
        if actor.at == "dead":
            self._row(letter, Op.THREAD_DIED, {}, room=None, reason=actor.error)

    def _posted(self) -> bool:
        for row in reversed(self.rows):
            if row.op == Op.XFER_POSTED:
                return True
            if row.op == Op.CHUNK_DEQUEUED:
                return False
        return False

    def trace(self, build: str | None, rows: int | None = None) -> Memory:
        return Memory([*preamble(build=build), *self.rows[:rows]])


def proved(trace: Memory) -> bool:
    found = [each for each in analyze(trace).findings if each.kind == "pinned"]
    assert all(each.certainty == "proof" for each in found)  # no time passes in these runs
    return bool(found)


@pytest.mark.parametrize("build", BUILDS)
def test_a_room_is_proved_to_hang_where_the_model_left_it_hanging(build: str) -> None:
    ends = {True: 0, False: 0}
    for seed in range(120):
        run = Run(POLICIES[build], seed)
        hangs = run.end.pinned and not settles(run.states[-1][1], POLICIES[build]).settles
        ends[hangs] += 1
        assert proved(run.trace(build)) == hangs, (build, seed, run.end)
    assert ends[False] > 0


@pytest.mark.parametrize("build", BUILDS)
def test_a_proof_is_true_at_every_moment_of_a_run(build: str) -> None:
    for seed in range(12):
        run = Run(POLICIES[build], seed)
        for rows, state in run.states:
            if proved(run.trace(build, rows)):
                assert not settles(state, POLICIES[build]).settles, (build, seed, rows)


@pytest.mark.parametrize("build", BUILDS)
def test_without_a_label_a_proof_still_holds_for_the_build_that_ran(build: str) -> None:
    for seed in range(60):
        run = Run(POLICIES[build], seed)
        if proved(run.trace(None)):
            assert run.end.pinned, (build, seed)


@pytest.mark.parametrize("build", BUILDS)
def test_a_run_without_an_abort_has_no_finding(build: str) -> None:
    for seed in range(60):
        run = Run(POLICIES[build], seed, aborts=False)
        found = {each.kind for each in analyze(run.trace(build)).findings}
        assert found == set() or run.end.pinned, (build, seed, found)


@pytest.mark.parametrize("build", BUILDS)
def test_findings_are_what_the_rows_say(build: str) -> None:
    """The slow, obvious reading of the rows: one room, one dictionary, one pass."""
    for seed in range(120):
        run = Run(POLICIES[build], seed)
        verdict = analyze(run.trace(build))
        found = {each.kind for each in verdict.findings}
        cleared = next((n for n, row in enumerate(run.rows) if row.op == Op.ROOM_CLEARED), len(run.rows))
        lifted = [row for row in run.rows[:cleared] if row.old in (0, 4) and row.op == Op.STATUS_WRITTEN]
        lifted = [row for row in lifted if row.new != row.old]
        healed = any(note.kind == "healed_resurrection" for note in verdict.notes)
        assert ("resurrection" in found or healed) == bool(lifted), (build, seed)
        assert ("ghost_room" in found) <= bool(run.states[-1][1].left), (build, seed)


def test_a_mutated_run_is_always_found() -> None:
    """Whatever wrote Failed last before the clear: put a Transferring over it."""
    mutated = 0
    for seed in range(60):
        run = Run(POLICIES["0.5.16"], seed)
        at = next((n for n, row in enumerate(run.rows) if row.op == Op.STATUS_WRITTEN and row.new == 0), None)
        if at is None:
            continue
        lift = replace(run.rows[at], thread="worker-0", requested=3, old=0, new=3, seq=run.rows[at].seq)
        rows = [replace(row, seq=row.seq * 2) for row in [*preamble(), *run.rows]]
        rows.append(replace(lift, seq=run.rows[at].seq * 2 + 1))
        mutated += 1
        assert "resurrection" in {each.kind for each in analyze(Memory(rows)).findings}
    assert mutated > 10
