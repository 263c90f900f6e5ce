"""A recorded room is executed again on the embedded rig, through the verb that a user types."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.memory import PIN
from tracekv.cli import main
from tracekv.errors import CannotTellError, UsageError
from tracekv.event import Op
from tracekv.examine import examine
from tracekv.replay.choose import only_violating, prefill_life, prefill_managers, rows_of
from tracekv.replay.run import replay
from tracekv.replay.schedule import strict_schedule
from tracekv.show.replay import replay_text
from tracekv.story import recording
from tracekv.trace.store import open_trace, write_dataset

KEYS = {
    "schema", "room", "rig", "manager", "build", "schedule_kind", "times", "reproduced", "pinned", "outcomes",
    "left_behind", "diverged", "divergences", "disputed", "ended_otherwise", "bytes_checked", "bytes_wrong",
    "expect", "met", "kinds", "corrupted",
}  # fmt: skip


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["replay", *(str(each) for each in args)])


def told(*args: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*args, "--format", "json").stdout)
    return found


Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def write(line: str, **of_process: Any) -> Path:
        write_dataset(recording(line, **of_process), tmp_path / "trace")
        return tmp_path / "trace"

    return write


@pytest.fixture
def pin(samples: Path) -> Path:
    return samples / "bad/resurrection_pin"


# -- the pin, its fixes


@pytest.mark.nixl
def test_the_pin_happens_again_every_time(pin: Path) -> None:
    result = run(pin, "--times", 20)
    assert result.exit_code == 0, result.output
    assert "manager     model" in result.stdout
    assert "reproduced 20/20: resurrection at Transferring, pinned at Transferring" in result.stdout
    assert "the analyzer finds: pinned 20/20, resurrection 20/20" in result.stdout
    found = told(pin, "--times", 3, "--expect", "pinned")
    assert set(found) == KEYS
    assert (found["reproduced"], found["pinned"], found["met"], found["disputed"]) == (3, 3, 3, 0)
    assert found["outcomes"] == {"Transferring": 3} and found["left_behind"] == {}
    assert found["bytes_checked"] > 0 and found["bytes_wrong"] == 0
    assert found["room"].isdigit() and found["diverged"] is None and found["ended_otherwise"] is None


@pytest.mark.nixl
def test_a_fix_is_confirmed_and_told_where_it_decides(pin: Path) -> None:
    fixed = (pin, "--build", "0.5.14+fork+fix-b", "--times", 20)
    assert run(*fixed, "--expect", "failed").exit_code == 0
    result = run(*fixed)
    assert result.exit_code == 1
    assert "reproduced 0/20" in result.stdout and "ended Failed: 20/20" in result.stdout
    turn = told(*fixed)["ended_otherwise"]
    assert f"what happened instead: at step {turn['step']} of the story" in result.stdout
    story = CliRunner().invoke(main, ["show", str(pin), told(*fixed)["room"]]).stdout
    assert re.search(rf"^> {turn['step']}\. .*skipped", story, re.MULTILINE)
    assert "skipped" in turn["original"] and "stores Failed over Transferring" in turn["again"]


@pytest.mark.nixl
@pytest.mark.parametrize("build", ["0.5.14+fork+fix-a", "0.5.14+fork+fix-a+fix-b", "0.5.16", "mooncake"])
def test_on_other_builds_the_room_fails_and_is_released(pin: Path, build: str) -> None:
    found = told(pin, "--build", build, "--expect", "failed", "--times", 3)
    assert (found["met"], found["reproduced"], found["pinned"]) == (3, 0, 0)
    assert (found["schedule_kind"], found["divergences"]) == ("anchored", 0)


@pytest.mark.nixl
def test_where_a_thread_dies_the_schedule_diverges(pin: Path) -> None:
    result = run(pin, "--build", "0.5.14", "--times", 2, "--format", "json")
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert (found["divergences"], found["reproduced"], found["times"]) == (2, 0, 2)
    assert set(found["diverged"]) == {"step", "expected", "got", "enabled", "last", "stack"}
    assert found["diverged"]["expected"] == "B back at control.in"
    assert "B died: AssertionError" in found["diverged"]["got"]
    assert found["diverged"]["last"][-1] == "B abort.received"


@pytest.mark.nixl
def test_a_strict_schedule_of_other_code_diverges_at_the_first_changed_line(pin: Path) -> None:
    result = run(pin, "--schedule", "strict", "--build", "0.5.14+fork+fix-a")
    assert result.exit_code == 3
    assert "1/1 diverged at step" in result.stdout and "the last events: " in result.stdout


@pytest.mark.nixl
def test_a_healthy_room_is_replayed_to_its_end(samples: Path) -> None:
    trace = open_trace(samples / "ok/healthy")
    room = next(
        life.room for life in examine(trace).lives
        if life.role == "prefill" and any(row.op == Op.XFER_DONE and row.last for row in life.events)
    )  # fmt: skip
    found = told(samples / "ok/healthy", "--room", hex(room), "--expect", "success", "--times", 3)
    assert (found["met"], found["outcomes"], found["room"]) == (3, {"Success": 3}, str(room))
    assert "compared by how it ended" in run(samples / "ok/healthy", "--room", room).stdout


@pytest.mark.nixl
def test_rooms_of_a_busy_natural_trace_happen_again(samples: Path) -> None:
    trace = open_trace(samples / "bad/natural_pin")
    rooms = sorted({each.room for each in examine(trace).findings})
    for room in rooms[::12]:
        again = replay(trace, room=room, times=2)
        assert (again.reproduced, again.disputed) == (2, 0), again


@pytest.mark.nixl
def test_a_run_about_which_rig_and_analyzer_disagree_counts_for_nothing(
    pin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("tracekv.replay.run")
    real = module.repeat

    def lying(*args: Any) -> Any:
        done = real(*args)
        done.runs[0].end = replace(done.runs[0].end, pinned=False)
        return done

    monkeypatch.setattr(module, "repeat", lying)
    again = replay(open_trace(pin), times=3)
    assert (again.reproduced, again.pinned, again.disputed, again.exit_code) == (2, 3, 1, 1)
    assert "1/3 the analyzer and the rig disagree" in replay_text(again)


@pytest.mark.nixl
def test_a_run_with_wrong_bytes_meets_no_expectation(pin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("tracekv.replay.run")
    real = module.repeat

    def corrupted(*args: Any) -> Any:
        done = real(*args)
        done.runs[0].end = replace(done.runs[0].end, bytes_wrong=1)
        return done

    monkeypatch.setattr(module, "repeat", corrupted)
    for expect in ("reproduced", "pinned"):
        again = replay(open_trace(pin), times=3, expect=expect)
        assert (again.met, again.corrupted, again.exit_code) == (2, 1, 1)
        assert "1/3 WRONG BYTES" in replay_text(again)


@pytest.mark.nixl
def test_nothing_is_said_from_a_recording_with_holes(pin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("tracekv.replay.run")
    real = module.repeat

    def holed(job: Any, *args: Any) -> Any:
        done = real(job, *args)
        segment = max(Path(job.folder).glob("*.seg"), key=lambda path: path.stat().st_size)
        segment.write_bytes(segment.read_bytes()[:-100])
        return done

    monkeypatch.setattr(module, "repeat", holed)
    with pytest.raises(CannotTellError, match="could not be recorded whole"):
        replay(open_trace(pin), times=3)


def test_an_empty_build_is_no_build(pin: Path) -> None:
    result = run(pin, "--build", "")
    assert result.exit_code == 2 and "Name one with --build" in result.stderr


def test_a_strict_schedule_needs_every_gated_event(make: Make) -> None:
    trace = make("S:init B:info S:enq0* W:deq0 B:abort", detail="writes", build="0.5.14+fork")
    result = run(trace, "--room", 7, "--schedule", "strict")
    assert result.exit_code == 2 and "TRACEKV_DETAIL=gates" in result.stderr


@pytest.mark.nixl
def test_a_build_has_one_spelling(pin: Path) -> None:
    found = told(pin, "--build", "0.5.14+fix-b+fork+fork", "--expect", "failed")
    assert (found["build"], found["met"]) == ("0.5.14+fork+fix-b", 1)


# -- replaying a replay


@pytest.mark.nixl
def test_a_kept_replay_is_a_trace_that_is_judged_and_replayed_like_its_original(
    pin: Path, tmp_path: Path
) -> None:
    assert run(pin, "--keep", tmp_path / "first").exit_code == 0
    assert run(tmp_path / "first", "--keep", tmp_path / "second").exit_code == 0
    first, second = (order_of(tmp_path / name) for name in ("first", "second"))
    assert first == second
    assert len(first[1]) > 30
    assert first[0] == order_of(pin)[0]
    assert told(tmp_path / "first")["schedule_kind"] == "strict"


def order_of(path: Path) -> tuple[list[tuple[str, str, str]], list[str]]:
    """The findings of a trace of one room, and the order of its gated events."""
    trace = open_trace(path)
    seen = examine(trace)
    life = prefill_life(seen, only_violating(seen))
    steps = strict_schedule(rows_of(trace, life), prefill_managers(trace, life.process)).steps
    findings = sorted((each.kind, each.state.label, each.role) for each in seen.findings)
    return findings, [str(each) for each in steps]


@pytest.mark.nixl
def test_a_trace_at_the_detail_of_production_is_enough(pin: Path, tmp_path: Path) -> None:
    reads = (Op.STATUS_CHECKED, Op.PEER_CHECKED)
    rows = [
        replace(row, attrs=(row.attrs or "").replace('"gates"', '"writes"') or None)
        for row in open_trace(pin).events()
        if row.op not in reads
    ]
    write_dataset(rows, tmp_path / "writes")
    found = told(tmp_path / "writes", "--times", 5)
    assert (found["reproduced"], found["schedule_kind"]) == (5, "anchored")


@pytest.mark.nixl
def test_a_second_life_of_a_room_is_executed_without_the_first(make: Make) -> None:
    aborted = (
        "S:init B:info B:ctl S:enq0* W:deq0 W:post0 W:done0 B:abort B:set0 B:pop B:ctl W:wait S:poll0 S:clear"
    )
    pinned = PIN.replace("B:info", "B:info B:ctl")
    found = told(make(f"{aborted} +1s {pinned}"), "--expect", "pinned")
    assert (found["met"], found["divergences"]) == (1, 0)


# -- what the user is told


def test_several_violating_rooms_are_listed(samples: Path) -> None:
    result = run(samples / "bad/natural_pin")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert "rooms of this trace have findings; which one?" in lines[0]
    assert len([line for line in lines if line.strip().isdigit()]) == 20 and "more" in lines[-1]
    assert result.stdout == ""


def test_an_unknown_room_names_the_nearest(pin: Path) -> None:
    result = run(pin, "--room", 5)
    assert result.exit_code == 2 and "nearest" in result.stderr


def test_without_findings_a_room_must_be_named(samples: Path) -> None:
    result = run(samples / "ok/resurrection_pin_fix_b")
    assert result.exit_code == 2 and "--room" in result.stderr


def test_a_trace_without_the_prefill_side_cannot_tell(make: Make) -> None:
    result = run(make("D:info D:abort", roles=("prefill", "decode")), "--room", 7)
    assert result.exit_code == 3 and "prefill" in result.stderr


def test_a_room_without_an_executable_step_cannot_tell(make: Make) -> None:
    result = run(make("S:open"), "--room", 7)
    assert result.exit_code == 3 and "no step that could be executed" in result.stderr


def test_a_trace_that_does_not_know_its_build_asks_for_it(make: Make) -> None:
    result = run(make(PIN, build=None))
    assert result.exit_code == 2 and "--build" in result.stderr


@pytest.mark.nixl
@pytest.mark.parametrize("build", ["0.4.0", "0.5.14+fork+fix-c", "~/sglang"])
def test_a_build_that_the_model_does_not_know(pin: Path, build: str) -> None:
    result = run(pin, "--build", build)
    assert result.exit_code == 2
    assert "0.5.14+fork+fix-b" in result.stderr and "0.5.16" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rig": "metal"}, "nixl, sglang"), ({"expect": "luck"}, "reproduced, pinned"),
        ({"kind": "loose"}, "strict, anchored"), ({"times": 0}, "0 times"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(pin: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        replay(open_trace(pin), **options)


def test_the_trace_itself_is_not_written_to(pin: Path) -> None:
    for keep in (pin, pin / "events"):
        result = run(pin, "--keep", keep)
        assert result.exit_code == 2 and "not empty" in result.stderr


def test_what_cannot_be_written_to_is_said_before_anything_runs(pin: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(pin, "--keep", tmp_path / "file/x")
    assert result.exit_code == 2 and "cannot keep" in result.stderr


def test_endless_rooms_are_refused(make: Make) -> None:
    with pytest.raises(CannotTellError, match="a replay follows 50,000"):
        replay(open_trace(make("S:init B:info " + "B:abort " * 26_000)), room=7)


def test_a_room_with_more_chunks_than_a_rig_holds_is_refused(make: Make) -> None:
    with pytest.raises(CannotTellError, match="a rig holds 256"):
        replay(open_trace(make("S:init " + " ".join(f"S:enq{n}" for n in range(300)))), room=7)


@pytest.mark.nixl
def test_broken_rows_end_in_an_answer(tmp_path: Path) -> None:
    rows = recording(PIN)
    for n, row in enumerate(rows):
        if row.room == 7 and n % 3 == 0:
            rows[n] = replace(row, attrs='{"pages": -1e400, "call": [', chunk=2**31 - 1, peer="\x1b[31m")
    write_dataset(rows, tmp_path / "trace")
    result = run(tmp_path / "trace", "--room", 7)
    assert result.exit_code in (0, 1, 3), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_without_nixl_the_user_learns_how_to_install_it(pin: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Nowhere:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.partition('.')[0].startswith('nixl'):\n"
        "            raise ImportError(f'no {name} here')\n"
        "sys.meta_path.insert(0, Nowhere())\n"
    )
    here = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "tracekv", "replay", str(pin)], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), here])},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "pip install --no-deps nixl-cu12" in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
