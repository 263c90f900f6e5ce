import json

import pytest

from tests.memory import HEALED, HEALTHY, PIN, trace
from tracekv.event import Event
from tracekv.show.json import analysis, event_json, safe, utc
from tracekv.verdict import analyze

KEYS = {"schema", "verdict", "findings", "notes", "reasons", "evidence", "partial", "damage"}
FINDING = {
    "id", "kind", "certainty", "room", "incarnation", "role", "ranks", "since", "state", "queue",
    "blocked_on", "story", "implies", "remedy", "claim",
}  # fmt: skip


VERDICTS = [(PIN, "violation"), (HEALTHY, "clean"), ("S:init", "cannot_tell")]


@pytest.mark.parametrize(("line", "name"), VERDICTS)
def test_one_object_for_every_verdict(line: str, name: str) -> None:
    told = json.loads(json.dumps(analysis(analyze(trace(line)))))
    assert set(told) == KEYS
    assert (told["schema"], told["verdict"]) == ("tracekv.analysis/1", name)


def test_a_finding_has_every_field() -> None:
    told = analysis(analyze(trace(PIN, room=2**63 + 1)))
    assert [each["kind"] for each in told["findings"]] == ["resurrection", "pinned"]
    for each in told["findings"]:
        assert set(each) >= FINDING
        assert each["room"] == str(2**63 + 1)
        assert set(each["since"]) == {"seq", "mono_ns", "wall_ns", "utc"}
        assert isinstance(each["since"]["mono_ns"], str)  # whatever its size
        assert all(step["event"]["room"] == each["room"] for step in each["story"])


def test_the_healed_resurrection_is_under_notes() -> None:
    told = analysis(analyze(trace(HEALED, build="0.5.14+fork+fix-b")))
    assert told["verdict"] == "clean"
    assert [(note["kind"], note["room"]) for note in told["notes"]] == [("healed_resurrection", "7")]


def test_no_integer_is_beyond_a_double() -> None:
    def integers(value: object) -> list[int]:
        if isinstance(value, dict):
            return [n for each in value.values() for n in integers(each)]
        if isinstance(value, list):
            return [n for each in value for n in integers(each)]
        return [value] if isinstance(value, int) else []

    told = analysis(analyze(trace(PIN, room=2**64 - 1)))
    assert max(integers(told)) <= 2**53


def test_small_rooms_are_strings_too_and_zero_is_a_value() -> None:
    row = event_json(Event(seq=0, op="status.written", process="p", room=3, old=0, new=0))
    assert (row["room"], row["old"], row["seq"]) == ("3", 0, 0)
    assert "peer" not in row


def test_safe_leaves_everything_else() -> None:
    assert (safe(2**53), safe(2**53 + 1), safe(True), safe(None)) == (2**53, str(2**53 + 1), True, None)


def test_utc_is_exact_to_the_microsecond() -> None:
    assert utc(1_750_000_000_000_001_999) == "2025-06-15T15:06:40.000001Z"
    assert utc(None) is None and utc(2**70) is None
