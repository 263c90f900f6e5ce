import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.memory import HEALTHY, PIN
from tracekv.cli import VERBS, main
from tracekv.story import recording
from tracekv.trace.store import write_dataset


def run(*args: object, **options: Any) -> Result:
    return CliRunner().invoke(main, [str(each) for each in args], **options)


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def write(line: str, name: str = "trace", **of_process: Any) -> Path:
        write_dataset(recording(line, **of_process), tmp_path / name)
        return tmp_path / name

    return write


CODES = [(HEALTHY, 0), (PIN, 1), (f"{PIN} S:lost1", 1), ("S:init", 3), ("", 3), (f"{HEALTHY} S:lost1", 3)]


@pytest.mark.parametrize(("line", "code"), CODES)
def test_the_exit_code_is_the_verdict(make: Any, line: str, code: int) -> None:
    trace = make(line)
    assert run("analyze", trace).exit_code == code
    assert run("analyze", trace, "--format", "json").exit_code == code


def test_json_is_the_whole_of_stdout(make: Any) -> None:
    told = json.loads(run("analyze", make(PIN), "--format", "json").stdout)
    assert told["verdict"] == "violation"


@pytest.mark.parametrize("room", ["7", "0x7", "0X7"])
def test_a_room_in_decimal_or_hex(make: Any, room: str) -> None:
    trace = make(f"{PIN} @8 {HEALTHY}")
    assert run("analyze", trace, "--room", room).exit_code == 1
    assert run("analyze", trace, "--room", "8").exit_code == 0


def test_a_large_room_id_is_found(make: Any) -> None:
    big = 2**63 + 5
    trace = make(PIN, room=big)
    assert run("show", trace, big).exit_code == 0
    assert run("show", trace, hex(big)).exit_code == 0
    assert run("show", trace, big + 1).exit_code == 2


def test_no_such_room_names_the_nearest(make: Any) -> None:
    result = run("show", make(f"@1234567 {HEALTHY}"), 1234568)
    assert result.exit_code == 2 and "1234567" in result.stderr and result.stdout == ""


def test_no_such_trace_is_usage_and_names_the_nearest(make: Any) -> None:
    trace = make(PIN, name="incident")
    result = run("analyze", trace.with_name("incidnet"))
    assert result.exit_code == 2 and "incident?" in result.stderr and "Traceback" not in result.output


@pytest.mark.parametrize("room", ["seven", "-1", "1.5", "1e3", str(2**64)])
def test_a_room_that_is_none_is_usage(make: Any, room: str) -> None:
    assert run("analyze", make(PIN), f"--room={room}").exit_code == 2


def test_a_foreign_file_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no parquet at all")
    result = run("analyze", tmp_path / "x.parquet")
    assert result.exit_code == 4 and "x.parquet" in result.stderr and "Traceback" not in result.output


def test_a_damaged_file_beside_a_good_one_still_shows_the_violation(make: Any) -> None:
    trace = make(PIN)
    (trace / "events" / "bad.parquet").write_bytes(b"PAR1 then nothing")
    result = run("analyze", trace, "--format", "json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["partial"]) == (1, True)
    assert any("bad.parquet" in each["file"] for each in told["damage"])


def test_rid_finds_its_room(tmp_path: Path) -> None:
    from dataclasses import replace

    both = recording(f"@7 {PIN} @8 {HEALTHY}")
    rows = [replace(row, rid="req-1") if row.room == 7 else row for row in both]
    write_dataset(rows, tmp_path / "t")
    assert run("analyze", tmp_path / "t", "--rid", "req-1").exit_code == 1
    assert run("analyze", tmp_path / "t", "--rid", "req-2").exit_code == 2
    assert run("analyze", tmp_path / "t", "--rid", "req-1", "--room", "7").exit_code == 2


def test_the_threshold_option(make: Any) -> None:
    trace = make("S:init B:info B:ctl +4s S:beat +4s S:beat")
    assert run("analyze", trace).exit_code == 3
    assert run("analyze", trace, "--stuck-after", "5").exit_code == 1
    assert run("analyze", trace, "--stuck-after", "0").exit_code == 2


def test_rooms_in_three_forms(make: Any) -> None:
    trace = make(f"{PIN} @8 {HEALTHY}")
    table = run("rooms", trace)
    assert table.exit_code == 0 and "Transferring" in table.stdout and "pinned (proof)" in table.stdout
    told = json.loads(run("rooms", trace, "--format", "json").stdout)
    assert [each["room"] for each in told["rooms"]] == ["7", "8"]
    rows = list(csv.DictReader(run("rooms", trace, "--format", "csv").stdout.splitlines()))
    assert [row["state"] for row in rows] == ["Transferring", "cleared after Success"]


def test_rooms_of_an_empty_trace(make: Any) -> None:
    assert run("rooms", make("")).exit_code == 0


def test_show_tells_a_healthy_room(make: Any) -> None:
    result = run("show", make(HEALTHY), 7)
    assert result.exit_code == 0 and "CLEAN: the room settled" in result.stdout


def test_show_draws_only_into_pictures(make: Any, tmp_path: Path) -> None:
    result = run("show", make(HEALTHY), 7, "-o", tmp_path / "room.txt")
    assert result.exit_code == 2 and ".png" in result.stderr


def test_show_draws(make: Any, tmp_path: Path) -> None:
    result = run("show", make(PIN), 7, "-o", tmp_path / "room.svg")
    assert result.exit_code == 0 and result.stdout == ""
    assert (tmp_path / "room.svg").read_text().lstrip().startswith("<?xml")


def test_colour_only_where_it_is_wanted(make: Any) -> None:
    trace = make(PIN)
    assert "\x1b" not in run("analyze", trace).stdout
    assert "\x1b" in run("analyze", trace, env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b" not in run("analyze", trace, env={"NO_COLOR": "1", "FORCE_COLOR": "1"}).stdout


def test_help_and_version() -> None:
    assert all(verb in run("-h").stdout for verb in VERBS)
    assert "Exit codes" in run("analyze", "--help").stdout
    assert run("--version").stdout.startswith("tracekv ")
    assert run("no-such-verb").exit_code == 2


def test_a_crash_is_no_violation(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracekv.verdict

    def crash(*args: object, **options: object) -> None:
        raise RuntimeError("boom \x1b")

    monkeypatch.setattr(tracekv.verdict, "analyze", crash)
    result = run("analyze", make(PIN))
    assert result.exit_code == 3 and "RuntimeError: boom \\x1b" in result.stderr
    monkeypatch.setenv("TRACEKV_DEBUG", "1")
    assert isinstance(run("analyze", make(PIN)).exception, RuntimeError)


def test_a_missing_package_is_said(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tracekv.show.plot", None)
    result = run("show", make(HEALTHY), 7, "-o", "room.png")
    assert result.exit_code == 2 and "tracekv.show.plot" in result.stderr


def test_a_picture_that_cannot_be_written_is_usage(make: Any, tmp_path: Path) -> None:
    result = run("show", make(HEALTHY), 7, "-o", tmp_path / "no" / "room.svg")
    assert result.exit_code == 2 and "cannot write" in result.stderr


# -------------------------------------------------------------------- answers that cannot be given


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e308", "-1", "0"])
def test_a_threshold_that_is_no_time_is_usage(make: Any, seconds: str) -> None:
    assert run("analyze", make(PIN), "--stuck-after", seconds).exit_code == 2


@pytest.mark.parametrize("verb", ["analyze", "rooms", "replay"])
def test_errors_come_as_json_where_json_was_asked_for(verb: str) -> None:
    for wrong in (["nowhere"], ["--bogus", "nowhere"]):
        result = run(verb, *wrong, "--format", "json")
        told = json.loads(result.stdout)
        assert result.exit_code == 2 and result.stderr
        assert set(told) == {"schema", "error", "hint", "exit_code"}
        assert (told["schema"], told["exit_code"]) == ("tracekv.error/1", 2)
    assert "nowhere" in json.loads(run(verb, "nowhere", "--format=json").stdout)["error"]


def test_without_json_an_error_is_on_stderr_alone() -> None:
    assert run("analyze", "nowhere").stdout == ""


def test_unreadable_input_as_json(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    result = run("analyze", tmp_path, "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)["exit_code"]) == (4, 4)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
@pytest.mark.parametrize(
    "verb", ["analyze {}", "analyze {} --format json", "rooms {} --format csv", "show {} 7"]
)
def test_an_answer_that_cannot_be_written_has_no_verdict(make: Any, redirect: str, verb: str) -> None:
    line = f"{sys.executable} -m tracekv {verb.format(make(HEALTHY))} {redirect}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "could not write the answer" in done.stderr


def test_hostile_text_in_csv_and_pictures(tmp_path: Path) -> None:
    from dataclasses import replace

    from tests.memory import Memory
    from tracekv.examine import examine
    from tracekv.show import table
    from tracekv.show.plot import save

    hostile = "\ud800\x1b[31m\n\x00"
    rows = [replace(row, process=hostile, reason=hostile) for row in recording(PIN)]
    role = r'{"role": "\ud800", "backend": "nixl"}'
    rows = [replace(row, attrs=role) if row.op == "manager.started" else row for row in rows]
    seen = examine(Memory(rows))
    told = table.as_csv(table.rows(seen.rooms, seen.findings))
    assert not set(hostile) - set("[31m\n") & set(told) and told.count("\n") == 2
    save(seen.chosen[0], seen.findings, tmp_path / "room.svg")


def test_show_does_not_call_a_room_healthy_whose_rows_contradict_each_other(make: Any) -> None:
    """Only the verdict may say clean: ``show`` says what it says."""
    result = run("show", make("S:init B:info S:poll2 S:enq0* W:deq0 W:set3 B:set0 S:poll3"), 7)
    assert result.exit_code == 0
    assert "CLEAN" not in result.stdout and "what this trace cannot tell" in result.stdout
