"""Order without a lock: what it promises under contention, and what a lock would have cost."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tracekv.event import Op, State
from tracekv.record.order import NOTHING, Order
from tracekv.record.recorder import Recorder
from tracekv.record.wrap.tables import StatusTap, recording_dict
from tracekv.spool import SpoolWriter, read_spool

THREADS, WRITES, ROOM = 8, 25_000, 7
WATCHDOG_S = 20.0

Told = tuple[int, int, Any, Any]  # seq, mono_ns, old, new
Marked = tuple[int, int, Any, Any, "int | None"]  # ... and seq_before

#: Before 3.12 a garbage collection, and the Python of its callbacks, may start at any allocation, so in
#: the middle of an operation.  Then its row is marked; from 3.12 on no row of a race may be.
SURE = sys.version_info >= (3, 12)


@pytest.fixture(autouse=True)
def hasty() -> Iterator[None]:
    """The interpreter offers a thread switch as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def race(write: Callable[[int, int], None]) -> None:
    """``write(thread, n)`` from all threads at once."""
    start = threading.Barrier(THREADS)

    def play(number: int) -> None:
        start.wait()
        for n in range(WRITES):
            write(number, n)

    threads = [threading.Thread(target=play, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def breaks(told: list[Told]) -> int:
    """How many rows do not go on where the row before them ended."""
    chain = sorted(told)
    return sum(before[3] != after[2] for before, after in itertools.pairwise(chain))


def backwards(told: list[Told]) -> int:
    """How many clock readings are smaller than the one before, in the order of the numbers."""
    chain = sorted(told)
    return sum(before[1] > after[1] for before, after in itertools.pairwise(chain))


class Naive(dict):  # type: ignore[type-arg]
    """What one writes first: the old value, the write and the number, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.ticket = itertools.count(1)
        self.told: list[Told] = []

    def __setitem__(self, key: Any, value: Any) -> None:
        old = self.get(key)
        super().__setitem__(key, value)
        self.told.append((next(self.ticket), time.monotonic_ns(), old, value))


def unexcused(told: list[Marked]) -> int:
    """Breaks of the chain whose later row does not say that others came into it."""
    chain = sorted(told, key=lambda row: row[0])
    return sum(
        sooner[3] != later[2] and (SURE or later[4] is None or later[4] > sooner[0])
        for sooner, later in itertools.pairwise(chain)
    )


def raced() -> tuple[list[Marked], Any]:
    """The rows of all threads' writes to one key, and what the key holds at the end."""
    order, table = Order(), {ROOM: (-1, -1)}
    told: list[list[Marked]] = [[] for _ in range(THREADS)]

    def write(number: int, n: int) -> None:
        old, _, (seq, mono, _, before) = order.replacing(dict.__setitem__, table, ROOM, (number, n))
        told[number].append((seq, mono, old, (number, n), before))

    race(write)
    return [row for lane in told for row in lane], table[ROOM]


def test_the_numbers_of_racing_writes_form_one_unbroken_chain() -> None:
    rows, final = raced()
    assert len({row[0] for row in rows}) == THREADS * WRITES
    assert unexcused(rows) == 0
    assert backwards([row[:4] for row in rows]) == 0
    assert max(rows, key=lambda row: row[0])[3] == final
    marked = sum(row[4] is not None for row in rows)
    assert marked == 0 if SURE else marked < len(rows) / 100


def test_the_same_race_breaks_the_chain_of_a_naive_recorder() -> None:
    """Proves that the test above is able to fail."""
    for _ in range(5):
        table = Naive()
        table[ROOM] = (-1, -1)
        race(lambda number, n, table=table: table.__setitem__(ROOM, (number, n)))  # type: ignore[misc]
        if breaks(table.told):
            return
    pytest.fail("200,000 naive writes showed no inversion, five times: this race proves nothing")


def test_a_status_table_that_threads_fight_over_tells_one_history(tmp_path: Path) -> None:
    recorder = Recorder(SpoolWriter(tmp_path, "p", max_bytes=1 << 28))
    table: Any = recording_dict({}, StatusTap(recorder, 0))

    def write(number: int, n: int) -> None:
        if n % 10 == 9:
            table.pop(ROOM, None)
        else:
            table[ROOM] = (number + n) % 5

    race(write)
    final = dict.get(table, ROOM, int(State.ABSENT))
    recorder.close()
    rows = [row for row in read_spool(tmp_path).events if row.room == ROOM]
    assert len(rows) == THREADS * WRITES
    now = [row.new if row.op == Op.STATUS_WRITTEN else int(State.ABSENT) for row in rows]
    wrong = [row for row, held in zip(rows, [int(State.ABSENT), *now], strict=False) if row.old != held]
    assert not wrong if SURE else all(row.seq_before is not None for row in wrong)
    assert now[-1] == final
    clocks = [row.mono_ns or 0 for row in rows]
    assert clocks == sorted(clocks)
    assert not recorder.troubles and recorder.spool.lost == 0


def test_a_garbage_collection_in_the_middle_is_told_by_the_row() -> None:
    threshold = gc.get_threshold()

    def noise(*_: object) -> None:
        for _n in range(20):
            time.monotonic()

    gc.callbacks.append(noise)
    gc.set_threshold(20, 100, 100)
    try:
        rows, final = raced()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(noise)
    assert unexcused(rows) == 0
    assert max(rows, key=lambda row: row[0])[3] == final


class SlowKey:
    """A key whose comparison is Python: a thread can be switched inside the dictionary operation."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        time.sleep(0.002)
        return True


def test_an_operation_that_others_came_into_says_between_which_numbers_it_lies() -> None:
    order, table = Order(), {SlowKey(): 0}
    stamps: list[Any] = []
    slow = threading.Thread(
        target=lambda: stamps.append(order.replacing(dict.__setitem__, table, SlowKey(), 1)[2])
    )
    slow.start()
    others = []
    while slow.is_alive():
        others.append(order.now()[0])
    (seq, _, _, before) = stamps[0]
    assert before is not None and before < seq
    assert any(before < other < seq for other in others)


def test_a_failing_operation_raises_what_the_dictionary_raises() -> None:
    order = Order()
    with pytest.raises(KeyError):
        order.replacing(dict.__delitem__, {}, ROOM)
    with pytest.raises(TypeError):
        order.replacing(dict.__setitem__, {}, [], 1)
    with pytest.raises(KeyError):
        order.after(dict.popitem, {})
    assert order.replacing(dict.setdefault, {}, ROOM, None)[:2] == (NOTHING, None)


# ---- the deadlock that a lock of ours would bring


class Store:
    """An engine's object with a lock of its own, and a table that others use without it.

    Like SGLang's consensus store: ``refresh`` holds the lock and writes the table, while ``peek``, which
    the table's users call from inside an operation on the table, takes the lock.
    """

    def __init__(self, table: Any) -> None:
        self.lock = threading.RLock()
        self.table = table

    def refresh(self, n: int) -> None:
        with self.lock:
            time.sleep(0)  # room for the other thread to begin its operation
            self.table[ROOM] = n % 5

    def peek(self) -> int:
        with self.lock:
            return 1


class Key(int):
    """A room whose comparison asks the store, so that the table's operation ends in the store's lock."""

    store: Store

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return bool(self.store.peek()) and int(self) == other


class Locked(dict):  # type: ignore[type-arg]
    """The variant that was not chosen: a lock of ours around the operation and its number."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = threading.RLock()
        self.ticket = itertools.count(1)
        self.told: list[Any] = []

    def __setitem__(self, key: Any, value: Any) -> None:
        with self.ours:
            old = dict.get(self, key)
            super().__setitem__(key, value)
            self.told.append((next(self.ticket), old, value))


def finishes(table: Any, limit_s: float) -> bool:
    """Two threads that take the store's lock and the table in both orders; false where they hang."""
    store = Store(table)
    dict.__setitem__(table, ROOM, 0)

    def inside_out(n: int) -> None:
        key = Key(ROOM)
        key.store = store
        table[key] = n % 5

    start = threading.Barrier(2)

    def play(work: Callable[[int], None]) -> None:
        start.wait()
        for n in range(3000):
            work(n)

    threads = [
        threading.Thread(target=play, args=(work,), daemon=True) for work in (store.refresh, inside_out)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def test_the_recorder_finishes_where_the_engine_holds_its_own_lock(tmp_path: Path) -> None:
    recorder = Recorder(SpoolWriter(tmp_path, "p"))
    assert finishes(recording_dict({}, StatusTap(recorder, 0)), WATCHDOG_S)
    assert not recorder.troubles


def test_a_plain_dictionary_finishes_there() -> None:
    assert finishes({}, WATCHDOG_S)


def test_a_lock_of_ours_hangs_there() -> None:
    """The two threads stay behind, as daemons: that is what a deadlock is."""
    assert not finishes(Locked(), 2.0)
