import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.memory import ABORTED, HEALED, HEALTHY, PIN
from tracekv.event import Op
from tracekv.story import StoryError, preamble, recording, story, tell

WORDS = [
    "S:init", "S:open", "B:info", "D:info", "B:meta", "B:add", "B:peer", "B:pop", "B:pop-", "W:set3",
    "B:set0", "S:set1=4", "W:set?=3", "W:set3<0", "B:refuse0", "S:drop", "S:get", "W:has", "W:hasinfo",
    "W:getinfo",
    "S:enq0", "S:enq1*", "W:deq0", "W1:skip1", "W:wait", "W:wait2", "W:post0", "W:done0", "W:bad0", "B:abort",
    "D:abort", "S:abort", "B:ack", "D:ack", "W:err", "S:poll3", "D:concl4", "S:clear", "S:cleared", "D:notif",
    "B:ctl", "B:die", "S:beat", "W:lost5", "@8", "@7",
]  # fmt: skip


@pytest.mark.parametrize("line", [PIN, HEALTHY, ABORTED, HEALED])
def test_a_line_is_told_as_it_was_read(line: str) -> None:
    assert tell(story(line)) == line


@example(["S:drop", "S:clear"])
@example(["S:init", "S:drop", "S:drop", "S:clear"])
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_reading_what_was_told_gives_the_same_rows(words: list[str]) -> None:
    rows = story(" ".join(words))
    assert [(e.op, e.room, e.old, e.new, e.thread) for e in story(tell(rows))] == [
        (e.op, e.room, e.old, e.new, e.thread) for e in rows
    ]


def test_init_stores_bootstrapping_with_the_merge_that_the_dictionary_saw() -> None:
    opened, written = story("S:init")
    assert (opened.op, written.op) == (Op.ROOM_OPENED, Op.STATUS_WRITTEN)
    assert (written.requested, written.old, written.new) == (1, -1, 1)
    assert [row.new for row in story("B:set4 S:init")][-1] == 4


def test_time_passes_where_the_line_says_so() -> None:
    first, second = story("S:open +30s S:cleared")
    assert first.mono_ns is not None and second.mono_ns is not None
    assert 30_000_000_000 <= second.mono_ns - first.mono_ns < 31_000_000_000


def test_rooms_keep_all_their_bits() -> None:
    assert story("@0x7fffffffffffffff S:open")[0].room == 2**63 - 1


@pytest.mark.parametrize("word", ["X:init", "S:fly", "set3", "S:setx", "W:enq"])
def test_an_unknown_word_is_named(word: str) -> None:
    with pytest.raises(StoryError, match=word):
        story(word)


def test_the_preamble_comes_before_the_story() -> None:
    rows = recording("S:init")
    assert [row.seq for row in rows] == list(range(len(rows)))
    assert len(rows) == len(preamble()) + 2
