"""The gate parks plain threads: one runs at a time, and nothing waits for ever."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tracekv.event import Op
from tracekv.replay.gate import ThreadGate
from tracekv.replay.rigs import Stalled
from tracekv.seams import Wait

LIMIT = 5.0  # seconds: what a test waits at most for a thread that should come
ROOM = 7


class Stage:
    """Threads that play actors at one gate."""

    def __init__(self) -> None:
        self.names = threading.local()
        self.gate = ThreadGate(lambda: getattr(self.names, "actor", None))
        self.threads: list[threading.Thread] = []
        self.log: list[str] = []
        self.plays: dict[str, Callable[[], object]] = {}

    def play(self, actor: str, play: Callable[[], object]) -> None:
        """What ``actor`` does once the room is under control."""
        self.plays[actor] = play

    def thread(self, actor: str | None, play: Callable[[], object]) -> threading.Thread:
        def body() -> None:
            self.names.actor = actor
            try:
                play()
            except Exception as error:
                self.gate.died(f"{type(error).__name__}: {error}")
            else:
                self.gate.finished()

        made = threading.Thread(target=body, daemon=True)
        self.threads.append(made)
        made.start()
        return made

    def control(self, limit_s: float = LIMIT) -> None:
        def start(actor: str) -> None:
            self.thread(actor, self.plays[actor])

        self.gate.control(ROOM, tuple(self.plays), start, limit_s)

    def through(self, gate: str, then: Callable[[], None] = lambda: None, **more: object) -> bool:
        went = self.gate.arrive(gate, manager=0, room=ROOM, **more)  # type: ignore[arg-type]
        self.log.append(f"{self.names.actor} {gate}")
        then()
        return went


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.gate.release()
    for thread in made.threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a thread is parked after release"


def test_every_actor_is_parked_before_its_first_event(stage: Stage) -> None:
    for actor in "SW":
        stage.play(actor, lambda: stage.through("status.written", chunk=3))
    stage.control()
    found = stage.gate.parked()
    assert {actor: (p.gate, p.chunk, p.enabled, p.waits) for actor, p in found.items()} == {
        "S": ("status.written", 3, True, Wait.NOTHING),
        "W": ("status.written", 3, True, Wait.NOTHING),
    }
    assert stage.log == []


def test_a_granted_actor_runs_to_its_next_gate_and_nobody_else_does(stage: Stage) -> None:
    def play() -> None:
        for gate in ("peer.checked", "status.written", "peer.popped"):
            stage.through(gate)

    for actor in "SW":
        stage.play(actor, play)
    stage.control()
    for actor in "SWWSSW":
        stage.gate.grant(actor, LIMIT)
    assert [each[0] for each in stage.log] == list("SWWSSW")
    assert stage.gate.parked() == {}
    assert stage.gate.is_done("S") and stage.gate.is_done("W")


def test_no_two_actors_ever_run_at_once(stage: Stage) -> None:
    running: list[str] = []
    overlaps: list[tuple[str, ...]] = []

    def busy() -> None:
        running.append(stage.names.actor)
        time.sleep(0.002)
        overlaps.extend([tuple(running)] if len(running) > 1 else [])
        running.remove(stage.names.actor)

    def play() -> None:
        busy()  # the code before the first gate runs alone, too
        for _ in range(5):
            stage.through("status.written", busy)

    for actor in "SBWD":
        stage.play(actor, play)
    stage.control()
    while ready := list(stage.gate.parked()):
        stage.gate.grant(ready[len(stage.log) % len(ready)], LIMIT)
    assert len(stage.log) == 20
    assert overlaps == []


def test_other_rooms_managers_and_threads_are_not_parked(stage: Stage) -> None:
    stage.play("S", lambda: stage.through("status.written"))
    stage.control()
    went: list[bool] = []

    def pass_by() -> None:
        went.append(stage.gate.arrive("status.written", manager=0, room=8))
        went.append(stage.gate.arrive("status.written", manager=1, room=ROOM))

    stage.thread("W", pass_by).join(LIMIT)

    def unknown() -> None:
        went.append(stage.gate.arrive("status.written", manager=0, room=ROOM))

    stage.thread(None, unknown).join(LIMIT)
    assert went == [False] * 3


def test_an_actor_at_its_queue_is_enabled_once_there_is_something(stage: Stage) -> None:
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    taken: list[int] = []

    def work() -> None:
        stage.through(Op.CHUNK_DEQUEUED, lambda: taken.append(items.get()), ready=lambda: not items.empty())

    stage.play("W", work)
    stage.control()
    assert stage.gate.parked()["W"].enabled is False
    assert stage.gate.parked()["W"].waits is Wait.QUEUE_FILLED
    items.put(5)
    assert stage.gate.parked()["W"].enabled is True
    assert taken == []
    stage.gate.grant("W", LIMIT)
    assert taken == [5]


def test_a_frame_is_announced_by_its_send_and_not_by_the_socket(stage: Stage) -> None:
    stage.play("B", lambda: stage.through("control.in", ready=lambda: False))
    stage.play("D", lambda: stage.through(Op.ABORT_SENT))
    stage.control()
    assert not stage.gate.parked()["B"].enabled
    stage.gate.grant("D", LIMIT)
    assert stage.gate.parked()["B"].enabled
    stage.gate.grant("B", LIMIT)
    assert stage.log == ["D abort.sent", "B control.in"]


def test_an_acknowledgement_is_no_frame_for_prefill(stage: Stage) -> None:
    arrived = threading.Event()
    stage.play("B", lambda: stage.through("control.in", ready=arrived.is_set))
    stage.play("D", lambda: stage.through(Op.ACK_SENT))
    stage.control()
    stage.gate.grant("D", LIMIT)
    assert not stage.gate.parked()["B"].enabled
    arrived.set()


def test_a_poll_is_enabled_by_a_change_of_what_it_read(stage: Stage) -> None:
    seen = [1]

    def polls() -> None:
        for _ in range(3):
            stage.through("status.checked", poll=lambda: seen[0])

    stage.play("S", polls)
    stage.control()
    assert stage.gate.parked()["S"].enabled  # the first one always sees something
    assert stage.gate.parked()["S"].waits is Wait.VALUE_CHANGED
    stage.gate.grant("S", LIMIT)
    assert not stage.gate.parked()["S"].enabled
    seen[0] = 2
    assert stage.gate.parked()["S"].enabled
    stage.gate.grant("S", LIMIT)
    assert not stage.gate.parked()["S"].enabled


def test_a_new_wait_makes_the_next_poll_count(stage: Stage) -> None:
    def polls() -> None:
        stage.through("status.checked", poll=lambda: 1)
        stage.gate.asks_again()
        stage.through("status.checked", poll=lambda: 1)

    stage.play("S", polls)
    stage.control()
    stage.gate.grant("S", LIMIT)
    assert stage.gate.parked()["S"].enabled


def test_an_exception_is_a_death_and_not_a_hang(stage: Stage) -> None:
    def fails() -> None:
        stage.through("status.checked")
        raise AssertionError("no such room")

    stage.play("W", fails)
    stage.control()
    stage.gate.grant("W", LIMIT)
    assert stage.gate.deaths() == {"W": "AssertionError: no such room"}
    assert not stage.gate.is_done("W")
    assert "W" not in stage.gate.parked()


def test_an_actor_that_loops_is_stalled_with_its_stack(stage: Stage) -> None:
    ends = threading.Event()

    def spins_for_ever() -> None:
        stage.through("status.checked")
        while not ends.wait(0.001):
            pass

    stage.play("W", spins_for_ever)
    stage.control()
    started = time.monotonic()
    with pytest.raises(Stalled, match="spins_for_ever") as stalled:
        stage.gate.grant("W", 0.2)
    assert time.monotonic() - started < 2
    assert str(stalled.value).startswith("W did not reach its next gate within 0.2 s")
    ends.set()


def test_an_actor_that_never_comes_is_stalled(stage: Stage) -> None:
    ends = threading.Event()
    stage.play("W", lambda: ends.wait(LIMIT))
    with pytest.raises(Stalled, match="W did not come to any gate"):
        stage.control(limit_s=0.1)
    ends.set()


def test_release_lets_everybody_go_on_freely(stage: Stage) -> None:
    went: list[bool] = []
    for actor in "SW":
        stage.play(actor, lambda: went.extend(stage.through("status.written") for _ in range(2)))
    stage.control()
    stage.gate.release()
    assert stage.gate.idle(LIMIT)
    assert went == [False] * 4


def test_outside_control_a_thread_waits_in_front_of_its_blocking_call(stage: Stage) -> None:
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    taken: list[int] = []

    def works() -> None:
        while True:
            stage.gate.arrive(Op.CHUNK_DEQUEUED, manager=0, ready=lambda: not items.empty())
            found = items.get_nowait()
            if found < 0:
                return
            taken.append(found)

    stage.thread("W", works)
    items.put(1)
    assert stage.gate.idle(LIMIT)
    assert taken == [1]
    stage.gate.control(ROOM, ("W",), lambda actor: None, LIMIT)
    assert stage.gate.parked()["W"].gate == Op.CHUNK_DEQUEUED
    items.put(-1)


def test_nobody_is_idle_while_a_frame_is_on_its_way(stage: Stage) -> None:
    arrived = threading.Event()

    def listens() -> None:
        stage.gate.arrive("control.in", manager=0, ready=arrived.is_set)

    stage.play("B", listens)
    stage.play("D", lambda: stage.through(Op.META_SENT))
    stage.control()
    stage.gate.release()
    assert not stage.gate.idle(0.1)  # sent, and not shown by the socket yet
    arrived.set()
    assert stage.gate.idle(LIMIT)


def test_who_works_is_not_idle(stage: Stage) -> None:
    ends = threading.Event()

    def works() -> None:
        stage.through("status.written")
        ends.wait(LIMIT)

    stage.play("W", works)
    stage.control()
    stage.gate.release()
    assert not stage.gate.idle(0.05)
    ends.set()
    assert stage.gate.idle(LIMIT)


def test_a_second_room_begins_afresh(stage: Stage) -> None:
    stage.play("S", lambda: stage.through("status.checked", poll=lambda: 1))
    stage.control()
    stage.gate.grant("S", LIMIT)
    stage.gate.release()
    stage.control()
    assert stage.gate.parked()["S"].enabled
    assert not stage.gate.is_done("S")
