"""An interrupted write is read together with the row before it."""

from dataclasses import replace

from tracekv.event import Op, State
from tracekv.rooms.settle import settled
from tracekv.story import story

LINE = "S:init B:info W:set3 B:set0 W:set3"


def test_an_uninterrupted_history_stays_as_it_is() -> None:
    rows = story(LINE)
    assert list(settled(rows)) == rows


def test_the_old_value_of_an_interrupted_write_is_what_the_row_before_it_stored() -> None:
    rows = story(LINE)
    last = rows[-1]
    assert last.op == Op.STATUS_WRITTEN and last.old == State.FAILED
    stale = replace(last, old=int(State.TRANSFERRING), seq_before=rows[0].seq)
    assert list(settled([*rows[:-1], stale]))[-1].old == State.FAILED


def test_nothing_is_invented_where_the_trace_begins_with_it() -> None:
    first = replace(story(LINE)[-1], seq_before=1)
    assert list(settled([first])) == [first]
