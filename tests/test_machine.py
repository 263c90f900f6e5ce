"""The model against what the builds' own code was seen to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekv.event import OPS, Op, State
from tracekv.machine import (
    POLICIES,
    Action,
    Ending,
    Policy,
    RoomState,
    Row,
    count,
    enabled,
    ending,
    explore,
    observed,
    opening,
    outcomes,
    parked,
    perform,
    settles,
    step,
)
from tracekv.machine.program import PROGRAM
from tracekv.machine.run import Run
from tracekv.seams import GATE_OF

FORK = POLICIES["0.5.14+fork"]
STATES = (State.FAILED, State.BOOTSTRAPPING, State.WAITING, State.TRANSFERRING, State.SUCCESS)

# Recorded on the real threads of the fork: every gated event of the twelve steps, scheduler's reads
# of one poll as one event.
TWELVE_STEPS = """
D meta.sent | B control.in peer.checked peer.added peer.checked peer.checked peer.checked peer.checked
B status.checked status.written | S status.checked status.checked status.written status.checked
S chunk.enqueued chunk.enqueued | W chunk.dequeued peer.checked status.checked status.checked
W status.checked status.written peer.checked xfer.posted | D abort.sent | B control.in status.checked
B status.checked status.checked status.written peer.popped | W xfer.settled status.checked
W status.checked status.written chunk.dequeued peer.checked | S status.checked
"""


def schedule(text: str) -> list[tuple[str, str]]:
    parts = [part.split() for line in text.splitlines() for part in line.split("|")]
    return [(actor, gate) for actor, *gates in filter(None, parts) for gate in gates]


class Walk:
    """A room driven by hand."""

    def __init__(self, policy: Policy, *, chunks: int = 2, aborts: bool = True) -> None:
        self.policy, self.state = policy, opening(chunks=chunks, aborts=aborts)
        self.rows: list[Row] = []

    def grant(self, actor: str) -> bool:
        action = next((each for each in enabled(self.state, self.policy) if each.actor == actor), None)
        if action is not None:
            done = perform(self.state, action, self.policy)
            self.state = done.state
            self.rows += done.rows
        return action is not None

    def until(self, actor: str, at: str) -> None:
        while self.state.actor(actor).at != at and self.grant(actor):
            pass

    def rest(self, actor: str) -> None:
        while self.grant(actor):
            pass

    def drain(self) -> None:
        while any(self.grant(actor) for actor in "DBWS"):
            pass


def abort_in_flight(policy: Policy, *, scheduler_polls: bool) -> Walk:
    """The twelve steps by their anchors: ABORT is handled while c0 is in flight."""
    walk = Walk(policy)
    walk.grant("D")
    walk.rest("B")
    walk.until("S", "sender.send")
    walk.until("S", "sender.poll")
    walk.until("W", "worker.settle_kv")
    walk.grant("D")
    walk.rest("B")
    if scheduler_polls:
        walk.rest("S")
    walk.rest("W")
    walk.drain()
    return walk


# -- end states


@pytest.mark.parametrize(
    ("build", "ends", "pins", "deaths"),
    [
        ("0.5.14", 2, {"Bootstrapping"}, {"B"}),
        ("0.5.14+fork", 9, {"Transferring", "Bootstrapping", "WaitingForInput"}, set()),
        ("0.5.14+fork+fix-a", 12, {"Transferring", "Bootstrapping", "WaitingForInput"}, {"B", "W"}),
        ("0.5.14+fork+fix-b", 6, {"Bootstrapping"}, set()),
        ("0.5.14+fork+fix-a+fix-b", 9, {"Bootstrapping"}, {"B", "W"}),
        ("0.5.16", 6, {"Bootstrapping"}, set()),
        ("mooncake", 5, {"Bootstrapping"}, set()),
    ],
)
def test_the_end_states_of_a_build_are_those_of_its_real_code(
    build: str, ends: int, pins: set[str], deaths: set[str]
) -> None:
    found = explore(POLICIES[build], opening())
    assert len(found) == ends
    assert {end.label for end in found if end.pinned} == pins
    assert {letter for end in found for letter in end.died} == deaths


def test_the_fork_ends_in_exactly_these_ways() -> None:
    def end(polled: State, status: State, *, concluded: bool = True) -> Ending:
        return Ending(concluded, polled, status, peers=False, queued=0)

    clean = {end(State.FAILED, State.ABSENT), end(State.SUCCESS, State.ABSENT)}
    ghosts = {end(State.FAILED, left) for left in (State.FAILED, State.TRANSFERRING, State.SUCCESS)}
    ghosts.add(end(State.SUCCESS, State.FAILED))
    pins = {
        end(state, state, concluded=False)
        for state in (State.BOOTSTRAPPING, State.WAITING, State.TRANSFERRING)
    }
    assert set(explore(FORK, opening())) == clean | ghosts | pins


def test_each_choice_of_mooncake_alone_removes_the_pin_at_transferring() -> None:
    guard = POLICIES["mooncake"].guard
    for policy in (
        replace(FORK, abort_pops=False),
        replace(FORK, transferring=False),
        replace(FORK, guard=guard),
    ):
        labels = {end.label for end in explore(policy, opening()) if end.pinned}
        assert "Transferring" not in labels


def test_a_guard_that_reads_an_absent_room_with_a_key_error_kills_worker_and_bootstrap_thread() -> None:
    real = replace(POLICIES["mooncake"], absent_reads=None, worker_catches=False)
    assert {letter for end in explore(real, opening()) for letter in end.died} == {"B", "W"}


def test_waiting_for_input_can_be_lost_without_any_abort_in_every_build() -> None:
    for policy in POLICIES.values():
        pins = {end.status for end in explore(policy, opening(aborts=False)) if end.pinned}
        assert pins == {State.BOOTSTRAPPING}


def test_more_chunks_bring_no_new_kind_of_pin() -> None:
    pins = {end.label for end in explore(FORK, opening(chunks=3)) if end.pinned}
    assert pins == {"Transferring", "Bootstrapping", "WaitingForInput"}


def test_a_witness_leads_to_its_end() -> None:
    for policy in POLICIES.values():
        for end, path in explore(policy, opening()).items():
            state = opening()
            for action in path:
                state = step(state, action, policy)
            assert ending(state) == end
            assert not enabled(state, policy)


def test_count_is_the_number_of_states() -> None:
    assert count(FORK, opening()) > 1000
    assert count(FORK, opening()) < count(FORK, opening(chunks=3))


# -- the twelve steps


def test_the_model_follows_the_schedule_of_the_real_threads() -> None:
    walk = Walk(FORK)
    for actor, gate in schedule(TWELVE_STEPS):
        assert parked(walk.state)[actor].action.gate == gate
        assert walk.grant(actor)
    assert ending(walk.state) == Ending(False, State.TRANSFERRING, State.TRANSFERRING, False, 0)
    assert not settles(walk.state, FORK).settles


@pytest.mark.parametrize(
    ("build", "label", "pinned"),
    [
        ("0.5.14+fork", "Transferring", True),
        ("0.5.14+fork+fix-a", "Failed", False),
        ("0.5.14+fork+fix-b", "Failed", False),
        ("0.5.14+fork+fix-a+fix-b", "Failed", False),
        ("0.5.16", "Failed", False),
        ("mooncake", "Failed", False),
        ("0.5.14", "Success", False),
    ],
)
def test_abort_while_the_first_chunk_is_in_flight(build: str, label: str, pinned: bool) -> None:
    walk = abort_in_flight(POLICIES[build], scheduler_polls=False)
    assert (ending(walk.state).label, ending(walk.state).pinned) == (label, pinned)
    assert walk.state.left == ()
    assert walk.state.died == ({"B": "AssertionError"} if build == "0.5.14" else {})


@pytest.mark.parametrize(
    ("build", "left"),
    [
        ("0.5.14+fork", ("request_status: Transferring",)),
        ("0.5.14+fork+fix-a", ("request_status: Transferring",)),
        ("0.5.14+fork+fix-b", ("request_status: Failed",)),
        ("0.5.14+fork+fix-a+fix-b", ("request_status: Failed",)),
        ("0.5.16", ("request_status: Failed",)),
        ("mooncake", ()),
    ],
)
def test_a_scheduler_that_polls_in_between_releases_the_room_and_leaves_a_ghost(
    build: str, left: tuple[str, ...]
) -> None:
    walk = abort_in_flight(POLICIES[build], scheduler_polls=True)
    assert ending(walk.state).label == "Failed"
    assert walk.state.left == left


def test_the_rows_of_the_twelve_steps_tell_the_resurrection() -> None:
    rows = abort_in_flight(FORK, scheduler_polls=False).rows
    writes = [(row.actor, row.columns) for row in rows if row.op == Op.STATUS_WRITTEN]
    assert writes[-2:] == [
        ("B", {"requested": 0, "old": 3, "new": 0}),
        ("W", {"requested": 3, "old": 0, "new": 3}),
    ]
    assert [row.columns for row in rows if row.op == Op.CHUNK_SKIPPED] == [{"chunk": 1, "last": True}]


def test_a_dead_thread_says_what_it_had_taken() -> None:
    rows = abort_in_flight(POLICIES["0.5.14"], scheduler_polls=False).rows
    died = [row for row in rows if row.op == Op.THREAD_DIED]
    assert [(row.actor, row.columns, row.attrs) for row in died] == [
        ("B", {"reason": "AssertionError"}, {"last": "abort.received"})
    ]


# -- update_status


def table(policy: Policy, current: State) -> str:
    """What is there after each of the five states was asked for: a row of the truth table."""
    return "".join("-FBWTS"[_stored(policy, current, want) + 1] for want in STATES)


def _stored(policy: Policy, current: State, want: State) -> State:
    state = replace(opening(), status=current)
    run = Run(state, "S", policy)
    label = run.update(want, "sender.poll")
    while label != "sender.poll":
        label = PROGRAM[label].body(run)
    return run.status


@pytest.mark.parametrize(
    ("build", "rows"),
    [
        ("0.5.14", ("-BWTS", "FBWTS", "FBWTS", "FWWTS", "FTTTS", "FSSSS")),
        ("0.5.16", ("-BWTS", "FFFFF", "FBWTS", "FWWTS", "FTTTS", "FSSSS")),
        ("0.5.14+fork+fix-a", ("-BWTS", "FFFFF", "FBWTS", "FWWTS", "FTTTS", "SSSSS")),
    ],
)
def test_update_status_merges_as_the_build_does(build: str, rows: tuple[str, ...]) -> None:
    policy = POLICIES[build]
    assert tuple(table(policy, current) for current in (State.ABSENT, *STATES)) == rows


def test_a_policy_may_let_only_opening_states_create_an_entry() -> None:
    late = replace(POLICIES["0.5.16"], creates=frozenset({State.BOOTSTRAPPING, State.WAITING}))
    assert table(late, State.ABSENT) == "-BW--"


# -- proofs


Facts = dict[str, object]
SKIPPED: Facts = {"status": State.TRANSFERRING, "peers": False, "abort_consumed": True}


def proof(build: str, **facts: object) -> bool:
    make: Callable[..., RoomState] = observed
    return settles(make(**{"chunks": 2, **facts}), POLICIES[build]).settles


def test_a_resurrected_room_with_nothing_left_to_do_is_pinned() -> None:
    found = settles(observed(status=State.TRANSFERRING, peers=False, chunks=2, abort_consumed=True), FORK)
    assert not found.settles
    assert found.states > 0
    assert found.witness == ()


def test_a_queued_chunk_settles_the_room_only_where_the_skip_concludes() -> None:
    assert not proof("0.5.14+fork", **SKIPPED, queue=(1,))
    assert proof("0.5.14+fork+fix-b", **SKIPPED, queue=(1,))
    assert proof("0.5.16", **SKIPPED, queue=(1,))  # its assert is caught, and writes Failed


def test_a_room_that_still_has_its_peers_and_a_chunk_settles() -> None:
    assert proof("0.5.14+fork", status=State.TRANSFERRING, peers=True, queue=(1,), abort_consumed=True)


def test_an_unsent_chunk_is_still_to_come() -> None:
    facts: Facts = {"status": State.TRANSFERRING, "peers": True, "abort_consumed": True}
    assert proof("0.5.14+fork", **facts, unsent=1)
    assert not proof("0.5.14+fork", **facts)
    assert not proof("0.5.14+fork", **{**facts, "peers": False}, unsent=1)
    waiting = {**facts, "status": State.WAITING}
    assert proof("0.5.14+fork", **waiting, unsent=2, polled=State.WAITING)


def test_a_pending_abort_settles_what_it_can_fail() -> None:
    facts: Facts = {"status": State.TRANSFERRING, "peers": True}
    assert proof("0.5.14+fork", **facts, abort_pending=True)
    assert not proof("0.5.14", **facts, abort_pending=True)  # it kills the thread instead


def test_decode_gives_up_on_a_room_of_which_no_abort_was_seen() -> None:
    facts: Facts = {"status": State.WAITING, "peers": True}
    assert proof("0.5.14+fork", **facts)
    assert not proof("0.5.14+fork", **facts, abort_consumed=True)
    assert not proof("0.5.14+fork", **facts, dead=("B",))


def test_only_an_armed_bootstrap_timeout_ends_bootstrapping() -> None:
    facts: Facts = {"status": State.BOOTSTRAPPING, "peers": False, "abort_consumed": True}
    assert proof("mooncake", **facts)
    assert not proof("0.5.16", **facts)


def test_metadata_that_may_still_come_opens_the_room() -> None:
    facts: Facts = {"status": State.BOOTSTRAPPING, "peers": False, "unsent": 2, "abort_consumed": True}
    assert proof("0.5.16", **facts, meta_pending=True)
    assert not proof("0.5.16", **facts)


def test_a_room_without_its_sender_can_still_be_opened() -> None:
    facts: Facts = {"status": State.WAITING, "peers": True, "unsent": 2, "abort_consumed": True}
    assert proof("0.5.16", **facts, opened=False)


def test_a_busy_worker_is_never_part_of_a_proof() -> None:
    assert proof("0.5.14+fork", **SKIPPED, worker_idle=False)
    assert proof("0.5.14+fork", **SKIPPED, in_flight=0)  # its transfer may fail
    assert not proof("0.5.14+fork", **SKIPPED, dead=("W",), queue=(1,))


def test_a_terminal_state_settles_at_the_next_poll() -> None:
    found = settles(observed(status=State.FAILED, peers=False, chunks=2, abort_consumed=True), FORK)
    assert found.witness == (Action("S", Op.STATUS_CHECKED),)


def test_a_witness_settles_the_room() -> None:
    start = observed(status=State.TRANSFERRING, peers=True, chunks=2, in_flight=0, queue=(1,))
    for policy in POLICIES.values():
        state = start
        for action in settles(start, policy).witness:
            assert not state.concluded
            state = step(state, action, policy)
        assert state.concluded


def test_every_pin_that_exploring_finds_is_proved_from_what_a_trace_would_show() -> None:
    for build, policy in POLICIES.items():
        for end in (end for end in explore(policy, opening()) if end.pinned):
            seen = observed(
                status=end.status,
                peers=end.peers,
                chunks=2,
                unsent=2 if end.status is State.BOOTSTRAPPING else 0,
                abort_consumed=True,
                dead=end.died,
            )
            timeout = end.status is State.BOOTSTRAPPING and policy.bootstrap_timeout
            assert settles(seen, policy).settles == timeout, build


@pytest.mark.parametrize(
    "wrong", [{"unsent": 3}, {"queue": (2,)}, {"queue": (1,), "unsent": 1}, {"in_flight": 5}, {"chunks": 0}]
)
def test_an_observation_that_contradicts_itself_is_refused(wrong: Facts) -> None:
    make: Callable[..., RoomState] = observed
    with pytest.raises(ValueError):
        make(**{"status": State.WAITING, "peers": True, "chunks": 2, **wrong})


# -- steps


def test_an_event_that_cannot_happen_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot happen"):
        step(opening(), Action("W", Op.CHUNK_DEQUEUED), FORK)
    with pytest.raises(ValueError):
        step(opening(), Action("W", "xfer.settled", 0, "error"), FORK)


def test_a_room_has_a_chunk() -> None:
    with pytest.raises(ValueError):
        opening(chunks=0)


@given(st.sampled_from(sorted(POLICIES)), st.integers(1, 3), st.booleans(), st.lists(st.integers(0, 99)))
def test_any_walk_can_be_walked_twice(build: str, chunks: int, aborts: bool, choices: list[int]) -> None:
    policy = POLICIES[build]
    first, second = (_stroll(policy, chunks, aborts, choices) for _ in range(2))
    assert first == second
    assert hash(first[0]) == hash(second[0])


@given(
    st.sampled_from(sorted(POLICIES)),
    st.booleans(),
    st.lists(st.integers(0, 99), min_size=20, max_size=120),
)
def test_the_rows_of_a_walk_tell_what_happened_to_the_room(
    build: str, aborts: bool, choices: list[int]
) -> None:
    state, rows = _stroll(POLICIES[build], 2, aborts, choices)
    status, peers, queue = State.ABSENT, False, 0
    for row in rows:
        assert row.op in OPS
        if row.op in (Op.STATUS_WRITTEN, Op.STATUS_CHECKED, Op.STATUS_DROPPED, Op.STATUS_REFUSED):
            assert row.columns["old"] == status
        if row.op in (Op.STATUS_WRITTEN, Op.STATUS_DROPPED):
            status = State(row.columns.get("new", State.ABSENT))
        if row.op in (Op.PEER_ADDED, Op.PEER_POPPED):
            peers = row.op == Op.PEER_ADDED
        queue += (row.op == Op.CHUNK_ENQUEUED) - (row.op == Op.CHUNK_DEQUEUED)
    assert (status, peers, queue) == (state.status, state.peers, len(state.queue))


def _stroll(policy: Policy, chunks: int, aborts: bool, choices: list[int]) -> tuple[RoomState, list[Row]]:
    """Walk on while something can happen, timeouts and failing transfers included."""
    state = opening(chunks=chunks, aborts=aborts)
    rows: list[Row] = []
    for choice in choices:
        moves = enabled(state, policy) + outcomes(state, policy)
        if not moves:
            break
        action = moves[choice % len(moves)]
        done = perform(state, action, policy)
        assert done.gated is not None
        assert GATE_OF[done.rows[done.gated].op] == action.gate
        state = done.state
        rows += done.rows
    return state, rows
