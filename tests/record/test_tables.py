"""The recording dictionaries: a dict in every respect, and rows that say what happened to it."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import Recorded
from tracekv.event import ROOM_MAX, Event, Op, State
from tracekv.record.wrap.tables import (
    FailureTap,
    PeersTap,
    PrefixTap,
    StatusTap,
    recording_dict,
    records,
)

ABSENT = int(State.ABSENT)
KEYS = st.sampled_from([0, 1, 2, 2**63, ROOM_MAX, ROOM_MAX + 1, -1, "room", None, (1, 2), 1.5])
VALUES = st.sampled_from([0, 1, 2, 3, 4, 127, 128, -5, None, "Success", 2.5, b"x", True])
PAIRS = st.lists(st.tuples(KEYS, VALUES), max_size=4)
UNHASHABLE: st.SearchStrategy[Any] = st.just([])

Step = Callable[[Any], Any]


def steps(*names: str, keys: Any = KEYS, values: Any = VALUES) -> st.SearchStrategy[tuple[str, Step]]:
    """One operation, as a function of the dictionary, with a text for the report."""
    return st.one_of(*(_BUILDERS[name](keys, values) for name in names))


def _step(text: str, call: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def build(keys: Any, values: Any) -> Any:
        return st.tuples(keys, values).map(
            lambda given: (f"{text}{given}", lambda table: call(table, *given))
        )

    return build


def _many(text: str, call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def build(keys: Any, values: Any) -> Any:
        pairs = st.lists(st.tuples(keys, values), max_size=4)
        return pairs.map(lambda given: (f"{text}({given})", lambda table: call(table, given)))

    return build


def _ior(table: Any, pairs: Any) -> Any:
    table |= dict(pairs)
    return len(table)


_BUILDERS: dict[str, Callable[[Any, Any], Any]] = {
    "set": _step("set", lambda t, k, v: operator.setitem(t, k, v)),
    "del": _step("del", lambda t, k, v: operator.delitem(t, k)),
    "pop": _step("pop", lambda t, k, v: t.pop(k)),
    "pop_default": _step("pop_default", lambda t, k, v: t.pop(k, v)),
    "popitem": _step("popitem", lambda t, k, v: t.popitem()),
    "setdefault": _step("setdefault", lambda t, k, v: t.setdefault(k, v)),
    "setdefault_none": _step("setdefault_none", lambda t, k, v: t.setdefault(k)),
    "clear": _step("clear", lambda t, k, v: t.clear()),
    "in": _step("in", lambda t, k, v: k in t),
    "get": _step("get", lambda t, k, v: t.get(k)),
    "get_default": _step("get_default", lambda t, k, v: t.get(k, v)),
    "item": _step("item", lambda t, k, v: t[k]),
    "len": _step("len", lambda t, k, v: (len(t), bool(t))),
    "views": _step("views", lambda t, k, v: (list(t), list(t.keys()), list(t.values()), list(t.items()))),
    "reversed": _step("reversed", lambda t, k, v: list(reversed(t))),
    "copy": _step("copy", lambda t, k, v: dict(t.copy())),
    "equal": _step("equal", lambda t, k, v: (t == {k: v}, t != {k: v}, {k: v} == t)),
    "or": _step("or", lambda t, k, v: (dict(t | {k: v}), dict({k: v} | t))),
    "star": _step("star", lambda t, k, v: {**{str(key): x for key, x in t.items()}}),
    "update": _many("update", lambda t, pairs: t.update(pairs)),
    "update_dict": _many("update_dict", lambda t, pairs: t.update(dict(pairs))),
    "update_names": _step("update_names", lambda t, k, v: t.update({k: v}, a=v)),
    "ior": _many("ior", _ior),
    "too_many": _step("too_many", lambda t, k, v: t.pop(k, v, v)),
    "keyword": _step("keyword", lambda t, k, v: t.get(k, default=v)),
}
WRITES = (
    "set", "del", "pop", "pop_default", "popitem", "setdefault", "setdefault_none", "clear",
    "update", "update_dict", "update_names", "ior",
)  # fmt: skip
ANY = steps(*_BUILDERS)
ODD = steps("set", "pop", "get", "in", "item", "setdefault", "del", keys=UNHASHABLE)


def outcome(step: Step, table: Any) -> tuple[str, Any]:
    """What an operation returns or raises."""
    try:
        return "returned", step(table)
    except Exception as error:
        return "raised", (type(error), error.args if isinstance(error, KeyError) else None)


def same_as_plain(program: list[tuple[str, Step]], plain: Any, table: Any) -> None:
    for text, step in program:
        assert outcome(step, table) == outcome(step, plain), text
        assert list(table.items()) == list(plain.items()), text
    assert table == plain and repr(dict(table)) == repr(dict(plain))


RECORDERS = {detail: Recorded(detail=detail) for detail in ("writes", "gates")}


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY | ODD, max_size=25), st.sampled_from(["writes", "gates"]))
def test_it_is_a_dict(program: list[tuple[str, Step]], detail: str) -> None:
    table = recording_dict({1: 1}, StatusTap(RECORDERS[detail], 0))
    same_as_plain(program, {1: 1}, table)


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY | ODD, max_size=25), st.sampled_from([int, None]))
def test_it_is_a_defaultdict(program: list[tuple[str, Step]], factory: Any) -> None:
    table = recording_dict(defaultdict(factory, {1: 1}), StatusTap(RECORDERS["writes"], 0))
    assert isinstance(table, defaultdict) and table.default_factory is factory
    same_as_plain(program, defaultdict(factory, {1: 1}), table)


def replayed(rows: list[Event]) -> dict[int | None, int | None]:
    """The dictionary that the rows tell of; every row must fit to what was there before it."""
    table: dict[int | None, int | None] = {}
    for row in rows:
        assert row.old == table.get(row.room, ABSENT)
        if row.op == Op.STATUS_WRITTEN:
            table[row.room] = row.new
        elif row.op == Op.STATUS_DROPPED:
            table.pop(row.room, None)
        else:
            assert row.op == Op.STATUS_CHECKED
    return table


ROOMS, STATES = st.sampled_from([0, 1, 2**63, ROOM_MAX]), st.integers(0, 4)
KNOWN = steps(*(name for name in _BUILDERS if name not in ("update_names", "setdefault_none")),
              keys=ROOMS, values=STATES)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(KNOWN, max_size=25), st.sampled_from(["writes", "gates"]), st.booleans())
def test_the_rows_tell_what_happened(
    program: list[tuple[str, Step]], detail: str, defaulting: bool
) -> None:
    recorder = RECORDERS[detail]
    recorder.rows.clear()
    empty: Any = defaultdict(int) if defaulting else {}
    table = recording_dict(empty, StatusTap(recorder, 3))
    for _, step in program:
        outcome(step, table)
    assert replayed(recorder.rows) == dict(table)
    assert all(row.manager == 3 and row.site for row in recorder.rows)


@pytest.mark.parametrize("room", ["a room", None, -1, ROOM_MAX + 1, (1, 2), 2.5, object()])
def test_a_key_that_is_no_room_is_a_row_without_one(room: Any) -> None:
    recorder = Recorded(detail="gates")
    table = recording_dict({}, StatusTap(recorder, 0))
    table[room] = 3
    assert room in table and table.pop(room) == 3
    assert [(row.op, row.room) for row in recorder.rows] == [
        (Op.STATUS_WRITTEN, None), (Op.STATUS_CHECKED, None), (Op.STATUS_DROPPED, None)
    ]  # fmt: skip
    assert [row.op for row in recorder.spooled() if row.op.startswith("status")] == [
        Op.STATUS_WRITTEN, Op.STATUS_CHECKED, Op.STATUS_DROPPED
    ]  # fmt: skip


@pytest.mark.parametrize("status", ["Success", None, 2.5, 1000, -1000, 2**70, object()])
def test_a_value_that_is_no_state_is_unknown_and_remembered(status: Any) -> None:
    recorder = Recorded()
    table = recording_dict({}, StatusTap(recorder, 0))
    table[1] = status
    assert table[1] is status
    written = recorder.of(Op.STATUS_WRITTEN)
    assert [(row.room, row.old, row.new) for row in written] == [(1, ABSENT, None)]
    assert recorder.troubles and recorder.of("x.tracekv.trouble")
    assert recorder.spool.lost == 0


def test_only_what_was_stored_is_a_row() -> None:
    recorder = Recorded()
    table = recording_dict({}, StatusTap(recorder, 0))
    for _ in range(2):
        table.setdefault(1, 1)
        table.setdefault(2)
    assert [(row.op, row.room, row.old) for row in recorder.of(Op.STATUS_WRITTEN)] == [
        (Op.STATUS_WRITTEN, 1, ABSENT), (Op.STATUS_WRITTEN, 2, ABSENT)
    ]  # fmt: skip
    assert table == {1: 1, 2: None}


class Index:
    """An integer of another library."""

    def __index__(self) -> int:
        return 4

    def __hash__(self) -> int:
        return 4

    def __eq__(self, other: object) -> bool:
        return other == 4


def test_integers_of_other_libraries_are_integers() -> None:
    recorder = Recorded()
    table = recording_dict({}, StatusTap(recorder, 0))
    table[Index()] = Index()
    assert [(row.room, row.new) for row in recorder.rows] == [(4, 4)]


class Hostile:
    """Nothing that we may do with it works."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __index__(self) -> int:
        raise RuntimeError("no number")

    __str__ = __repr__


def test_a_hostile_object_does_not_raise_into_the_engine() -> None:
    recorder = Recorded(detail="gates")
    for kind in (StatusTap, PeersTap, FailureTap, PrefixTap):
        hostile = Hostile()
        table = recording_dict({}, kind(recorder, 0))
        table[hostile] = hostile
        table[1] = hostile
        assert table.get(hostile) is hostile and table.pop(1) is hostile
        del table[hostile]
    assert recorder.troubles


def test_reads_are_rows_only_at_gates_or_inside_a_status_write() -> None:
    recorder = Recorded(detail="writes")
    table = recording_dict({}, StatusTap(recorder, 0))
    assert 1 not in table and table.get(1) is None
    assert recorder.rows == []
    recorder.here.in_write = True
    assert 1 not in table
    table.get(1)
    calls = [(row.old, json.loads(row.attrs or "")["call"]) for row in recorder.rows]
    assert calls == [(ABSENT, "in"), (ABSENT, "get")]


@pytest.mark.parametrize("plain", [{1: 2}, defaultdict(int, {1: 2})])
def test_a_copy_is_plain_and_its_own(plain: Any) -> None:
    recorder = Recorded()
    table = recording_dict(plain, StatusTap(recorder, 0))
    made = [
        table.copy(), copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table)),
        table | {}, {} | table, dict(table),
    ]  # fmt: skip
    for other in made:
        assert other == plain and not records(other)
        other[5] = 5
    assert type(table.copy()) is type(plain) and type(copy.deepcopy(table)) is type(plain)
    assert type(table).fromkeys([1]) == {1: None}
    assert recorder.rows == [] and 5 not in table


def test_an_update_that_fails_raises_what_a_dict_raises() -> None:
    table: Any = recording_dict({}, StatusTap(Recorded(), 0))
    plain: Any = {}
    bad: Any
    for bad in ([1], [(1, 2, 3)], 5):
        with pytest.raises((TypeError, ValueError)) as ours:
            table.update(bad)
        with pytest.raises(ours.type):
            plain.update(bad)


def test_an_unknown_kind_of_dictionary_is_left_as_it_is() -> None:
    class Special(dict):  # type: ignore[type-arg]
        pass

    special = Special()
    assert recording_dict(special, StatusTap(Recorded(), 0)) is special
    assert not records(special)
    taken = recording_dict({}, StatusTap(Recorded(), 0))
    assert recording_dict(taken, StatusTap(Recorded(), 1)) is taken


# ---- the other tables


def test_peers_of_a_room_are_recorded_inside_its_entry() -> None:
    recorder = Recorded(detail="gates")
    table = recording_dict({}, PeersTap(recorder, 0))
    assert 9 not in table
    table[9] = {}
    table[9]["decode-0"] = object()
    table[10] = {"decode-1": 1}
    table.pop(9)
    table.pop(9, None)
    told = [(row.op, row.room, row.peer) for row in recorder.rows if row.op != Op.PEER_CHECKED]
    assert told == [
        (Op.PEER_ADDED, 9, None), (Op.PEER_ADDED, 9, "decode-0"),
        (Op.PEER_ADDED, 10, None), (Op.PEER_ADDED, 10, "decode-1"),
        (Op.PEER_POPPED, 9, None), (Op.PEER_POPPED, 9, None),
    ]  # fmt: skip
    assert [row.attr("had") for row in recorder.of(Op.PEER_POPPED)] == [True, False]
    assert [(row.attr("call"), row.attr("found")) for row in recorder.of(Op.PEER_CHECKED)] == [
        ("in", False), ("get", True)
    ]  # fmt: skip


def test_an_entry_that_a_defaultdict_makes_is_the_one_that_is_stored() -> None:
    recorder = Recorded()
    table = recording_dict(defaultdict(dict), PeersTap(recorder, 0))
    table[9]["decode-0"] = 1
    assert table == {9: {"decode-0": 1}}
    assert [row.peer for row in recorder.of(Op.PEER_ADDED)] == [None, "decode-0"]
    assert table.setdefault(8, {}) is table[8]


def test_prefix_and_failures() -> None:
    recorder = Recorded(detail="gates")
    prefix = recording_dict({}, PrefixTap(recorder, 0))
    prefix[1] = 5
    prefix.pop(1)
    prefix.pop(1, None)
    failures = recording_dict({}, FailureTap(recorder, 0))
    failures[1] = "it broke"
    failures.pop(1)
    assert [(row.op, row.reason) for row in recorder.rows] == [
        (Op.PREFIX_ADDED, None), (Op.PREFIX_POPPED, None), (Op.FAILURE_RECORDED, "it broke")
    ]  # fmt: skip


def caller_of(table: Any) -> None:
    table[1] = 1
    table.update({2: 2})
    table.setdefault(3, 3)
    del table[1]
    table.clear()


def test_the_site_is_the_engines_line_however_deep_we_are() -> None:
    recorder = Recorded()
    caller_of(recording_dict({}, StatusTap(recorder, 0)))
    first = caller_of.__code__.co_firstlineno
    sites = [row.site for row in recorder.rows]
    assert sites == [f"caller_of:{first + line}" for line in (1, 2, 3, 4, 5, 5)]
