"""Rows of a room become a scenario and a schedule."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekv.errors import CannotTellError
from tracekv.event import Event, Op
from tracekv.replay.rigs import Pending, Scenario
from tracekv.replay.schedule import (
    HARD,
    POLL,
    Step,
    anchored_schedule,
    gate_of,
    scenario_of,
    strict_schedule,
)
from tracekv.seams import GATE_OF, Wait

PREFILL = frozenset({("p", 0)})


class Rows:
    """Rows of one process, numbered as they are written."""

    def __init__(self) -> None:
        self.rows: list[Event] = []

    def add(
        self, thread: str | None, op: str, *, manager: int = 0, room: int | None = 7, **columns: Any
    ) -> Rows:
        attrs = columns.pop("attrs", None)
        packed = attrs if attrs is None or isinstance(attrs, str) else json.dumps(attrs)
        row = Event(
            seq=len(self.rows), op=op, process=columns.pop("process", "p"), thread=thread, tid=1,
            manager=manager, room=room, attrs=packed, **columns,
        )  # fmt: skip
        self.rows.append(row)
        return self

    def poll(self, old: int) -> Rows:
        return self.add("scheduler", Op.STATUS_CHECKED, old=old, attrs={"call": "poll"})


def strictly(rows: Rows) -> list[str]:
    return [str(step) for step in strict_schedule(rows.rows, PREFILL).steps]


def towards(rows: Rows) -> list[str]:
    return [f"{step}{'' if step.hard else '?'}" for step in anchored_schedule(rows.rows, PREFILL).steps]


# -- who did it


def test_threads_are_actors_by_their_role() -> None:
    rows = Rows()
    for thread in ("scheduler", "bootstrap", "worker-0", "worker-13"):
        rows.add(thread, Op.STATUS_WRITTEN)
    assert [each[0] for each in strictly(rows)] == ["S", "B", "W", "W"]


@pytest.mark.parametrize("thread", ["decode", "heartbeat", "MainThread", None])
def test_threads_that_no_rig_plays_give_no_step(thread: str | None) -> None:
    assert strictly(Rows().add(thread, Op.STATUS_WRITTEN)) == []


def test_of_decode_only_what_it_sends_is_played() -> None:
    rows = Rows().add("decode", Op.STATUS_WRITTEN, manager=1).add("decode", Op.META_SENT, manager=1)
    rows.add("scheduler", Op.ABORT_SENT, manager=1).add("bootstrap", Op.META_RECEIVED, manager=1)
    assert strictly(rows) == ["D meta.sent", "D abort.sent"]


def test_another_prefill_process_gives_no_step() -> None:
    assert strictly(Rows().add("scheduler", Op.STATUS_WRITTEN, process="q")) == []


# -- what is a step


def test_polls_that_saw_nothing_new_are_collapsed() -> None:
    rows = Rows().poll(1).poll(1).poll(1).poll(2).poll(2).poll(1)
    assert strictly(rows) == ["S poll"] * 3


def test_a_poll_after_the_chunks_counts_again_although_it_sees_the_same() -> None:
    rows = Rows().poll(2).add("scheduler", Op.CHUNK_ENQUEUED, chunk=0).poll(2).poll(2)
    assert strictly(rows) == ["S poll", "S chunk.enqueued c0", "S poll"]


def test_reads_of_others_are_no_polls() -> None:
    rows = Rows().add("worker-0", Op.STATUS_CHECKED, old=3, attrs={"call": "poll"})
    rows.add("scheduler", Op.STATUS_CHECKED, old=3, attrs={"call": "get"})
    rows.add("scheduler", Op.STATUS_CHECKED, old=3, attrs="{broken")
    assert strictly(rows) == ["W status.checked", "S status.checked", "S status.checked"]


def test_peers_inside_a_rooms_entry_are_not_gated() -> None:
    rows = Rows().add("bootstrap", Op.PEER_ADDED).add("bootstrap", Op.PEER_ADDED, peer="agent")
    assert strictly(rows) == ["B peer.added"]


def test_operations_without_a_gate_are_no_steps() -> None:
    rows = Rows()
    for op in (Op.ROOM_OPENED, Op.FAILURE_RECORDED, Op.CHUNK_SKIPPED, "x.sglang.thing"):
        rows.add("scheduler", op)
    assert strictly(rows) == []


def test_frames_and_the_end_of_transfers_share_a_gate() -> None:
    rows = Rows().add("bootstrap", Op.ABORT_RECEIVED).add("worker-0", Op.XFER_DONE, chunk=1)
    rows.add("worker-0", Op.XFER_FAILED, chunk=None)
    assert strictly(rows) == ["D abort.sent", "B control.in", "W xfer.settled c1", "W xfer.settled"]


def test_decodes_sends_are_inferred_where_only_prefill_was_recorded() -> None:
    rows = Rows().add("bootstrap", Op.META_RECEIVED).add("bootstrap", Op.ABORT_RECEIVED)
    assert strictly(rows) == ["D meta.sent", "B control.in", "D abort.sent", "B control.in"]


def test_decodes_sends_are_taken_as_they_were_where_they_are_known() -> None:
    rows = Rows().add("decode", Op.META_SENT, manager=1).add("decode", Op.ABORT_SENT, manager=1)
    rows.add("bootstrap", Op.META_RECEIVED).add("bootstrap", Op.ABORT_RECEIVED)
    assert strictly(rows) == ["D meta.sent", "D abort.sent", "B control.in", "B control.in"]


def test_at_detail_writes_polls_are_known_by_their_changes() -> None:
    rows = Rows().add("scheduler", Op.POLL_CHANGED, new=2).add("scheduler", Op.CHUNK_ENQUEUED, chunk=0)
    rows.add("scheduler", Op.POLL_CHANGED, new=4).add("decode", Op.POLL_CHANGED, manager=1, new=4)
    assert strictly(rows) == ["S poll", "S chunk.enqueued c0", "S poll"]


def test_who_enqueued_had_polled() -> None:
    rows = Rows().add("scheduler", Op.CHUNK_ENQUEUED, chunk=0).add("scheduler", Op.CHUNK_ENQUEUED, chunk=1)
    assert strictly(rows) == ["S poll", "S chunk.enqueued c0", "S chunk.enqueued c1"]


# -- anchored


def test_a_thread_is_back_only_where_it_had_work_of_the_room() -> None:
    rows = Rows().add("bootstrap", Op.CONTROL_WAITING, room=None)
    rows.add("worker-0", Op.WORKER_WAITING, room=None).add("worker-0", Op.CHUNK_DEQUEUED, chunk=0)
    rows.add("worker-0", Op.WORKER_WAITING, room=None).add("worker-0", Op.WORKER_WAITING, room=None)
    assert towards(rows) == ["W chunk.dequeued", "W back at chunk.dequeued"]


def test_a_worker_that_goes_on_with_another_room_was_back_first() -> None:
    rows = Rows().add("worker-0", Op.CHUNK_DEQUEUED, chunk=0).add("worker-0", Op.WORKER_WAITING, room=None)
    rows.add("worker-0", Op.WORKER_WAITING, room=None).add("worker-0", Op.CHUNK_DEQUEUED, chunk=1)
    assert towards(rows) == ["W chunk.dequeued", "W back at chunk.dequeued", "W chunk.dequeued"]


def test_dictionaries_are_soft_and_what_every_build_does_is_hard() -> None:
    rows = Rows().add("bootstrap", Op.META_RECEIVED).add("bootstrap", Op.PEER_ADDED)
    rows.add("bootstrap", Op.STATUS_WRITTEN, requested=2).add("bootstrap", Op.CONTROL_WAITING, room=None)
    rows.add("scheduler", Op.CHUNK_ENQUEUED, chunk=0).poll(2)
    assert towards(rows) == [
        "D meta.sent", "B control.in", "B peer.added?", "B status.written?", "B back at control.in",
        "S chunk.enqueued c0", "S poll",
    ]  # fmt: skip


def test_the_constructors_write_is_followed_by_the_first_poll() -> None:
    rows = Rows()
    for requested in (1, 0):
        rows.add("scheduler", Op.STATUS_WRITTEN, requested=requested)
    assert towards(rows) == ["S status.written?", "S back at poll", "S status.written?"]


# -- steps and gates


def test_a_step_fits_where_gate_and_chunk_do() -> None:
    step = Step("W", "xfer.posted", 1)
    assert step.fits(Pending("W", "xfer.posted", 1))
    assert step.fits(Pending("W", "xfer.posted", None))
    assert not step.fits(Pending("W", "xfer.posted", 0))
    assert not step.fits(Pending("W", "xfer.settled", 1))
    assert Step("W", "xfer.posted").fits(Pending("W", "xfer.posted", 5))


def test_a_poll_is_told_apart_from_other_reads() -> None:
    assert gate_of(Pending("S", "status.checked", waits=Wait.VALUE_CHANGED)) == POLL
    assert gate_of(Pending("S", "status.checked")) == "status.checked"
    assert not Step("S", POLL).fits(Pending("S", "status.checked"))


def test_hard_gates_are_gates() -> None:
    assert set(GATE_OF.values()) | {POLL} >= HARD


# -- scenario


def test_the_scenario_holds_pages_and_the_abort_and_no_order() -> None:
    rows = Rows().add("scheduler", Op.CHUNK_ENQUEUED, chunk=0, attrs={"pages": 3})
    rows.add("scheduler", Op.CHUNK_ENQUEUED, chunk=1, attrs={"pages": 5})
    assert scenario_of(rows.rows) == Scenario((3, 5), abort=False)
    assert scenario_of(rows.add("bootstrap", Op.ABORT_RECEIVED).rows) == Scenario((3, 5), abort=True)
    assert scenario_of([]) == Scenario((1,), abort=False)


@pytest.mark.parametrize("pages", [10**30, -4, 0, 2.5, "many", None, True, [3]])
def test_pages_that_make_no_sense_are_cut_to_what_a_rig_holds(pages: Any) -> None:
    rows = Rows().add("scheduler", Op.CHUNK_ENQUEUED, attrs={"pages": pages})
    rows.add("scheduler", Op.CHUNK_ENQUEUED, attrs="not json")
    assert all(1 <= each <= 16 for each in scenario_of(rows.rows).pages)


def test_many_chunks_share_the_pages_of_a_rig() -> None:
    rows = [Event(seq=n, op=Op.CHUNK_ENQUEUED, process="p", attrs='{"pages": 64}') for n in range(100)]
    assert sum(scenario_of(rows).pages) == 200


def test_a_million_chunks_are_refused() -> None:
    row = Event(seq=1, op=Op.CHUNK_ENQUEUED, process="p")
    with pytest.raises(CannotTellError, match="1,000,000 chunks, a rig holds 256"):
        scenario_of([row] * 1_000_000)


ROWS = st.lists(
    st.builds(
        Event,
        seq=st.integers(0, 9),
        op=st.sampled_from([*GATE_OF, Op.CONTROL_WAITING, Op.WORKER_WAITING, Op.ROOM_OPENED]),
        process=st.sampled_from("pq"),
        thread=st.sampled_from(["scheduler", "bootstrap", "worker-0", "worker-7", "decode", "?", None]),
        manager=st.sampled_from([0, 1, None]),
        room=st.sampled_from([None, 0, 7, 2**64 - 1]),
        requested=st.none() | st.integers(-128, 127),
        old=st.none() | st.integers(-128, 127),
        chunk=st.none() | st.integers(-5, 2**40),
        attrs=st.sampled_from([None, "", "{", "[]", '{"call": "poll"}', '{"pages": 1e99}']),
    ),
    max_size=30,
)


@given(ROWS)
def test_any_rows_give_a_schedule_whose_hard_steps_are_those_of_the_strict_one(rows: list[Event]) -> None:
    strict = strict_schedule(rows, PREFILL).steps
    anchored = anchored_schedule(rows, PREFILL).steps
    assert [step for step in anchored if not step.arrives] == list(strict)
    assert all(step.actor in "SBWD" for step in anchored)
    assert scenario_of(rows).pages
