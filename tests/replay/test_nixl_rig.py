"""The embedded rig on real NIXL agents: what it ends in, what it records, what lands in memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import Any

import pytest

from tracekv.errors import UsageError
from tracekv.event import Event, Op, State
from tracekv.machine import POLICIES
from tracekv.replay.rigs import THREADS, End, Rig, Scenario, Stalled, transport
from tracekv.replay.rigs.agents import AUX_BYTES, PAGE_BYTES, PAGES, Agents
from tracekv.replay.rigs.cargo import POISON, stamp
from tracekv.replay.rigs.nixl import DECODE, PREFILL, NixlRig
from tracekv.seams import GATE_OF, SEAM_NAMES, Wait

pytestmark = pytest.mark.nixl

FORK = "0.5.14+fork"


class Rows:
    """A recorder that keeps its rows in a list."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, op: str, **columns: Any) -> Event:
        event = Event(seq=len(self.events), op=op, process="test", **columns)
        self.events.append(event)
        return event

    def of(self, *ops: str, manager: int = PREFILL) -> list[Event]:
        return [event for event in self.events if event.op in ops and event.manager == manager]


def rig_of(build: str, **options: Any) -> tuple[NixlRig, Rows]:
    rows = Rows()
    return NixlRig(build, rows, **options), rows


def until(rig: NixlRig, actor: str, gate: str) -> None:
    """Grant one actor until it stands at a gate, or cannot go on."""
    while (pending := rig.parked().get(actor)) and pending.enabled and pending.gate != gate:
        rig.grant(actor)


def rest(rig: NixlRig, actors: str) -> None:
    """Grant these actors, first one first, until none of them can go on."""
    while ready := [actor for actor in actors if actor in rig.parked() and rig.parked()[actor].enabled]:
        rig.grant(ready[0])


def to_first_transfer(rig: NixlRig) -> None:
    """Metadata received, both chunks queued, c0 posted: the window is open."""
    rig.grant("D")
    rest(rig, "B")
    until(rig, "S", Op.CHUNK_ENQUEUED)
    until(rig, "S", Op.STATUS_CHECKED)
    until(rig, "W", "xfer.settled")


def twelve_steps(rig: NixlRig) -> End:
    """ABORT is handled while c0 is in flight; the scheduler polls last."""
    rig.begin(Scenario())
    to_first_transfer(rig)
    rest(rig, "D")
    rest(rig, "B")
    rest(rig, "W")
    rest(rig, "S")
    return rig.end()


def healthy(rig: NixlRig, scenario: Scenario) -> End:
    rig.begin(scenario)
    rest(rig, "BSWD")
    return rig.end()


# -- how the twelve steps end


def test_on_the_fork_the_room_is_pinned_and_the_bytes_of_c0_are_right() -> None:
    rig, rows = rig_of(FORK)
    end = twelve_steps(rig)
    assert (end.label, end.state, end.polled) == ("Transferring", State.TRANSFERRING, State.TRANSFERRING)
    assert end.pinned and not end.peers and end.left == () and end.died == {}
    assert (end.bytes_checked, end.bytes_wrong) == (4 * PAGE_BYTES, 0)
    assert rig.reusable()
    stored = [(e.thread, e.old, e.new) for e in rows.of(Op.STATUS_WRITTEN)]
    assert stored[-2:] == [("bootstrap", 3, 0), ("worker-0", 0, 3)]


@pytest.mark.parametrize(
    "build",
    ["0.5.14+fork+fix-a", "0.5.14+fork+fix-b", "0.5.14+fork+fix-a+fix-b", "0.5.16", "mooncake"],
)
def test_elsewhere_the_room_fails_and_is_released(build: str) -> None:
    rig, rows = rig_of(build)
    end = twelve_steps(rig)
    assert (end.label, end.pinned, end.left, end.bytes_wrong) == ("Failed", False, (), 0)
    assert end.state is State.ABSENT
    assert [event.old for event in rows.of(Op.STATUS_DROPPED)] == [State.FAILED]


def test_on_unmodified_0_5_14_the_bootstrap_thread_dies_and_the_room_succeeds() -> None:
    rig, rows = rig_of("0.5.14")
    end = twelve_steps(rig)
    assert end.died == {"B": "AssertionError"}
    assert end.label == "Success"
    assert (end.bytes_checked, end.bytes_wrong) == (8 * PAGE_BYTES + AUX_BYTES, 0)
    assert not rig.reusable()
    died = rows.of(Op.THREAD_DIED)
    assert [(e.thread, e.reason, e.attr("last")) for e in died] == [
        ("bootstrap", "AssertionError", "abort.received")
    ]
    with pytest.raises(UsageError, match="died"):
        rig.begin(Scenario())


def test_a_room_without_abort_succeeds_with_all_bytes_right() -> None:
    rig, rows = rig_of(FORK)
    end = healthy(rig, Scenario(pages=(3, 1, 5), abort=False))
    assert (end.label, end.state, end.pinned, end.left) == ("Success", State.ABSENT, False, ())
    assert (end.bytes_checked, end.bytes_wrong) == (9 * PAGE_BYTES + AUX_BYTES, 0)
    assert [e.old for e in rows.of(Op.STATUS_DROPPED, manager=DECODE)] == [State.BOOTSTRAPPING]
    decode = [event.op for event in rows.events if event.thread == "decode"]
    assert decode[-8:] == [
        *[Op.NOTIF_RECEIVED] * 4,
        *(Op.CONCLUDE_SET, Op.POLL_CHANGED, Op.STATUS_DROPPED, Op.ROOM_CLEARED),
    ]
    assert rows.of(Op.CONCLUDE_SET, manager=DECODE)[-1].new == State.SUCCESS
    assert len(rows.of(Op.ROOM_CLEARED)) == 1


def test_a_hundred_rooms_run_in_one_process_without_new_agents() -> None:
    rig, _ = rig_of(FORK)
    agents = rig.agents
    started = time.monotonic()
    ends = [twelve_steps(rig) for _ in range(100)]
    assert time.monotonic() - started < 5
    assert all(end.pinned and end.bytes_wrong == 0 for end in ends)
    assert rig.agents is agents
    assert NixlRig("0.5.16", Rows()).agents is agents


# -- memory


def test_no_byte_lands_before_the_transfer_is_settled() -> None:
    rig, _ = rig_of(FORK)
    rig.begin(Scenario(pages=(32, 4)))
    to_first_transfer(rig)
    time.sleep(0.05)
    assert rig.landed(0) == 0
    rest(rig, "D")
    rest(rig, "B")
    assert rig.landed(0) == 0
    rig.grant("W")
    assert rig.landed(0) == 32
    assert rig.landed(1) == 0
    rig.end()


def test_a_page_that_was_overwritten_before_it_was_sent_is_noticed() -> None:
    rig, _ = rig_of(FORK)
    rig.begin(Scenario(abort=False))
    rig.agents.source[5, 100:103] ^= 0xFF
    rest(rig, "BSWD")
    end = rig.end()
    assert end.label == "Success"  # the model does not look at bytes; the rig does
    assert end.bytes_wrong == 3


def test_a_wrong_aux_slot_is_noticed() -> None:
    rig, _ = rig_of(FORK)
    rig.begin(Scenario(abort=False))
    rig.agents.source_aux[0, 0] ^= 1
    rest(rig, "BSWD")
    assert rig.end().bytes_wrong == 1


def test_pages_of_another_room_chunk_or_place_differ() -> None:
    pages = [stamp(room, chunk, place) for room in (2**62, 2**62 + 1) for chunk in (0, 1) for place in (0, 1)]
    for n, page in enumerate(pages):
        assert page.shape == (PAGE_BYTES,)
        assert all((page != other).mean() > 0.5 for other in pages[n + 1 :])


def test_a_run_that_ends_in_flight_lands_late_and_leaves_the_rig_usable() -> None:
    rig, rows = rig_of(FORK)
    room = rig.begin(Scenario())
    to_first_transfer(rig)
    end = rig.end()
    assert (end.bytes_checked, end.pinned, end.label) == (0, False, "Transferring")
    target = rig.agents.target[PAGES - 1]
    assert (target == stamp(room, 0, 0)).all()
    assert not rows.of(Op.XFER_DONE)
    assert rig.reusable()
    assert twelve_steps(rig).bytes_wrong == 0


def test_decode_memory_is_poisoned_before_each_room() -> None:
    rig, _ = rig_of(FORK)
    healthy(rig, Scenario(abort=False))
    rig.begin(Scenario())
    assert (rig.agents.target[PAGES - 8 :] == POISON).all()
    assert (rig.agents.target_aux == POISON).all()
    rig.end()


def test_a_transfer_that_fails_ends_the_room_and_the_rig() -> None:
    pair = Agents()
    rig, rows = rig_of(FORK, agents=pair)
    rig.begin(Scenario(abort=False))
    to_first_transfer(rig)
    pair.cut()
    assert rig.grant("W") == rows.of(Op.XFER_FAILED)[0]
    rest(rig, "WSB")
    end = rig.end()
    assert (end.label, end.pinned) == ("Failed", False)
    assert "nixl" in (rows.of(Op.XFER_FAILED)[0].reason or "")
    assert not rig.reusable()


def test_a_transfer_that_does_not_settle_in_time_is_reported_with_its_place() -> None:
    rig, _ = rig_of(FORK, agents=Agents(), deadline_s=0)
    rig.begin(Scenario())
    to_first_transfer(rig)
    with pytest.raises(Stalled, match="chunk 0"):
        rig.grant("W")
    rig.end()
    assert not rig.reusable()


# -- gates and rows


def test_begin_parks_every_actor_at_its_first_gate() -> None:
    rig: Rig
    rig, _ = rig_of(FORK)
    assert rig.parked() == {}
    room = rig.begin(Scenario())
    assert 2**62 <= room < 2**63
    found = {actor: (p.gate, p.enabled, p.waits) for actor, p in rig.parked().items()}
    assert found == {
        "S": ("status.checked", True, Wait.NOTHING),
        "B": ("control.in", False, Wait.FRAME_ANNOUNCED),
        "W": ("chunk.dequeued", False, Wait.QUEUE_FILLED),
        "D": ("meta.sent", True, Wait.NOTHING),
    }
    rig.close()


def test_an_actor_that_cannot_go_on_is_not_granted() -> None:
    rig, _ = rig_of(FORK)
    with pytest.raises(ValueError, match="no room"):
        rig.grant("S")
    rig.begin(Scenario())
    with pytest.raises(ValueError, match="not enabled"):
        rig.grant("W")
    rig.close()


@pytest.mark.parametrize("build", sorted(POLICIES))
def test_each_grant_returns_the_row_of_its_event(build: str) -> None:
    choose = random.Random(7)
    for _ in range(20):
        rig, rows = rig_of(build)
        rig.begin(Scenario())
        while ready := [pending for pending in rig.parked().values() if pending.enabled]:
            pending = choose.choice(ready)
            before = len(rows.events)
            event = rig.grant(pending.actor)
            assert event is not None
            assert event in rows.events[before:]
            assert GATE_OF[event.op] == pending.gate
            assert event.thread == THREADS[pending.actor]
            assert pending.chunk in (None, event.chunk)
        assert rig.end().bytes_wrong == 0


def test_the_rows_of_transfers_carry_handle_bytes_and_chunk() -> None:
    rig, rows = rig_of(FORK)
    healthy(rig, Scenario(pages=(2, 3), abort=False))
    told = [(e.op, e.chunk, e.last, e.handle, e.bytes) for e in rows.of(Op.XFER_POSTED, Op.XFER_DONE)]
    assert told == [
        (Op.XFER_POSTED, 0, False, 1, 2 * PAGE_BYTES),
        (Op.XFER_DONE, 0, False, 1, 2 * PAGE_BYTES),
        (Op.XFER_POSTED, 1, True, 2, 3 * PAGE_BYTES),
        (Op.XFER_POSTED, 1, True, 3, AUX_BYTES),
        (Op.XFER_DONE, 1, True, 2, 3 * PAGE_BYTES),
        (Op.XFER_DONE, 1, True, 3, AUX_BYTES),
    ]
    queued = rows.of(Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED)
    assert [(e.chunk, e.attr("pages"), e.attr("queue")) for e in queued[:2]] == [(0, 2, 0), (1, 3, 0)]


def test_an_aborted_room_tells_both_sides() -> None:
    rig, rows = rig_of(FORK)
    room = rig.begin(Scenario())
    to_first_transfer(rig)
    rest(rig, "DBWS")
    rig.end()
    decode = [event.op for event in rows.events if event.manager == DECODE and event.room == room]
    assert decode == [
        *(Op.ROOM_OPENED, Op.STATUS_WRITTEN, Op.META_SENT),
        *(Op.ABORT_REQUESTED, Op.FAILURE_RECORDED, Op.STATUS_WRITTEN, Op.CONCLUDE_SET, Op.ABORT_SENT),
        *(Op.STATUS_DROPPED, Op.ROOM_CLEARED),
    ]
    prefill = {event.op for event in rows.events if event.manager == PREFILL and event.room == room}
    assert {Op.ROOM_OPENED, Op.POLL_CHANGED, Op.CHUNK_SKIPPED, Op.PREFIX_ADDED, Op.PREFIX_POPPED} <= prefill
    idle = rows.of(Op.WORKER_WAITING, Op.CONTROL_WAITING)
    assert all(event.room is None for event in idle)
    assert idle[-1].attr("length") == 0


def test_a_rig_introduces_its_managers_and_seams() -> None:
    _, rows = rig_of(FORK)
    roles = {e.manager: e.attr("role") for e in rows.events if e.op == Op.MANAGER_STARTED}
    assert roles == {PREFILL: "prefill", DECODE: "decode"}
    seams = [json.loads(e.attrs or "{}")["seam"] for e in rows.of(Op.SEAM_INSTALLED)]
    assert tuple(seams) == SEAM_NAMES


def test_rooms_are_fresh_large_and_repeatable_by_seed() -> None:
    def rooms(seed: int | None) -> list[int]:
        rig, _ = rig_of(FORK, seed=seed)
        found = [rig.begin(Scenario()) for _ in range(5)]
        rig.close()
        return found

    assert rooms(3) == rooms(3) != rooms(4)
    drawn = rooms(None) + rooms(None)
    assert len(set(drawn)) == 10
    assert min(drawn) >= 2**62


# -- what the user is told


def test_an_unknown_build_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"0\.5\.14\+fork\+fix-b"):
        rig_of("0.4.0")


@pytest.mark.parametrize("pages", [(), (0,), (PAGES, 1)])
def test_a_room_that_does_not_fit_is_refused(pages: tuple[int, ...]) -> None:
    rig, _ = rig_of(FORK)
    with pytest.raises(UsageError, match="fit"):
        rig.begin(Scenario(pages=pages))


def test_without_nixl_the_user_learns_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MODULES", ("no_such_nixl._api",))
    with pytest.raises(UsageError, match="pip install --no-deps nixl-cu12"):
        transport.load_nixl()


def test_a_process_that_used_the_rig_exits_cleanly_and_prints_nothing() -> None:
    code = (
        "from tracekv.event import Event\n"
        "from tracekv.replay.rigs import Scenario\n"
        "from tracekv.replay.rigs.nixl import NixlRig\n"
        "class R:\n"
        "    def emit(self, op, **c): return Event(seq=0, op=op, process='x', **c)\n"
        "rig = NixlRig('0.5.16', R()); rig.begin(Scenario())\n"
        "while r := [a for a, p in rig.parked().items() if p.enabled]: rig.grant(r[0])\n"
        "assert rig.end().label in ('Failed', 'Success'); rig.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
