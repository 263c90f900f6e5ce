"""The driver follows a schedule, and says what there was instead wherever the code does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.paper import Entry, PaperRig
from tracekv.replay import drive
from tracekv.replay.drive import Divergence, run_once
from tracekv.replay.rigs import Rig, Scenario
from tracekv.replay.schedule import POLL, Schedule, Step

SCRIPTS: dict[str, list[Entry]] = {
    "S": ["status.written", POLL],
    "B": ["control.in", "peer.popped"],
    "W": [("xfer.posted", 0)],
}
IN_ORDER = ["S status.written", "B control.in", "B peer.popped", "W xfer.posted", f"S {POLL}"]


def steps(*told: str) -> tuple[Step, ...]:
    """``"S status.written"``: an actor and its gate; ``?`` soft, ``@`` arrives."""
    found = []
    for each in told:
        actor, gate = each.split()
        marks = {"hard": not gate.endswith("?"), "arrives": gate.startswith("@")}
        found.append(Step(actor, gate.strip("?@"), **marks))
    return tuple(found)


def strict(*told: str) -> Schedule:
    return Schedule("strict", steps(*told))


def anchored(*told: str) -> Schedule:
    return Schedule("anchored", steps(*told))


def divergence(rig: Rig, schedule: Schedule) -> Divergence:
    found = run_once(rig, Scenario(), schedule).divergence
    assert found is not None
    return found


# -- strict


def test_a_schedule_that_the_code_goes_along_with_is_consumed() -> None:
    rig = PaperRig(SCRIPTS)
    run = run_once(rig, Scenario(), strict(*IN_ORDER))
    assert (run.room, run.divergence, run.consumed) == (7, None, 5)
    assert rig.granted == IN_ORDER
    assert rig.ends == 1


def test_another_gate_than_expected() -> None:
    found = divergence(PaperRig(SCRIPTS), strict("S status.written", "B control.in", "B status.written"))
    assert (found.step, found.expected, found.got) == (2, "B status.written", "B peer.popped")
    assert set(found.enabled) == {"S poll", "B peer.popped", "W xfer.posted c0"}
    assert found.last == ("S status.written", "B control.in")
    said = "diverged at step 2: expected B status.written, got B peer.popped; enabled: "
    assert str(found).startswith(said)


def test_another_chunk_than_expected() -> None:
    schedule = Schedule("strict", (Step("W", "xfer.posted", 1),))
    found = divergence(PaperRig(SCRIPTS), schedule)
    assert (found.expected, found.got) == ("W xfer.posted c1", "W xfer.posted c0")


def test_blocked() -> None:
    rig = PaperRig(SCRIPTS, blocked=lambda actor, granted: actor == "B")
    found = divergence(rig, strict("S status.written", "B control.in"))
    assert found.got == "B blocked: it waits for a frame on its socket"
    assert found.enabled == ("S poll", "W xfer.posted c0")


def test_finished_and_dead_are_told_apart() -> None:
    schedule = strict("W xfer.posted", "W chunk.dequeued")
    assert divergence(PaperRig(SCRIPTS), schedule).got == "W has finished or died"
    found = divergence(PaperRig(SCRIPTS, dies={"W": "AssertionError: no peers"}), schedule)
    assert found.got == "W has finished or died (W died: AssertionError: no peers)"


def test_stalled_comes_with_the_stack() -> None:
    rig = PaperRig(SCRIPTS, stalls=["W"])
    found = divergence(rig, strict("S status.written", "W xfer.posted"))
    assert (found.step, found.got) == (1, "W stalled")
    assert found.stack is not None and "worker.py:12" in found.stack
    assert rig.ends == 1


def test_events_after_a_strict_schedule_are_a_divergence() -> None:
    found = divergence(PaperRig(SCRIPTS), strict(*IN_ORDER[:-1]))
    assert (found.step, found.expected, found.got) == (4, "- the end of the schedule", "S poll")
    assert found.last == ("B control.in", "B peer.popped", "W xfer.posted")


def test_a_schedule_that_is_longer_than_the_code_is_a_divergence() -> None:
    found = divergence(PaperRig(SCRIPTS), strict(*IN_ORDER, "B control.in"))
    assert (found.step, found.got, found.enabled) == (5, "B has finished or died", ())
    assert "enabled: nobody" in str(found)


def test_an_operation_that_raised_is_an_event() -> None:
    found = divergence(PaperRig(SCRIPTS, raises=["B"]), strict("B control.in", "S control.in"))
    assert found.last == ("B (an operation that raised)",)


@given(st.permutations(IN_ORDER))
def test_every_order_that_keeps_each_actors_own_is_followed(order: Sequence[str]) -> None:
    rig = PaperRig(SCRIPTS)
    run = run_once(rig, Scenario(), strict(*order))
    possible = all(
        [each for each in order if each[0] == actor] == [each for each in IN_ORDER if each[0] == actor]
        for actor in SCRIPTS
    )
    assert (run.divergence is None) == possible
    assert not possible or rig.granted == order


# -- anchored


def test_soft_steps_are_passed_over_and_new_events_are_run_through() -> None:
    rig = PaperRig(SCRIPTS)
    run = run_once(rig, Scenario(), anchored("B status.written?", "B control.in", "S poll", "W xfer.posted"))
    assert run.divergence is None
    assert rig.granted == ["B control.in", "S status.written", f"S {POLL}", "W xfer.posted", "B peer.popped"]


def test_an_arrival_runs_an_actor_up_to_a_gate_and_not_through_it() -> None:
    rig = PaperRig({"W": ["chunk.dequeued", "status.checked", "chunk.dequeued"]})
    run = run_once(rig, Scenario(), anchored("W chunk.dequeued", "W @chunk.dequeued"))
    assert run.divergence is None
    assert rig.granted == ["W chunk.dequeued", "W status.checked", "W chunk.dequeued"]
    schedule = anchored("W chunk.dequeued", "W @chunk.dequeued", "W xfer.posted")
    assert divergence(rig, schedule).got == "W chunk.dequeued"


def test_a_hard_event_that_no_anchor_orders_is_a_divergence() -> None:
    found = divergence(PaperRig({"W": ["xfer.settled", "xfer.posted"]}), anchored("W xfer.posted"))
    assert (found.expected, found.got) == ("W xfer.posted", "W xfer.settled")


def test_a_poll_that_would_see_nothing_new_is_passed_over() -> None:
    rig = PaperRig({"S": [POLL], "W": ["xfer.posted"]}, blocked=lambda actor, _: actor == "S")
    assert run_once(rig, Scenario(), anchored("S poll", "W xfer.posted")).divergence is None
    assert rig.granted == ["W xfer.posted"]


def test_who_is_blocked_is_unblocked_by_events_that_no_anchor_orders() -> None:
    def blocked(actor: str, granted: list[str]) -> bool:
        return actor == "W" and "S status.written" not in granted

    rig = PaperRig({"S": ["status.written"], "W": ["xfer.posted"]}, blocked=blocked)
    assert run_once(rig, Scenario(), anchored("W xfer.posted")).divergence is None
    assert rig.granted == ["S status.written", "W xfer.posted"]


def test_who_is_blocked_is_not_unblocked_by_an_anchor() -> None:
    def blocked(actor: str, granted: list[str]) -> bool:
        return actor == "B" and not granted

    rig = PaperRig({"D": ["meta.sent"], "B": ["control.in"]}, blocked=blocked)
    found = divergence(rig, anchored("B control.in", "D meta.sent"))
    assert (found.step, found.got) == (0, "B blocked: it waits for a frame on its socket")
    assert found.enabled == ("D meta.sent",)


def test_what_is_left_after_an_anchored_schedule_runs_in_a_fixed_order() -> None:
    rig = PaperRig({actor: ["status.checked"] for actor in "DSBW"})
    assert run_once(rig, Scenario(), anchored()).divergence is None
    assert [each[0] for each in rig.granted] == list("WBSD")


def test_an_actor_that_never_comes_to_a_step_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "STEP_LIMIT", 50)
    rig = PaperRig({"W": ["status.checked"] * 1000})
    found = divergence(rig, anchored("W xfer.posted"))
    assert found.got == "50 events without it"
    assert len(rig.granted) == 50
