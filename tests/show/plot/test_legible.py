"""Words: cut, wrapped, and placed without overlap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracekv.show.plot.legible import Flag, flags, inches, plain, wrapped


def test_a_cut_shows() -> None:
    assert plain("abcdef", 4) == "abc…"
    assert plain("abcd", 4) == "abcd"


def test_control_characters_and_newlines_do_not_break_a_line() -> None:
    assert plain("a\x1b[31m\n\tb\u202e", 20) == "a [31m b"


def test_lines_are_bounded_and_even() -> None:
    assert wrapped("word " * 100, 20, 2)[-1].endswith("…")
    assert wrapped("the bootstrap thread removes the peer metadata", 44, 2) == [
        "the bootstrap thread",
        "removes the peer metadata",
    ]
    assert wrapped("", 20, 2) == []


def test_width_follows_the_letters() -> None:
    assert inches("iii") < inches("mmm") < inches("mmm", bold=True) < inches("mmm", size=16)


def overlap(one: Flag, other: Flag) -> bool:
    beside = one.left < other.left + other.width and other.left < one.left + one.width
    return beside and one.low < other.low + other.height and other.low < one.low + one.height


SIZES = st.tuples(st.floats(0.3, 3), st.floats(0.2, 0.8))


@given(st.lists(st.tuples(st.floats(0, 12), SIZES), max_size=9))
def test_boxes_never_overlap_and_stay_on_the_page(wanted: list[tuple[float, tuple[float, float]]]) -> None:
    placed = flags([x for x, _ in wanted], [size for _, size in wanted], 12.0)
    assert not [1 for i, one in enumerate(placed) for other in placed[:i] if overlap(one, other)]
    assert all(flag.left >= 0 and flag.left + flag.width <= 12.0 + 1e-9 for flag in placed)
