"""The sample traces say what their labels say; the labels were read from the rig's own dictionaries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tracekv.cli import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent.parent / "sample_traces"
LABELS: dict[str, dict[str, Any]] = {
    f"{group}/{name}": label
    for group, labels in tomllib.loads((FOLDER / "LABELS.toml").read_text()).items()
    for name, label in labels.items()
}
EXIT = {"violation": 1, "clean": 0}


@pytest.fixture(scope="module", params=sorted(LABELS))
def judged(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any], int]:
    """A label, what ``analyze --format json`` says, and its exit code."""
    result = CliRunner().invoke(main, ["analyze", str(FOLDER / request.param), "--format", "json"])
    return LABELS[request.param], json.loads(result.stdout), result.exit_code


def rooms_of_kind(said: dict[str, Any], kind: str) -> list[str]:
    return sorted({each["room"] for each in said["findings"] if each["kind"] == kind})


def test_the_verdict_and_its_exit_code(judged: Any) -> None:
    label, said, code = judged
    assert said["verdict"] == label["verdict"]
    assert code == EXIT[label["verdict"]]
    assert said["partial"] is False


def test_exactly_the_labelled_rooms_are_pinned_and_each_by_proof(judged: Any) -> None:
    label, said, _ = judged
    assert rooms_of_kind(said, "pinned") == label["pinned"]
    assert {each["certainty"] for each in said["findings"] if each["kind"] == "pinned"} <= {"proof"}


def test_exactly_the_labelled_rooms_are_ghosts_or_false_successes(judged: Any) -> None:
    label, said, _ = judged
    assert rooms_of_kind(said, "ghost_room") == label["ghosts"]
    assert rooms_of_kind(said, "false_success") == label["false_success"]


def test_no_other_room_is_named(judged: Any) -> None:
    label, said, _ = judged
    labelled = {*label["pinned"], *label["ghosts"], *label["false_success"]}
    assert {each["room"] for each in said["findings"]} == labelled


def test_the_state_of_a_pinned_room_is_what_the_dictionary_held(judged: Any) -> None:
    label, said, _ = judged
    states = {each["room"]: each["state"] for each in said["findings"] if each["kind"] == "pinned"}
    assert states == {room: label["ended"][room] for room in label["pinned"]}


def test_all_rooms_were_looked_at(judged: Any) -> None:
    label, said, _ = judged
    assert said["evidence"]["rooms"] == label["rooms"]


def test_there_are_twins_and_they_are_small() -> None:
    twins = {"bad/resurrection_pin", "ok/resurrection_pin_fix_b", "bad/natural_pin", "ok/healthy"}
    assert twins <= set(LABELS)
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 1_000_000


def test_the_twin_was_healed_and_says_so() -> None:
    result = CliRunner().invoke(
        main, ["analyze", str(FOLDER / "ok/resurrection_pin_fix_b"), "--format", "json"]
    )
    assert [note["kind"] for note in json.loads(result.stdout)["notes"]] == ["healed_resurrection"]
