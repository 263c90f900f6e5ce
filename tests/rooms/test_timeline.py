"""Lives by time: the same answer as a look at each of them, in much less time."""

import time
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.memory import trace
from tracekv.rooms import rooms_of
from tracekv.rooms.timeline import Timeline
from tracekv.verdict import analyze

SPAN = st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@dataclass(frozen=True)
class Lived:
    span: "tuple[int, float] | None"


@given(st.lists(st.none() | SPAN), SPAN)
def test_nothing_that_touches_the_span_is_left_out(
    spans: "list[tuple[int, int] | None]", asked: "tuple[int, int]"
) -> None:
    begin, end = asked
    lives = [Lived(span) for span in spans]
    found = list(Timeline(lives).between(begin, end))
    touching = [
        each for each in lives if each.span is None or (each.span[0] <= end and begin <= each.span[1])
    ]
    assert all(any(each is one for one in found) for each in touching)
    assert len(found) <= len(lives)


def test_what_is_long_over_is_not_looked_at() -> None:
    lives = [Lived((n, n + 1)) for n in range(1000)]
    assert len(list(Timeline(lives).between(998, 2000))) == 3


def test_an_id_that_is_used_thousands_of_times_takes_seconds() -> None:
    line = "S:init D:init B:info D:info D:concl4 D:poll4 D:clear W:set4 S:poll4 S:clear +200ms "
    made = trace(line * 3000)
    begin = time.perf_counter()
    verdict = analyze(made)
    assert time.perf_counter() - begin < 20  # it was minutes
    assert verdict.findings == () and len(rooms_of(made)[7].lives) == 6000
