"""What a notebook holds: errors are ours, frames keep their shape."""

from pathlib import Path

import numpy as np
import pytest

import tracekv
from tests.memory import HEALTHY, PIN, trace
from tracekv.errors import UsageError
from tracekv.recording import Recording

BAD = Recording(trace(PIN))
OK = Recording(trace(HEALTHY))


@pytest.mark.parametrize("room", ["ROOM", "", "1_0", -1, 2**64, None, 7.0, "8"])
def test_what_is_no_room_here_is_a_usage_error(room: object) -> None:
    for ask in (BAD.room, BAD.plot, lambda given: tracekv.analyze(BAD, room=given or "none")):
        with pytest.raises(UsageError, match="no room"):
            ask(room)  # type: ignore[operator]


@pytest.mark.parametrize("room", [7, "7", "0x7", np.uint64(7)])
def test_a_room_in_any_of_its_spellings(room: object) -> None:
    assert BAD.room(room).room == 7  # type: ignore[arg-type]


def test_the_text_is_told_as_it_was_typed() -> None:
    with pytest.raises(UsageError, match="'ROOM' is no room id"):
        BAD.plot("ROOM")


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e308, 0, -1])
def test_a_threshold_that_is_no_time(seconds: float) -> None:
    with pytest.raises(UsageError, match="cannot be suspected"):
        tracekv.analyze(BAD, stuck_after_s=seconds)


def test_analyze_takes_a_path_a_recording_and_a_trace(samples: Path) -> None:
    path = samples / "bad/resurrection_pin"
    names = {tracekv.analyze(given).name for given in (path, str(path), tracekv.open(path), trace(PIN))}
    assert names == {"violation"}


def test_frames_have_the_same_types_empty_or_not() -> None:
    assert OK.findings().empty and not BAD.findings().empty
    assert (OK.findings().dtypes == BAD.findings().dtypes).all()
    assert (Recording(trace("")).rooms().dtypes == BAD.rooms().dtypes).all()
    assert str(BAD.findings()["room"].dtype) == "UInt64"
