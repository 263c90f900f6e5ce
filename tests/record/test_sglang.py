"""The recorder in SGLang's own managers, running freely: what the spool says is what happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tracekv.event import Event, Op, State
from tracekv.seams import SEAM_NAMES
from tracekv.spool import read_spool

pytestmark = [pytest.mark.sglang, pytest.mark.nixl]

ABSENT = int(State.ABSENT)
ROOM = 2**62
SCRIPT = Path(__file__).with_name("engine_rooms.py")
ROOT = Path(__file__).parents[2]


class Run:
    """The rows of one run, and what the engine itself said at its end."""

    def __init__(self, build: str, detail: str, folder: Path) -> None:
        self.build, self.detail = build, detail
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, str(SCRIPT), build, detail, str(folder)],
            capture_output=True, text=True, timeout=120, check=False, env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        self.said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        read = read_spool(folder)
        assert not read.losses and not read.damage
        self.rows = [row for row in read.events if row.process == self.said["process"]]

    def of(self, *ops: str, manager: int | None = None, room: int | None = None) -> list[Event]:
        return [
            row for row in self.rows
            if row.op in ops and manager in (None, row.manager) and room in (None, row.room)
        ]  # fmt: skip


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Run]:
    @lru_cache
    def make(build: str, detail: str) -> Run:
        return Run(build, detail, tmp_path_factory.mktemp("spool"))

    return make


@pytest.fixture(
    params=[("0.5.14", "writes"), ("0.5.14+fork", "gates"), ("0.5.16", "writes"), ("0.5.16", "gates")],
    ids="-".join,
)
def run(request: pytest.FixtureRequest, run_of: Callable[[str, str], Run]) -> Run:
    return run_of(*request.param)


def test_no_fault_of_ours_and_nothing_lost(run: Run) -> None:
    assert run.said["troubles"] == [] and run.said["lost"] == 0
    assert sum(row.seq_before is not None for row in run.rows) <= len(run.rows) / 100
    assert [row.seq for row in run.rows] == sorted({row.seq for row in run.rows})


def test_the_manifest_tells_of_every_seam_of_each_manager(run: Run) -> None:
    for manager, role in enumerate(("prefill", "decode")):
        started = run.of(Op.MANAGER_STARTED, manager=manager)
        assert [(row.attr("role"), row.attr("backend"), row.attr("tp_size")) for row in started] == [
            (role, "nixl", 1)
        ]
        told = Counter(row.attr("seam") for row in run.of(Op.SEAM_INSTALLED, manager=manager))
        assert told == Counter(SEAM_NAMES)
        states = {row.attr("seam"): row.attr("state") for row in run.of(Op.SEAM_INSTALLED, manager=manager)}
        absent = {name for name, state in states.items() if state == "absent"}
        missing = {"prefill": {"receiver"}, "decode": {"peers", "peers_inner", "prefix", "chunks", "sender"}}
        assert absent == missing[role]
        assert set(states.values()) == {"installed", "absent"}


def test_the_rows_end_in_what_the_dictionaries_hold(run: Run) -> None:
    for manager in (0, 1):
        holds: dict[int | None, int | None] = {}
        for row in run.of(Op.STATUS_WRITTEN, Op.STATUS_DROPPED, manager=manager):
            assert row.old == holds.get(row.room, ABSENT) or row.seq_before is not None
            if row.op == Op.STATUS_DROPPED:
                holds.pop(row.room, None)
            else:
                holds[row.room] = row.new
        assert holds == {int(room): state for room, state in run.said["tables"][str(manager)].items()}


def test_update_status_is_one_row_though_it_calls_its_base(run: Run) -> None:
    """A call leaves exactly one of written and refused; only clear() and the like leave more."""
    mine = run.of(Op.STATUS_WRITTEN, Op.STATUS_REFUSED, Op.STATUS_DROPPED, manager=0, room=ROOM + 100)
    told = [(row.op, row.requested, row.old, row.new) for row in mine]
    expected: list[Any] = [(Op.STATUS_WRITTEN, 1, ABSENT, 1), (Op.STATUS_WRITTEN, 0, 1, 0)]
    sticky = run.build.startswith("0.5.16")
    expected += [(Op.STATUS_REFUSED, 3, 0, None)] if sticky else [(Op.STATUS_WRITTEN, 3, 0, 3)]
    assert told == expected
    assert {row.site for row in mine} < {f"refusals:{line}" for line in range(1, 200)}


def test_a_write_that_was_refused_is_a_row(run: Run) -> None:
    absent = run.of(Op.STATUS_WRITTEN, Op.STATUS_REFUSED, manager=0, room=ROOM + 101)
    assert [(row.op, row.requested, row.old, row.new) for row in absent] == [
        (Op.STATUS_REFUSED, 0, ABSENT, None)
    ]
    named = run.of(Op.STATUS_WRITTEN, manager=0, room=ROOM + 102)
    assert [(row.requested, row.new) for row in named] == [(1, 1)]


def test_reads_are_rows_only_where_the_detail_says_so(run: Run) -> None:
    reads = run.of(Op.STATUS_CHECKED, Op.PEER_CHECKED)
    polls = [row for row in reads if row.attr("call") == "poll"]
    if run.detail == "gates":
        assert polls
        return
    assert reads and not polls and not run.of(Op.PEER_CHECKED)
    sites = {row.site for row in run.of(Op.STATUS_WRITTEN, Op.STATUS_REFUSED)}
    assert {row.site for row in reads} <= sites  # inside a status write, at the line that asked for it


def test_a_room_that_went_well_tells_its_whole_life(run: Run) -> None:
    well = [int(room) for room, went in run.said["went"].items() if went["bytes"]]
    assert len(well) == 15
    for room in well:
        mine = [row for row in run.rows if row.room == room and row.manager == 0]
        counts = Counter(row.op for row in mine)
        assert counts[Op.ROOM_OPENED] == counts[Op.META_RECEIVED] == 1
        assert counts[Op.CHUNK_ENQUEUED] == counts[Op.CHUNK_DEQUEUED] == 2 and not counts[Op.CHUNK_SKIPPED]
        assert [row.chunk for row in mine if row.op == Op.CHUNK_DEQUEUED] == [0, 1]
        # a chunk's pages, and with the last one the auxiliary data
        assert counts[Op.XFER_POSTED] == counts[Op.XFER_DONE] == 3 and not counts[Op.XFER_FAILED]
        states = [row.new for row in mine if row.op == Op.STATUS_WRITTEN]
        assert states[0] == State.BOOTSTRAPPING and states[-1] == State.SUCCESS
        decode = Counter(row.op for row in run.rows if row.room == room and row.manager == 1)
        assert decode[Op.META_SENT] == 1 and decode[Op.NOTIF_RECEIVED] == 3
        assert decode[Op.ROOM_OPENED] == 1


def test_sglang_behaves_as_it_does_without_us(run: Run) -> None:
    went = run.said["went"]
    for number in range(20):
        room = went[str(ROOM + number)]
        success = number % 4 != 3
        assert room["bytes"] is success
        assert room["sender"] == (State.SUCCESS if success else State.FAILED)
        if success:
            assert room["receiver"] == State.SUCCESS


def test_aborts_and_clears_are_rows(run: Run) -> None:
    aborted = {row.room for row in run.of(Op.ABORT_REQUESTED)}
    assert aborted == {ROOM + number for number in range(3, 20, 4)}
    cleared = {(row.manager, row.room) for row in run.of(Op.ROOM_CLEARED)}
    assert cleared == {(m, ROOM + n) for n in range(20) if n % 5 != 4 for m in (0, 1)}
    if run.build != "0.5.14":
        sent, received = run.of(Op.ABORT_SENT, manager=1), run.of(Op.ABORT_RECEIVED, manager=0)
        assert {row.room for row in sent} == {row.room for row in received} == {ROOM + 7, ROOM + 15}
    for op in (Op.CONCLUDE_SET, Op.FAILURE_RECORDED, Op.POLL_CHANGED):
        assert run.of(op)


def test_threads_have_their_roles_and_the_death_of_one_is_a_row(run: Run) -> None:
    assert {row.thread for row in run.of(Op.CHUNK_DEQUEUED)} == {"worker-0"}
    assert {row.thread for row in run.of(Op.META_RECEIVED)} == {"bootstrap"}
    assert {row.thread for row in run.of(Op.CHUNK_ENQUEUED)} == {"scheduler"}
    died = run.of(Op.THREAD_DIED)
    assert [(row.thread, row.attr("last")) for row in died] == [("bootstrap", "x.sglang.frame.received")]
    assert (died[0].reason or "").startswith("AssertionError: First message should be")


def test_the_worker_is_seen_back_at_its_queue(run: Run) -> None:
    waiting = run.of(Op.WORKER_WAITING, manager=0)
    assert len(waiting) == len(run.of(Op.CHUNK_DEQUEUED, manager=0)) + 1
    assert {(row.room, row.thread) for row in waiting} == {(None, "worker-0")}


def test_only_the_sides_that_have_rows_of_a_room_have_a_manager(run: Run) -> None:
    for row in run.rows:
        if row.room is not None:
            assert row.manager in (0, 1), row
