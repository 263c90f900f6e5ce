"""Rows that cannot be one history are noticed; a whole history is never accused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory import ABORTED, HEALED, HEALTHY, PIN, Memory, trace
from tests.test_story import WORDS
from tracekv.event import Event, Op
from tracekv.rooms import rooms_of
from tracekv.rooms.consistent import contradiction
from tracekv.story import recording, story
from tracekv.verdict import analyze

READS = (
    "S:init B:info B:ctl S:enq0* W:deq0 W:hasinfo W:set3 W:post0 B:abort B:has B:set0 B:pop "
    "W:done0 W:set3 S:get"
)


def without(line: str, op: str, n: int) -> list[Event]:
    """The rows of a story less its ``n``-th of this operation."""
    rows = story(line)
    return [row for row in rows if row is not [each for each in rows if each.op == op][n]]


@pytest.mark.parametrize("line", [PIN, HEALTHY, ABORTED, HEALED, READS, f"{HEALTHY} {HEALTHY}"])
def test_a_whole_history_does_not_contradict_itself(line: str) -> None:
    assert contradiction(story(line), "prefill") is None


@given(st.lists(st.sampled_from([word for word in WORDS if "<" not in word]), max_size=40))
def test_no_story_contradicts_its_own_reads(words: list[str]) -> None:
    keyed: dict[object, list[Event]] = {}
    for row in story(" ".join(words)):
        if row.op.startswith("status."):
            keyed.setdefault((row.manager, row.room), []).append(row)
    for rows in keyed.values():
        assert contradiction(rows, "prefill") is None


@pytest.mark.parametrize(
    ("op", "n", "found"),
    [
        (Op.STATUS_WRITTEN, 1, "WaitingForInput where Bootstrapping"),  # the next write finds what it left
        (
            Op.STATUS_WRITTEN,
            4,
            "status.checked finds Transferring where Failed",
        ),  # only a read comes after it
        (Op.PEER_ADDED, 0, None),  # its inner peer is added to the entry all the same
    ],
)
def test_a_row_that_is_missing_is_seen_by_the_next_that_looks(op: str, n: int, found: "str | None") -> None:
    said = contradiction(without(READS, op, n), "prefill")
    assert (said is None) if found is None else (said is not None and found in said)


@pytest.mark.parametrize("word", ["W:hasinfo", "B:pop-"])
def test_the_peer_table_too(word: str) -> None:
    rows = story(f"S:init B:add {word} ")
    assert contradiction(rows, "prefill") is None or word == "B:pop-"
    gone = story(f"B:add B:pop {word}")
    assert contradiction([gone[0], gone[2]], "prefill") is not None


def test_a_trace_that_begins_in_the_middle_takes_the_first_value() -> None:
    rows = story(READS)
    for begin in range(len(rows)):
        assert contradiction(rows[begin:], "prefill") is None


def test_a_poll_must_have_been_there_to_be_seen() -> None:
    assert contradiction(story("S:init B:info S:enq0* W:set3 B:set0 S:poll3"), "prefill") is None  # raced
    said = contradiction(story("S:init B:info S:enq0* W:set3 B:set0 S:get S:poll3"), "prefill")
    assert said is not None and "polls Transferring where Failed" in said


@pytest.mark.parametrize(
    "line",
    [
        "S:init B:info S:get S:drop S:get S:poll2",  # a room that is absent polls as WaitingForInput
        "S:init B:info S:get S:concl0 S:poll0",  # conclude_state goes before the table
    ],
)
def test_polls_that_do_not_read_the_table(line: str) -> None:
    assert contradiction(story(line), "prefill") is None


def test_a_decode_room_polls_more_than_its_table() -> None:
    assert contradiction(story("D:init D:get D:poll4"), "decode") is None


def test_nothing_in_a_life_with_a_contradiction_is_a_proof() -> None:
    line = PIN.replace("W:deq1", "S:get W:deq1")
    whole = recording(line)
    missing = [row for row in whole if not (row.op == Op.STATUS_WRITTEN and row.new == 0)]
    assert {each.certainty for each in analyze(Memory(whole)).findings} == {"proof"}
    verdict = analyze(Memory(missing))
    assert {each.certainty for each in verdict.findings} <= {"suspicion"}
    assert any("contradict each other" in reason for reason in verdict.reasons)


def test_a_label_that_the_rows_contradict_is_said() -> None:
    verdict = analyze(trace(PIN, build="0.5.16"))
    assert any("contradict the build label 0.5.16" in reason for reason in verdict.reasons)
    assert analyze(trace(PIN)).reasons == ()


# ----------------------------------------------------------------- rows that do not say whose they are


@pytest.mark.parametrize("column", ["manager", "thread"])
def test_rows_that_name_nobody_prove_nothing(column: str) -> None:
    line = f"{PIN} @8 D:init D:notif D:concl4 D:clear"
    rows = [replace(row, **{column: None}) if row.room else row for row in recording(line)]
    verdict = analyze(Memory(rows))
    assert verdict.name != "clean" and all(each.certainty == "suspicion" for each in verdict.findings)
    assert any(column in reason for reason in verdict.reasons)


def test_a_process_with_one_manager_needs_no_number() -> None:
    rows = [replace(row, manager=None) if row.room else row for row in recording(PIN, roles=("prefill",))]
    assert {each.certainty for each in analyze(Memory(rows)).findings} == {"proof"}


def test_a_thread_under_another_name_is_no_worker() -> None:
    rows = [replace(row, thread="Thread-7") if row.room else row for row in recording(PIN)]
    assert all(each.certainty == "suspicion" for each in analyze(Memory(rows)).findings)


@pytest.mark.parametrize("op", [Op.STATUS_WRITTEN, Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED, Op.POLL_CHANGED])
def test_rows_that_do_not_say_what_are_no_evidence(op: str) -> None:
    rows = [replace(row, new=None, chunk=None) if row.op == op else row for row in recording(HEALTHY)]
    assert analyze(Memory(rows)).name == "cannot_tell"


def test_an_old_value_that_is_missing_is_known_from_the_row_before() -> None:
    rows = [replace(row, old=None) for row in recording(PIN)]
    assert {each.kind for each in analyze(Memory(rows)).findings} == {"resurrection", "pinned"}


# -------------------------------------------------------------------------------------- the order


def test_a_clock_that_runs_backwards_in_one_thread_proves_no_order() -> None:
    rows = recording(PIN)
    back = [replace(row, mono_ns=10**12 - row.seq) for row in rows]
    verdict = analyze(Memory(back))
    assert {each.certainty for each in verdict.findings} == {"suspicion"}
    assert any("runs backwards" in reason for reason in verdict.reasons)


def test_the_number_of_a_loss_row_is_that_of_its_first_loss() -> None:
    rows = recording(f"{HEALTHY} W:lost5")
    rows[-1] = replace(rows[-1], seq=rows[0].seq - 1)
    assert not any("backwards" in reason for reason in analyze(Memory(rows)).reasons)


def test_two_rows_with_one_number_have_no_order() -> None:
    rows = recording(PIN)
    twice = [replace(row, seq=5) if row.room else row for row in rows]
    verdict = analyze(Memory(twice))
    assert any("the same number" in reason for reason in verdict.reasons)
    assert all(each.certainty == "suspicion" for each in verdict.findings)


def test_doubts_belong_to_their_own_room() -> None:
    rows = [replace(row, thread=None) if row.room == 8 else row for row in recording(f"{PIN} @8 {HEALTHY}")]
    rooms = rooms_of(Memory(rows))
    assert rooms[7].lives[0].doubts == () and rooms[8].lives[0].doubts != ()
    assert {each.certainty for each in analyze(Memory(rows)).findings} == {"proof"}
