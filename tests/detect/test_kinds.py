"""Each kind against bad histories and near-identical innocent ones."""

from dataclasses import replace

import pytest

from tests.memory import ABORTED, HEALED, HEALTHY, PIN, Memory, trace
from tracekv.story import recording
from tracekv.verdict import analyze

OPEN = "S:init B:info B:ctl"
SENT = "S:enq0 S:enq1* W:deq0 W:set3 W:post0"


def kinds(line: str, **of_process: object) -> set[tuple[str, str]]:
    return {(each.kind, each.certainty) for each in analyze(trace(line, **of_process)).findings}


def names(line: str, **of_process: object) -> set[str]:
    return {kind for kind, _ in kinds(line, **of_process)}


# ---------------------------------------------------------------------------------- resurrection


@pytest.mark.parametrize(
    "line",
    [
        PIN,
        f"{OPEN} {SENT} B:abort B:set0 W:done0 W:set3 S:poll3",
        f"{OPEN} B:abort B:set0 W:set3=1 S:clear",
        "B:info B:abort B:set0 B:pop B:ctl S:open S:set1=1 S:poll1",  # the constructor lifts an early Failed
        f"{OPEN} W:set4 S:set0 S:poll0 S:clear",
        f"{OPEN} W:set4 W:set?=3 S:clear",
        # the same terminal state comes back, but too late: somebody has polled, or a transfer was posted
        f"{OPEN} {SENT} B:abort B:set0 W:done0 W:set3 S:poll3 W:set0 S:poll0 S:clear",
        f"{OPEN} {SENT} B:abort B:set0 W:done0 W:set3 W:deq1 W:post1 W:set0 S:poll0 S:clear",
        f"{OPEN} {SENT} B:abort B:set0 W:done0 W:set3 S:get W:set0 S:poll0 S:clear",
    ],
)
def test_a_terminal_state_that_was_overwritten_is_found(line: str) -> None:
    assert ("resurrection", "proof") in kinds(line)


@pytest.mark.parametrize(
    "line",
    [
        HEALTHY,
        ABORTED,
        f"{OPEN} W:set4 W:set3=4 S:poll4 S:clear",  # max() of Success and Transferring: nothing changed
        f"{OPEN} S:set0 S:poll0 S:clear S:init B:info W:set4 S:poll4 S:clear",  # the id is used again
        f"{OPEN} B:set0 B:set0 S:poll0 S:clear",
        f"{OPEN} B:set0 W:refuse3 S:poll0 S:clear",
        "D:init D:set0 D:open D:set1=1 D:concl4 D:clear",  # decode retracts and opens the id again
    ],
)
def test_what_only_looks_like_it_is_not(line: str) -> None:
    assert names(line) == set()


def test_a_resurrection_that_healed_is_a_note_and_no_finding() -> None:
    verdict = analyze(trace(HEALED, build="0.5.14+fork+fix-b"))
    assert verdict.name == "clean"
    (note,) = verdict.notes
    assert (note.kind, note.room) == ("healed_resurrection", 7)
    assert "Transferring" in note.text


def test_only_the_same_terminal_state_heals() -> None:
    line = HEALED.replace("W:deq1 W:set0", "W:deq1 W:set4").replace("S:poll0", "S:poll4")
    assert {"resurrection", "false_success"} <= names(line)


# ------------------------------------------------------------------------------------ ghost rooms


@pytest.mark.parametrize(
    ("line", "certainty"),
    [
        (f"{OPEN} {SENT} B:abort B:set0 B:pop S:poll0 S:clear W:done0 W:set3", "proof"),
        (f"{OPEN} {SENT} B:abort B:set0 B:pop S:poll0 S:clear W:done0 W:set3 S:init", "proof"),
        ("S:init B:meta S:set0 S:poll0 S:clear B:add B:peer B:set2", "proof"),
        ("S:init S:abort S:set0 S:poll0 S:clear B:info", "suspicion"),
        ("S:init S:abort S:set0 S:poll0 S:clear B:meta B:add", "suspicion"),
    ],
)
def test_an_entry_that_came_back_is_a_ghost(line: str, certainty: str) -> None:
    assert kinds(line) == {("ghost_room", certainty)}


@pytest.mark.parametrize(
    "line",
    [
        "S:init S:abort S:set0 S:poll0 S:clear B:info S:init B:ctl W:set4 S:poll4 S:clear",
        f"{OPEN} S:set0 S:poll0 S:clear W:set3 W:drop",  # it was dropped again
        f"{OPEN} S:set0 S:poll0 S:clear B:abort B:refuse0",  # a late abort that found nothing
        f"{OPEN} W:set4 S:poll4 S:clear W:pop-",  # a late pop that found nothing
        "B:info S:init B:ctl W:set4 S:poll4 S:clear",  # metadata before the first constructor
    ],
)
def test_late_rows_that_leave_nothing_are_no_ghost(line: str) -> None:
    assert names(line) == set()


def test_metadata_for_a_life_that_had_its_own_announces_the_next_one() -> None:
    verdict = analyze(trace(f"{OPEN} S:set0 S:poll0 S:clear B:info"))
    assert verdict.findings == ()
    assert [note.kind for note in verdict.notes] == ["next_life_announced"]


# ----------------------------------------------------------------------------------- false Success


@pytest.mark.parametrize(
    "line",
    [
        f"{OPEN} {SENT} B:abort W:done0 W:set4 S:poll4 S:clear",
        f"{OPEN} {SENT} S:abort W:done0 W:set4 S:poll4 S:clear",
        f"{OPEN} {SENT} B:abort B:set0 W:done0 W:set3=4 S:poll4 S:clear",
        "D:init D:abort D:notif D:concl4 D:clear",
    ],
)
def test_success_after_an_abort_is_found(line: str) -> None:
    assert "false_success" in names(line)


@pytest.mark.parametrize(
    "line",
    [
        f"{OPEN} {SENT} W:done0 W:set4 B:abort S:poll4 S:clear",  # the abort came too late
        f"{OPEN} {SENT} B:abort B:set0 B:pop W:done0 W:refuse4 S:poll0 S:clear",
        # an abort of the life before, after its clear, when decode starts over with the same id
        f"{OPEN} S:set0 S:poll0 S:clear B:abort B:refuse0 B:info S:init B:ctl W:set4 S:poll4 S:clear",
        "D:init D:notif D:concl4 D:clear",
    ],
)
def test_success_without_an_abort_of_its_own_is_not(line: str) -> None:
    assert "false_success" not in names(line)


def test_a_success_that_may_have_preceded_the_abort_is_a_suspicion() -> None:
    rows = recording(f"{OPEN} {SENT} B:abort W:set4 S:poll4 S:clear")
    at = next(n for n, row in enumerate(rows) if row.new == 4)
    rows[at] = replace(rows[at], seq_before=rows[at].seq - 2)
    (found,) = analyze(Memory(rows)).findings
    assert (found.kind, found.certainty) == ("false_success", "suspicion")
