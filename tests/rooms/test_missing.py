"""What presupposes what: a life that shows the one without the other was not recorded whole."""

from collections.abc import Callable

import pytest

from tests.memory import ABORTED, HEALED, HEALTHY, PIN, Memory, trace
from tracekv.event import Event, Op
from tracekv.rooms import Life, missing, rooms_of
from tracekv.story import recording
from tracekv.verdict import analyze


def life(line: str, drop: Callable[[Event], bool] = lambda row: False) -> Life:
    rows = [row for row in recording(line) if row.room is None or not drop(row)]
    return rooms_of(Memory(rows))[7].lives[0]


@pytest.mark.parametrize("line", [PIN, HEALTHY, ABORTED, HEALED, f"{HEALTHY} {HEALTHY}"])
def test_nothing_is_missing_from_a_whole_life(line: str) -> None:
    assert missing(life(line)) == ()


@pytest.mark.parametrize("cut", range(1, len(HEALTHY.split())))
def test_a_life_that_still_goes_on_presupposes_no_end(cut: int) -> None:
    found = life(" ".join(HEALTHY.split()[:cut]))
    assert found.settled or missing(found) == ()


@pytest.mark.parametrize(
    "op",
    [
        Op.ROOM_OPENED, Op.ROOM_CLEARED, Op.STATUS_WRITTEN, Op.STATUS_DROPPED, Op.META_RECEIVED,
        Op.PEER_ADDED, Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED, Op.XFER_POSTED, Op.XFER_DONE, Op.POLL_CHANGED,
    ],
)  # fmt: skip
def test_an_operation_that_is_gone_is_missed(op: str) -> None:
    rows = [row for row in recording(HEALTHY) if row.op != op]
    verdict = analyze(Memory(rows))
    assert verdict.name == "cannot_tell", op
    assert analyze(trace(HEALTHY)).name == "clean"


@pytest.mark.parametrize("op", [Op.CHUNK_SKIPPED, Op.ABORT_RECEIVED])
def test_so_it_is_with_an_abort(op: str) -> None:
    assert analyze(Memory([row for row in recording(ABORTED) if row.op != op])).name == "cannot_tell"


@pytest.mark.parametrize("sent", [Op.META_SENT, Op.ABORT_SENT])
def test_what_was_received_was_sent_where_the_sender_is_in_the_trace(sent: str) -> None:
    line = f"D:init D:info {ABORTED.replace('B:abort', 'D:abort B:abort')} D:concl0 D:poll0 D:clear"
    rows = recording(line)
    assert analyze(Memory(rows)).name == "clean"
    verdict = analyze(Memory([row for row in rows if row.op != sent]))
    assert f"without {sent}" in " ".join(verdict.reasons)


@pytest.mark.parametrize("moved", [Op.CHUNK_ENQUEUED, Op.XFER_POSTED, Op.ROOM_OPENED])
def test_what_is_presupposed_comes_first(moved: str) -> None:
    """The same rows, with one of them at the end of the order."""
    from dataclasses import replace

    rows = recording(HEALTHY)
    last = max(row.seq for row in rows)
    rows = [replace(row, seq=last + 1 + row.seq) if row.op == moved else row for row in rows]
    assert analyze(Memory(rows)).name == "cannot_tell"


def test_a_worker_that_records_a_failure_stores_it() -> None:
    line = HEALED.replace("W:deq1 W:set0", "W:deq1 W:err W:set0")
    assert missing(life(line)) == ()
    lost = life(line, lambda row: row.op == Op.STATUS_WRITTEN and row.new == 0 and row.thread == "worker-0")
    assert any("failure.recorded" in each for each in missing(lost))


def test_a_pin_that_rests_on_missing_rows_is_a_suspicion() -> None:
    rows = [row for row in recording(PIN) if not (row.op == Op.CHUNK_ENQUEUED and row.chunk == 0)]
    assert {each.certainty for each in analyze(Memory(rows)).findings if each.kind == "pinned"} == {
        "suspicion"
    }


def test_a_room_whose_beginning_was_not_recorded_is_no_evidence() -> None:
    rows = recording(HEALTHY)
    begin = next(n for n, row in enumerate(rows) if row.op == Op.CHUNK_ENQUEUED)
    late = [row for n, row in enumerate(rows) if row.room is None or n >= begin]
    verdict = analyze(Memory(late))
    assert verdict.name == "cannot_tell" and "room.cleared without room.opened" in " ".join(verdict.reasons)
