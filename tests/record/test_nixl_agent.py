"""A real pair of NIXL agents: one row for each transfer's post and end, however often it is asked for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.recorded import Recorded
from tracekv.event import Op
from tracekv.record.wrap.nixl import take_agent
from tracekv.replay.rigs.agents import PAGE_BYTES, Agents

pytestmark = pytest.mark.nixl


class Pair:
    """Agents whose prefill side is recorded; ``asked`` counts the states that the engine would see."""

    def __init__(self) -> None:
        self.agents = Agents()
        self.agent = self.agents._prefill.agent
        self.decode = self.agents._decode.agent
        self.recorder = Recorded()
        assert take_agent(self.agent, self.recorder, 3) is self.agent

    def chunk(self, room: int, number: int, last: bool = False) -> None:
        """What taking a chunk from its queue leaves."""
        here = self.recorder.here
        here.room, here.chunk, here.last, here.posted = room, number, last, 0

    def handle(self, tag: bytes) -> Any:
        local, remote = self.agents._page_lists
        pages = np.arange(4, dtype=np.int32)
        return self.agent.make_prepped_xfer("WRITE", local, pages, remote, pages, tag)

    def spin(self, handle: Any, limit_s: float = 10) -> Counter[str]:
        """As a worker does it: ask until the transfer has ended."""
        seen: Counter[str] = Counter()
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and not seen["DONE"]:
            seen[self.agent.check_xfer_state(handle)] += 1
            if seen["PROC"] > 20:
                self.decode.get_new_notifs()  # the target moves only now
        return seen

    def told(self) -> list[tuple[Any, ...]]:
        rows = [row for row in self.recorder.rows if row.op.startswith("xfer")]
        return [(row.op, row.room, row.chunk, row.last, row.handle, row.manager) for row in rows]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_posted_and_done_are_told_once_although_the_worker_spins(pair: Pair) -> None:
    pair.agents.source[:4] = 7
    pair.chunk(11, 0)
    handle = pair.handle(b"11_kv_0_0_0")
    assert pair.agent.transfer(handle) in ("PROC", "DONE")
    seen = pair.spin(handle)
    assert seen["PROC"] > 5 and seen["DONE"] == 1
    assert pair.agent.check_xfer_state(handle) == "DONE"
    assert pair.told() == [(Op.XFER_POSTED, 11, 0, False, 1, 3), (Op.XFER_DONE, 11, 0, False, 1, 3)]
    assert pair.recorder.here.posted == 1
    assert (pair.agents.target[:4] == 7).all() and pair.agents.target[:4].size == 4 * PAGE_BYTES


def test_handles_have_numbers_of_their_own(pair: Pair) -> None:
    for number in range(3):
        pair.chunk(11, number, number == 2)
        handle = pair.handle(f"11_kv_{number}".encode())
        pair.agent.transfer(handle)
        pair.spin(handle)
        pair.agent.release_xfer_handle(handle)  # the next one may get the same address
    rows = pair.told()
    assert [row[4] for row in rows] == [1, 1, 2, 2, 3, 3]
    assert [row[2:4] for row in rows[::2]] == [(0, False), (1, False), (2, True)]


def test_a_post_that_fails_is_told_and_goes_on(pair: Pair) -> None:
    pair.chunk(11, 0)
    handle = pair.handle(b"11_kv_0")
    pair.agents.cut()
    with pytest.raises(Exception) as failure:
        pair.agent.transfer(handle)
        pair.spin(handle)
    failed = pair.recorder.of(Op.XFER_FAILED)
    assert [(row.room, row.chunk, row.reason) for row in failed] == [(11, 0, repr(failure.value))]
    assert not pair.recorder.of(Op.XFER_DONE) and not pair.recorder.troubles


def test_a_transfer_that_is_refused_is_told_and_goes_on(pair: Pair) -> None:
    pair.chunk(11, 0)
    with pytest.raises(Exception) as failure:
        pair.agent.transfer(object())
    assert [row.reason for row in pair.recorder.of(Op.XFER_FAILED)] == [repr(failure.value)]
    assert pair.recorder.here.posted == 0


def test_a_handle_that_was_never_posted_is_none_of_ours(pair: Pair) -> None:
    pair.chunk(11, 0)
    with pytest.raises(Exception):  # noqa: B017  NIXL's own, whatever it is in this release
        pair.agent.check_xfer_state(pair.handle(b"x"))
    assert pair.told() == []


def test_notifications_name_their_room(pair: Pair) -> None:
    take_agent(pair.decode, pair.recorder, 4)
    pair.chunk(11, 0)
    for tag in (b"18446744073709551615_kv_0_1_0", b"99999999999999999999_aux", b"hello", b"\xff\x00"):
        handle = pair.handle(tag)
        pair.agent.transfer(handle)
        assert pair.spin(handle)["DONE"]
    deadline = time.monotonic() + 5
    while len(pair.recorder.of(Op.NOTIF_RECEIVED)) < 4 and time.monotonic() < deadline:
        pair.decode.get_new_notifs()
    told = [(row.room, row.attr("notif"), row.peer) for row in pair.recorder.of(Op.NOTIF_RECEIVED)]
    name = pair.agents.prefill_name
    assert told == [
        (2**64 - 1, "kv_0_1_0", name), (None, "aux", name), (None, None, name), (None, None, name)
    ]  # fmt: skip
    assert not pair.recorder.troubles


def test_two_workers_keep_their_rooms_apart(pair: Pair) -> None:
    handles: list[Any] = [pair.handle(b"1_kv"), pair.handle(b"2_kv")]

    def work(room: int) -> None:
        pair.chunk(room, 0, True)
        pair.agent.transfer(handles[room - 1])

    threads = [threading.Thread(target=work, args=(room,)) for room in (1, 2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert [pair.spin(handle)["DONE"] for handle in handles] == [1, 1]
    assert [(row[0], row[1], row[4]) for row in pair.told()] == [
        (Op.XFER_POSTED, 1, 1), (Op.XFER_POSTED, 2, 2), (Op.XFER_DONE, 1, 1), (Op.XFER_DONE, 2, 2)
    ]  # fmt: skip


def test_a_notification_is_told_by_both_ends() -> None:
    pair = Pair()
    take_agent(pair.decode, pair.recorder, 4)
    pair.agent.send_notif(pair.agents.decode_name, b"77_kv_0_1_0")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not any(row.op == Op.NOTIF_RECEIVED for row in pair.recorder.rows):
        pair.decode.get_new_notifs()
        pair.agent.get_new_notifs()  # neither side has a progress thread
    told = [(row.op, row.manager, row.room, row.attr("notif")) for row in pair.recorder.rows]
    assert told == [(Op.NOTIF_SENT, 3, 77, "kv_0_1_0"), (Op.NOTIF_RECEIVED, 4, 77, "kv_0_1_0")]
