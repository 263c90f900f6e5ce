import ast
from dataclasses import replace
from pathlib import Path

import pytest

import tracekv
from tests.memory import ABORTED, HEALTHY, PIN, Memory, trace
from tracekv.errors import UsageError
from tracekv.seams import SEAM_NAMES
from tracekv.story import recording, story
from tracekv.trace.describe import Damage
from tracekv.verdict import CannotTell, Clean, Violation, analyze

DAMAGE = Damage("p.parquet", "row group 3", "checksum")


def test_settled_rooms_with_every_seam_are_clean() -> None:
    verdict = analyze(trace(f"{HEALTHY} @8 {ABORTED}"))
    assert isinstance(verdict, Clean) and verdict.exit_code == 0
    assert (verdict.evidence.rooms, verdict.evidence.settled, verdict.evidence.open) == (2, 2, 0)
    assert set(verdict.evidence.invariants) == {"I1", "I2", "I3", "I7"}
    assert "status" in verdict.evidence.seams


def reasons(made: Memory) -> str:
    verdict = analyze(made)
    assert isinstance(verdict, CannotTell) and verdict.exit_code == 3
    return " ".join(verdict.reasons)


def test_an_open_room_is_no_clean_trace_and_the_oldest_is_named() -> None:
    told = reasons(trace(f"{HEALTHY} @8 S:init B:info B:ctl @9 S:init B:info B:ctl"))
    assert "2 lives are still open" in told and "room 8" in told


def test_an_empty_trace_is_not_clean() -> None:
    assert "no rooms" in reasons(Memory([]))
    assert "no rooms" in reasons(trace(""))


def test_lost_rows_are_not_clean() -> None:
    assert "5 rows" in reasons(trace(f"{HEALTHY} W:lost5"))


def test_damage_is_not_clean() -> None:
    assert "row group 3" in reasons(Memory(recording(HEALTHY), damage=[DAMAGE]))


@pytest.mark.parametrize("seam", ["status", "peers", "chunks", "control_in", "sender"])
def test_a_missing_seam_is_not_clean(seam: str) -> None:
    told = reasons(trace(HEALTHY, seams=[name for name in SEAM_NAMES if name != seam]))
    assert seam in told and "pinned" in told


def test_a_trace_without_any_seam_row_is_not_clean() -> None:
    assert "nothing says which seams" in reasons(trace(HEALTHY, seams=()))
    assert "nothing says which seams" in reasons(Memory(story(HEALTHY)))


def test_a_seam_that_another_process_has_does_not_count() -> None:
    rows = recording(HEALTHY) + recording(HEALTHY, process="q", seams=())
    assert "process q" in reasons(Memory(rows))


def test_a_violation_stays_one_on_partial_input() -> None:
    verdict = analyze(Memory(recording(f"{PIN} S:lost2"), damage=[DAMAGE]))
    assert isinstance(verdict, Violation) and verdict.exit_code == 1
    assert verdict.evidence.partial
    assert {each.kind for each in verdict.findings} == {"resurrection", "pinned"}


def test_one_room_can_be_asked_for() -> None:
    both = trace(f"{PIN} @8 {HEALTHY}")
    assert analyze(both, room=8).name == "clean"
    assert analyze(both, room=7).name == "violation"
    with pytest.raises(UsageError, match="no room 70") as raised:
        analyze(both, room=70)
    assert "the nearest id is 7" in str(raised.value)


def test_only_the_verdict_module_may_say_clean() -> None:
    package = Path(tracekv.__file__).parent
    saying = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "id", getattr(called, "attr", None))
            if name == "Clean":
                saying.add(path.relative_to(package).as_posix())
    assert saying == {"verdict.py"}


def test_rows_in_another_order_of_processes_give_the_same_verdict() -> None:
    rows = recording(PIN) + recording(f"@8 {HEALTHY}", process="q")
    there, back = analyze(Memory(rows)), analyze(Memory(rows[::-1]))
    assert [each.id for each in there.findings] == [each.id for each in back.findings]


def test_a_room_id_of_64_bits_survives() -> None:
    big = 2**64 - 1
    (first, *_) = analyze(trace(PIN, room=big)).findings
    assert first.room == big


def test_a_write_moved_after_the_clear_changes_the_kind() -> None:
    """The same rows with the worker's late write on the other side of the clear: a ghost, no resurrection."""
    before = "S:init B:info B:ctl B:set0 W:set3 S:clear"
    after = "S:init B:info B:ctl B:set0 S:clear W:set3"
    assert [each.kind for each in analyze(trace(before)).findings] == ["resurrection"]
    assert [each.kind for each in analyze(trace(after)).findings] == ["ghost_room"]


def test_unknown_state_numbers_of_a_newer_engine_are_no_crash() -> None:
    rows = [replace(row, new=9) if row.op == "status.written" else row for row in recording(HEALTHY)]
    assert analyze(Memory(rows)).name in ("clean", "cannot_tell")
