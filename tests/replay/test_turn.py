"""Where a replay stopped being like its original."""

from __future__ import annotations

from tests.memory import HEALED, PIN, trace
from tracekv.event import State
from tracekv.replay.turn import Turn, first_turn
from tracekv.rooms import Life, lives_of
from tracekv.story import story


def life(line: str) -> Life:
    return next(each for each in lives_of(story(line), trace("").managers) if each.role == "prefill")


def turn(original: str, again: str) -> Turn:
    told = life(original)
    found = first_turn(told, life(again), {row.seq: n for n, row in enumerate(told.events, start=1)})
    assert found is not None
    return found


def test_the_same_is_no_turn() -> None:
    assert first_turn(life(PIN), life(PIN), {}) is None


def test_another_order_of_two_threads_is_no_turn() -> None:
    first = life("S:init B:info S:enq0* W:deq0 W:set3<2 B:abort B:pop W:done0")
    second = life("S:init B:info S:enq0* W:deq0 B:abort B:pop W:set3<2 W:done0")
    assert first_turn(first, second, {}) is None


def test_another_worker_is_no_turn() -> None:
    assert first_turn(life("S:init W:set3"), life("S:init W1:set3"), {}) is None


def test_a_write_that_was_refused_is_the_turn() -> None:
    found = turn(PIN, PIN.replace("W:done0 W:set3", "W:done0 W:refuse3"))
    assert found.original is not None and "stores Transferring over Failed" in found.original
    assert found.again is not None and "nothing is stored" in found.again
    assert str(found).startswith(f"at step {found.step} of the story: then ")


def test_a_skip_that_concludes_is_the_turn() -> None:
    found = turn(PIN, HEALED)
    assert "skipped" in str(found.original)
    assert f"stores {State.FAILED.label}" in str(found.again)


def test_the_earliest_in_the_originals_order_is_told() -> None:
    found = turn("S:init B:set0 W:set3 S:set4", "S:init B:set1 W:set4 S:set0")
    assert "Failed" in str(found.original) and "bootstrap" in str(found.original)


def test_what_only_one_of_them_did() -> None:
    assert turn("S:init B:pop", "S:init") == Turn(3, turn("S:init B:pop", "S:init").original, None)
    more = turn("S:init", "S:init B:pop W:set3")
    assert (more.step, more.original) == (None, None)
    assert more.again is not None and "bootstrap" in more.again
    assert "that thread did nothing more" in str(more)
