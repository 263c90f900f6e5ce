"""The sample traces say what their labels say; the labels were read from the rig's own dictionaries."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.memory import Memory
from tracekv.cli import main
from tracekv.event import Event, Op
from tracekv.trace.store import open_trace
from tracekv.verdict import Verdict, analyze

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


# ------------------------------------------------------- the samples with something taken out of them


def rows_of(name: str) -> list[Event]:
    return list(open_trace(FOLDER / name).events())


def judged_less(name: str, drop: Callable[[Event], bool]) -> Verdict:
    return analyze(Memory([row for row in rows_of(name) if not drop(row)]))


def test_without_the_resurrecting_row_the_later_reads_contradict() -> None:
    rows = rows_of("bad/resurrection_pin")
    (lifted,) = (row for row in rows if row.op == Op.STATUS_WRITTEN and (row.old, row.new) == (0, 3))
    verdict = judged_less("bad/resurrection_pin", lambda row: row.seq == lifted.seq)
    assert verdict.name == "cannot_tell"
    assert any("contradict each other" in reason for reason in verdict.reasons)


def test_without_any_one_row_the_bad_sample_is_never_clean() -> None:
    rows = rows_of("bad/resurrection_pin")
    for row in rows:
        assert (
            judged_less("bad/resurrection_pin", lambda each, row=row: each.seq == row.seq).name != "clean"
        ), row


@pytest.mark.parametrize("cut", range(1, 12))
def test_the_healed_twin_is_never_proved_to_hang(cut: int) -> None:
    """One row less, and the tail cut: the room did not hang, so nothing may prove that it does."""
    rows = rows_of("ok/resurrection_pin_fix_b")
    kept = rows[:-cut]
    for row in kept[-20:]:
        verdict = analyze(Memory([each for each in kept if each.seq != row.seq]))
        found = {(each.kind, each.certainty) for each in verdict.findings}
        assert ("pinned", "proof") not in found, row


@pytest.mark.parametrize(
    "op",
    [
        Op.ROOM_OPENED, Op.ROOM_CLEARED, Op.STATUS_WRITTEN, Op.STATUS_DROPPED, Op.PEER_ADDED, Op.META_SENT,
        Op.META_RECEIVED, Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED, Op.CHUNK_SKIPPED, Op.XFER_POSTED,
        Op.XFER_DONE, Op.ABORT_SENT, Op.ABORT_RECEIVED, Op.POLL_CHANGED, Op.CONCLUDE_SET,
        Op.WORKER_WAITING, Op.CONTROL_WAITING, Op.SEAM_INSTALLED, Op.MANAGER_STARTED, Op.PROCESS_STARTED,
    ],
)  # fmt: skip
def test_clean_needs_the_rows_that_it_rests_on(op: str) -> None:
    assert judged_less("ok/healthy", lambda row: row.op == op).name == "cannot_tell"


@pytest.mark.parametrize("column", ["new", "manager", "thread", "chunk"])
def test_a_column_that_is_null_everywhere_is_no_evidence(column: str) -> None:
    rows = [replace(row, **{column: None}) for row in rows_of("ok/healthy")]
    verdict = analyze(Memory(rows))
    assert verdict.name == "cannot_tell"


def test_what_only_says_why_is_not_needed() -> None:
    aside = (Op.STATUS_CHECKED, Op.PEER_CHECKED, Op.PREFIX_ADDED, Op.PREFIX_POPPED, Op.HEARTBEAT)
    assert judged_less("ok/healthy", lambda row: row.op in aside).name == "clean"
    found = judged_less("bad/natural_pin", lambda row: row.op in aside).findings
    assert (
        sorted({str(each.room) for each in found if each.kind == "pinned"})
        == LABELS["bad/natural_pin"]["pinned"]
    )
