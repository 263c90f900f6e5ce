from hypothesis import given
from hypothesis import strategies as st

from tests.memory import HEALTHY, Memory, trace
from tests.test_story import WORDS
from tracekv.event import Op, State
from tracekv.rooms import Life, partners, rooms_of
from tracekv.story import preamble, story


def lives(line: str) -> tuple[Life, ...]:
    return rooms_of(trace(line))[7].prefill


def test_one_life_from_open_to_clear() -> None:
    (life,) = lives(HEALTHY)
    assert life.opened is not None and life.cleared is not None
    assert (life.n, life.open, life.state, life.ghosts) == (0, False, State.ABSENT, ())


def test_a_reused_id_is_a_second_life() -> None:
    first, second = lives("S:init S:clear S:init")
    assert (first.n, second.n, first.open, second.open) == (0, 1, False, True)


def test_metadata_before_the_constructor_joins_the_next_life() -> None:
    first, second = lives("S:init S:clear B:info S:init")
    assert first.ghosts == ()
    assert second.events[0].op == Op.META_RECEIVED


def test_an_abort_before_the_constructor_joins_the_next_life() -> None:
    (life,) = lives("B:abort B:refuse0 S:init")
    assert life.events[0].op == Op.ABORT_RECEIVED and life.opened is not None


def test_a_worker_after_the_clear_is_a_ghost_of_the_life_that_ended() -> None:
    first, second = lives("S:init S:clear W:set3 S:init")
    assert [row.new for row in first.ghosts] == [3]
    assert second.ghosts == ()


def test_a_frame_that_straddles_the_clear_belongs_to_the_life_that_ended() -> None:
    first, second = lives("S:init B:meta S:clear B:add B:set2 S:init")
    assert [row.op for row in first.ghosts] == [Op.PEER_ADDED, Op.STATUS_WRITTEN]
    assert second.events[0].op == Op.ROOM_OPENED


def test_a_life_without_a_beginning_is_a_life() -> None:
    first, second = lives("W:done0 W:set3 S:clear S:init")
    assert first.opened is None and first.cleared is not None
    assert second.n == 1


def test_a_room_that_opens_again_without_a_clear_replaces_its_life() -> None:
    first, second = lives("S:init S:init")
    assert first.replaced and not first.open and second.open


def test_frames_alone_hold_nothing() -> None:
    (life,) = rooms_of(trace("D:info D:abort"))[7].decode
    assert not life.entered and not life.open


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_every_row_of_a_room_is_in_exactly_one_life(words: list[str]) -> None:
    made = trace(" ".join(words))
    rows = [row for row in made.events() if row.room is not None]
    held = [row for room in rooms_of(made).values() for life in room.lives for row in life.events]
    assert sorted(row.seq for row in held) == sorted(row.seq for row in rows)


def test_both_sides_are_joined_by_overlap_in_time() -> None:
    room = rooms_of(trace("S:init D:open D:info B:info S:clear D:concl4 D:clear"))[7]
    assert [life.role for life in partners(room.prefill[0], room).lives] == ["decode"]
    assert partners(room.prefill[0], room).text is None


def test_two_lives_that_fit_are_named() -> None:
    room = rooms_of(trace("D:init S:init D:concl0 D:clear D:init B:info D:concl4 D:clear S:clear"))[7]
    found = partners(room.prefill[0], room)
    assert len(found.lives) == 2
    assert found.text is not None and "incarnation 1" in found.text


def test_a_role_that_nobody_described_is_read_from_the_threads() -> None:
    room = rooms_of(Memory(story("S:init B:info D:init")))[7]
    assert [life.role for life in room.lives] == ["prefill", "decode"]


def test_ids_beyond_a_float_stay_apart() -> None:
    rows = [*preamble(), *story(f"@{2**63} S:init @{2**63 + 1} S:init", seq=100)]
    assert list(rooms_of(Memory(rows))) == [2**63, 2**63 + 1]
