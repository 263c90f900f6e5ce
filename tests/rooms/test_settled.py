"""When a life is over: cleared, or terminal with nothing outstanding."""

import pytest

from tests.memory import ABORTED, HEALTHY, trace
from tracekv.rooms import rooms_of
from tracekv.verdict import analyze

OPEN = "S:init B:info B:ctl S:enq0 S:enq1*"


def settled(line: str) -> bool:
    return rooms_of(trace(line))[7].lives[0].settled


@pytest.mark.parametrize(
    "line",
    [
        f"{OPEN} W:deq0 W:set3 W:post0 B:abort B:set0 B:pop B:ctl",  # in flight, and one chunk queued
        f"{OPEN} W:deq0 W:set3 W:post0 W:done0 B:abort B:set0 B:pop B:ctl",  # one chunk queued
        "S:init B:info B:ctl S:enq0* W:deq0 W:set3 W:post0 B:abort B:set0 B:pop B:ctl",  # in flight
    ],
)
def test_failed_is_no_end_while_a_worker_has_something_to_do(line: str) -> None:
    assert not settled(line) and not settled(f"{line} S:poll0") and settled(f"{line} S:poll0 S:clear")
    verdict = analyze(trace(line))
    assert verdict.name == "cannot_tell" and "still open" in verdict.reasons[0]
    assert analyze(trace(f"{line} S:poll0 S:clear")).name == "cannot_tell"  # the ghost may be the next row


@pytest.mark.parametrize(
    ("line", "who"),
    [
        (ABORTED.replace("B:pop B:ctl", "B:pop"), "bootstrap thread"),
        (HEALTHY.replace("W:set4 W:pop W:wait", "W:set4 W:pop"), "worker"),
    ],
)
def test_a_thread_that_is_not_back_may_still_write(line: str, who: str) -> None:
    verdict = analyze(trace(line))
    assert verdict.name == "cannot_tell" and who in " ".join(verdict.reasons)


@pytest.mark.parametrize("line", [ABORTED, HEALTHY])
def test_every_cut_of_a_healthy_room_is_clean_only_once_it_is_over(line: str) -> None:
    words = line.split()
    for cut in range(len(words)):
        name = analyze(trace(" ".join(words[:cut]))).name
        assert name == "cannot_tell" or (name == "clean" and words[cut - 1].startswith("S:poll")), words[:cut]
    assert analyze(trace(line)).name == "clean"


def test_an_end_that_nobody_saw_is_no_evidence() -> None:
    line = ABORTED.replace(" S:poll0 S:clear", "")
    assert settled(line) and analyze(trace(line)).name == "cannot_tell"
    assert analyze(trace(f"{line} S:poll0")).name == "clean"
