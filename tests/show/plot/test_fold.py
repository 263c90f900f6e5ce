"""Folded time: order first, real times on the labels, silence made short and said."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekv.event import Event, Op
from tracekv.show.plot.fold import MAX_WIDTH, after, duration, folded_time


def row(seq: int, at: int | None, process: str = "p", op: str = Op.STATUS_WRITTEN) -> Event:
    return Event(seq=seq, op=op, process=process, mono_ns=at, wall_ns=at)


def test_a_process_keeps_its_own_order_whatever_its_clock_says() -> None:
    time = folded_time([row(1, 100), row(3, 50), row(2, 90)])
    assert [m.event.seq for m in time.moments] == [1, 2, 3]
    assert [m.at_ns for m in time.moments] == [100, 100, 100]


def test_a_long_silence_is_folded_and_keeps_its_real_length() -> None:
    time = folded_time([row(n, n * 1000) for n in range(1, 9)] + [row(9, 60 * 10**9)])
    (fold,) = time.folds
    assert fold.ns == 60 * 10**9 - 8000
    assert fold.x1 - fold.x0 == pytest.approx(MAX_WIDTH)
    assert time.moments[-1].at_ns - time.moments[0].at_ns == 60 * 10**9 - 1000


def test_even_gaps_are_not_folded() -> None:
    assert not folded_time([row(n, n * 10**9) for n in range(20)]).folds


def test_reads_take_little_room() -> None:
    time = folded_time(
        [row(1, 0), row(2, 1, op=Op.STATUS_CHECKED), row(3, 2)],
        lambda row: 0.35 if row.op == Op.STATUS_CHECKED else 1.0,
    )
    xs = [m.x for m in time.moments]
    assert xs[1] - xs[0] < xs[2] - xs[1]


def test_a_clock_is_moved_so_that_no_message_arrives_before_it_was_sent() -> None:
    rows = [
        row(1, 1000, "d", Op.META_SENT),
        row(2, 5000, "d", Op.ABORT_SENT),
        row(1, 400, "p", Op.META_RECEIVED),
        row(2, 4300, "p", Op.ABORT_RECEIVED),
    ]
    time = folded_time(rows)
    assert time.moved_ns == {"p": 700}
    assert [(m.event.process, m.event.op) for m in time.moments] == [
        ("d", Op.META_SENT),
        ("p", Op.META_RECEIVED),
        ("d", Op.ABORT_SENT),
        ("p", Op.ABORT_RECEIVED),
    ]


def test_clocks_that_agree_are_left_alone() -> None:
    rows = [row(1, 1000, "d", Op.META_SENT), row(1, 1400, "p", Op.META_RECEIVED)]
    assert not folded_time(rows).moved_ns


def test_rows_without_a_clock_lie_between_their_neighbours() -> None:
    time = folded_time([row(1, 10), row(2, None), row(3, 30)])
    assert [m.at_ns for m in time.moments] == [10, 10, 30]


@given(st.lists(st.integers(0, 10**12), max_size=40))
def test_places_rise_and_distances_are_bounded(times: list[int]) -> None:
    moments = folded_time([row(n, at) for n, at in enumerate(times)]).moments
    assert len(moments) == len(times)
    assert all(1 - 1e-9 <= b.x - a.x <= MAX_WIDTH + 1e-9 for a, b in pairwise(moments))


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0"), (12_300, "+12.3 µs"), (1_234_000, "+1.234 ms"), (5_000_123_000, "+5.000123 s")]
)
def test_times_on_the_axis(ns: int, text: str) -> None:
    assert after(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"), [(412, "412 ns"), (4_210_000, "4.21 ms"), (61 * 10**9, "61 s"), (1235 * 10**9, "1235 s")]
)
def test_lengths(ns: int, text: str) -> None:
    assert duration(ns) == text
