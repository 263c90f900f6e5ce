"""Pinned by proof and by suspicion, and everything that must never be called pinned."""

from typing import Any

import pytest

from tests.memory import ABORTED, HEALTHY, PIN, Memory, trace
from tracekv.finding import BOOTSTRAP_QUEUE, INFLIGHT_QUEUE
from tracekv.seams import SEAM_NAMES
from tracekv.story import preamble, recording, story
from tracekv.verdict import analyze

ALIVE = "+20s S:beat +20s S:beat +20s S:beat"
#: ABORT before the sender, after the metadata: the constructor lifts the room out of Failed.
EARLY_ABORT = "B:info B:abort B:set0 B:pop B:ctl S:open S:set1=1 S:poll1"
LOST_WORKER = "S:init B:info S:enq0 S:enq1* B:ctl"


def pins(made: Any, **options: Any) -> list[Any]:
    return [each for each in analyze(made, **options).findings if each.kind == "pinned"]


def test_the_pin_is_proved_at_the_skip_without_any_waiting() -> None:
    (found,) = pins(trace(PIN))
    assert (found.certainty, found.state.label, found.queue) == ("proof", "Transferring", INFLIGHT_QUEUE)
    assert found.blocked_on == "peer metadata"
    assert found.since.op == "chunk.skipped"
    assert any("0.5.14+fork" in reason for reason in found.reasons)


def test_an_abort_before_the_sender_pins_at_bootstrapping() -> None:
    (found,) = pins(trace(EARLY_ABORT))
    assert (found.certainty, found.state.label, found.queue) == ("proof", "Bootstrapping", BOOTSTRAP_QUEUE)


@pytest.mark.parametrize(
    "line",
    [
        HEALTHY,
        ABORTED,
        "S:init",
        "S:init B:info B:ctl",
        "S:init B:info B:ctl S:enq0 S:enq1* W:deq0 W:set3 W:post0",  # a transfer is in flight
        PIN.replace(" W:deq1 W:skip1 W:wait", ""),  # a chunk is queued, and was not skipped yet
        PIN.replace(" W:skip1 W:wait", ""),  # the worker is inside the chunk: it may still fail it
        PIN.replace("S:poll3", "S:poll0"),  # the scheduler has seen Failed: it releases the room
        PIN.replace("B:pop B:ctl ", ""),  # the bootstrap thread is still inside the ABORT
        PIN.replace("B:set0 B:pop B:ctl W:done0 W:set3 W:deq1 W:skip1", "W:done0 W:deq1 W:skip1 B:set0"),
    ],
)
def test_a_room_that_can_still_go_on_is_not_pinned(line: str) -> None:
    assert pins(trace(line)) == []


def test_decode_may_still_send_the_abort_that_releases_the_room() -> None:
    line = PIN.replace("B:abort B:set0 B:pop B:ctl ", "B:ctl S:pop ")
    assert pins(trace(line.replace("W:set3 W:deq1", "W:deq1"))) == []


def test_a_second_peer_may_still_send_an_abort() -> None:
    assert pins(trace(PIN.replace("B:info", "B:info B:peer1"))) == []


@pytest.mark.parametrize("build", [None, "9.9.9", "0.5.16", "0.5.14+fork+fix-b", "0.5.14"])
def test_a_label_that_is_unknown_or_contradicted_leaves_every_build_that_fits(build: "str | None") -> None:
    (found,) = pins(trace(PIN, build=build))
    assert found.certainty == "proof"
    told = " ".join(found.reasons)
    assert "with a bootstrap timeout" in told and "fix-b" not in told.split("the rows allow")[1]


def test_a_pin_that_a_later_release_would_time_out_is_no_proof_for_an_unknown_build() -> None:
    assert pins(trace(EARLY_ABORT, build=None)) == []
    assert [each.certainty for each in pins(trace(f"{EARLY_ABORT} {ALIVE}", build=None))] == ["suspicion"]


@pytest.mark.parametrize("seam", ["status", "peers", "chunks", "control_in", "sender"])
def test_without_a_seam_there_is_no_proof(seam: str) -> None:
    seams = [name for name in SEAM_NAMES if name != seam]
    assert pins(trace(PIN, seams=seams)) == []


def test_lost_rows_turn_the_proof_into_a_suspicion() -> None:
    assert [each.certainty for each in pins(trace(f"{PIN} S:lost3"))] == ["suspicion"]


# ------------------------------------------------------------------------------------------ ranks


def ranks(*lines: str, **sizes: int) -> Memory:
    rows = []
    for rank, line in enumerate(lines):
        name = f"p{rank}"
        rows += recording(line, process=name, engine_rank=rank, tp_rank=rank, **sizes)
    return Memory(rows)


def test_all_ranks_that_hang_are_one_finding() -> None:
    (found,) = pins(ranks(PIN, PIN, tp_size=2))
    assert (found.certainty, found.ranks) == ("proof", (0, 1))


def test_one_failed_rank_releases_the_room_on_all() -> None:
    assert pins(ranks(PIN, ABORTED.replace(" S:clear", ""), tp_size=2)) == []


def test_a_rank_that_still_moves_makes_it_a_suspicion() -> None:
    moving = "S:init B:info B:ctl S:enq0 S:enq1* W:deq0 W:set3 W:post0"
    (found,) = pins(ranks(PIN, moving, tp_size=2))
    assert found.certainty == "suspicion" and "another rank" in " ".join(found.reasons)


def test_a_rank_that_is_not_in_the_trace_makes_it_a_suspicion() -> None:
    (found,) = pins(ranks(PIN, tp_size=2))
    assert found.certainty == "suspicion" and "1 of 2 ranks" in " ".join(found.reasons)


# ------------------------------------------------------------------------------------ by suspicion


def test_a_room_without_progress_is_suspected_after_the_threshold() -> None:
    (found,) = pins(trace(f"{LOST_WORKER} {ALIVE}"))
    assert (found.certainty, found.blocked_on, found.queue) == ("suspicion", "worker", INFLIGHT_QUEUE)
    assert pins(trace(f"{LOST_WORKER} +20s S:beat")) == []


def test_the_threshold_can_be_given() -> None:
    assert pins(trace(f"{LOST_WORKER} +20s S:beat"), stuck_after_s=5) == []  # one long silence
    silent = "S:init B:info B:ctl S:enq0 S:enq1* +20s S:beat +4s S:beat"  # the 4 s after it are too short
    assert pins(trace(silent), stuck_after_s=5) == []
    assert len(pins(trace(f"{LOST_WORKER} +4s S:beat +4s S:beat"), stuck_after_s=5)) == 1


def test_the_threshold_follows_healthy_rooms() -> None:
    slow = " ".join(f"@{room} S:init B:info W:set4 +7s S:poll4 S:clear" for room in range(100, 103))
    assert pins(trace(f"{slow} @7 {LOST_WORKER} {ALIVE}")) == []  # ten times seven seconds


def test_a_gap_is_not_a_pin() -> None:
    assert pins(trace(f"{LOST_WORKER} +3600s S:beat")) == []


def test_a_scheduler_that_did_nothing_more_proves_nothing() -> None:
    assert pins(trace(f"{LOST_WORKER} {ALIVE.replace('S:', 'B:')}")) == []


def test_a_deep_queue_that_moves_is_not_stuck() -> None:
    moving = " ".join(f"+20s W:deq{n} W:post{n} W:done{n} S:beat" for n in range(5))
    assert pins(trace(f"S:init B:info B:ctl S:enq0 S:enq1 S:enq2 S:enq3 S:enq4* {moving}")) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("S:init B:ctl", "peer metadata"),
        ("S:init B:info B:ctl", "source"),
        ("S:init B:info B:ctl S:enq0 S:enq1*", "worker"),
        ("S:init B:info B:ctl S:enq0* W:deq0 W:set3 W:post0", "transport"),
        ("S:init B:info B:ctl S:enq0* W:deq0 W:set3 W:post0 W:done0 W:wait", "unknown"),
    ],
)
def test_what_it_is_blocked_on(line: str, word: str) -> None:
    (found,) = pins(trace(f"{line} {ALIVE}"))
    assert found.blocked_on == word


def test_a_decode_room_waits_for_its_notification() -> None:
    beats = ALIVE.replace("S:", "S:")
    (found,) = pins(trace(f"D:init D:set2 {beats}"))
    assert (found.role, found.blocked_on) == ("decode", "notification")


def test_a_dead_bootstrap_thread_pins_the_next_room_by_proof() -> None:
    line = "S:init B:info S:enq0* W:deq0 W:set3 W:post0 B:abort B:die W:done0 W:set4 W:pop S:poll4 S:clear"
    found = pins(trace(f"{line} @8 S:init S:poll1", build="0.5.14"))
    assert [(each.room, each.certainty) for each in found] == [(8, "proof")]
    assert "bootstrap thread died" in found[0].remedy and "0.5.16" in found[0].remedy
    assert any("died at seq" in reason for reason in found[0].reasons)


# --------------------------------------------------------------------------- never to be flagged


@pytest.mark.parametrize(
    "line",
    [
        f"{HEALTHY} {HEALTHY}",  # the id is used again after its clear
        "S:open S:set2 S:poll2 S:set4 S:poll4 S:clear",  # a dummy rank opens in WaitingForInput
        "D:init D:info D:set0 D:concl0 D:clear D:init D:info D:notif D:concl4 D:clear",  # retraction
        "S:init B:info W:set4 W:set3=4 S:poll4 S:clear",  # max() changes nothing
        "S:open S:set4 S:poll4 S:clear",  # a warm-up room of the fake backend
        "D:init D:info D:set2 D:notif D:concl4 D:clear",  # Success on decode is in conclude_state only
        "S:init B:info B:ctl S:enq0",  # the trace simply ends
    ],
)
def test_look_alikes_are_never_flagged(line: str) -> None:
    assert analyze(trace(line)).findings == ()


def test_rows_of_two_processes_do_not_mix() -> None:
    healthy = [*preamble(process="q"), *story(HEALTHY, process="q", seq=100)]
    found = pins(Memory([*recording(PIN), *healthy]))
    assert [each.process for each in found] == ["p"]
