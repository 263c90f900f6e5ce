"""SGLang's own managers, threads and transport, parked at their own seams."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tracekv.cli import main
from tracekv.event import Op
from tracekv.replay.rigs.build import find_source, parse_build
from tracekv.replay.rigs.patches import COMMON, NIXL, PATCHES, module_path
from tracekv.trace.store import open_trace

pytestmark = pytest.mark.sglang


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["replay", *(str(each) for each in args), "--rig", "sglang"])


def told(*args: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*args, "--format", "json").stdout)
    return found


@pytest.fixture
def pin(samples: Path) -> Path:
    return samples / "bad/resurrection_pin"


def test_the_pin_happens_again_on_the_code_it_was_recorded_from(pin: Path) -> None:
    result = run(pin, "--times", 20)
    assert result.exit_code == 0, result.output
    assert "manager     real 0.5.14+fork" in result.stdout and "schedule    strict" in result.stdout
    assert "reproduced 20/20" in result.stdout


def test_the_bytes_that_landed_are_compared(pin: Path) -> None:
    found = told(pin, "--times", 3)
    assert (found["reproduced"], found["pinned"], found["disputed"]) == (3, 3, 0)
    assert found["bytes_checked"] > 0 and found["bytes_wrong"] == 0


FIXED = ["0.5.14+fork+fix-a", "0.5.14+fork+fix-b", "0.5.14+fork+fix-a+fix-b", "0.5.16"]


@pytest.mark.parametrize("build", FIXED)
def test_with_a_fix_the_room_fails_and_is_released(pin: Path, build: str) -> None:
    found = told(pin, "--build", build, "--times", 5, "--expect", "failed")
    assert found["manager"] == f"real {build}"
    assert (found["schedule_kind"], found["met"]) == ("anchored", 5)
    assert (found["reproduced"], found["pinned"]) == (0, 0)
    assert found["bytes_wrong"] == 0
    assert found["ended_otherwise"]["original"]


def test_on_unmodified_0_5_14_the_bootstrap_thread_dies_and_nobody_hangs(pin: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    result = run(pin, "--build", "0.5.14", "--times", 2, "--keep", tmp_path / "kept", "--format", "json")
    assert time.monotonic() - started < 60
    assert result.exit_code == 3, result.output
    found = json.loads(result.stdout)
    assert (found["divergences"], found["reproduced"]) == (2, 0)
    assert "B died: AssertionError" in found["diverged"]["got"]
    trace = open_trace(tmp_path / "kept")
    died = [row for row in trace.events() if row.op == Op.THREAD_DIED]
    assert [row.thread for row in died] == ["bootstrap"] * 2
    assert all((row.reason or "").startswith("AssertionError: ") for row in died)
    assert len(trace.processes) == 2  # each death costs its process


def test_natural_rooms_happen_again(samples: Path) -> None:
    from tracekv.examine import examine

    rooms = sorted({each.room for each in examine(open_trace(samples / "bad/natural_pin")).findings})
    for room in rooms[:: len(rooms) // 2]:
        assert told(samples / "bad/natural_pin", "--room", room)["reproduced"] == 1


def test_a_source_tree_is_a_build(pin: Path, tmp_path: Path) -> None:
    tree = copied(tmp_path / "a tree+x")
    found = told(pin, "--build", f"{tree}+fork+fix-a", "--expect", "failed")
    assert (found["met"], found["manager"]) == (1, f"real {tree}+fork+fix-a")


def test_a_tree_with_one_changed_line_is_refused_before_a_rig_starts(pin: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for module in (COMMON, NIXL):
        path = module_path(tree, module)
        path.parent.mkdir(parents=True)
        text = module_path(find_source(parse_build("0.5.14")), module).read_text()
        path.write_text(text.replace("assert room in self.transfer_infos", "assert room in self.infos"))
    result = run(pin, "--build", f"{tree}+fork")
    assert result.exit_code == 2 and result.stdout == ""
    assert "patch 'fork' does not match" in result.stderr and str(module_path(tree, NIXL)) in result.stderr


def test_a_build_that_does_not_run_says_what_was_raised(pin: Path, tmp_path: Path) -> None:
    tree = copied(tmp_path / "tree")
    path = module_path(tree, NIXL)
    text = path.read_text()
    assert text.count("class NixlKVSender(CommonKVSender):") == 1
    head = "class NixlKVSender(CommonKVSender):\n"
    broken = head + "    def send(self, *a, **k):\n        raise OSError('no such lane')\n"
    path.write_text(text.replace(head, broken).replace("    def send(\n", "    def sent(\n"))
    result = run(pin, "--build", f"{tree}+fork")
    assert result.exit_code == 2, result.output
    assert "does not run on this rig" in result.stderr and "no such lane" in result.stderr


def test_a_build_that_writes_beside_the_pages_meets_no_expectation(pin: Path, tmp_path: Path) -> None:
    tree = copied(tmp_path / "tree")
    path = module_path(tree, NIXL)
    right = "                dst_data_indices, num_layers, num_slots_dst\n"
    text = path.read_text()
    assert text.count(right) == 1
    path.write_text(text.replace(right, right.replace("dst_data_indices", "dst_data_indices - 1")))
    result = run(pin, "--build", f"{tree}+fork", "--expect", "pinned")
    assert result.exit_code == 1, result.output
    assert "WRONG BYTES" in result.stdout


def test_a_proxy_in_the_environment_is_not_asked(pin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert run(pin).exit_code == 0


def copied(tree: Path) -> Path:
    """A tree with the released sources of 0.5.14, to be changed."""
    shutil.copytree(find_source(parse_build("0.5.14")) / "sglang", tree / "sglang")
    return tree


def test_a_byte_that_differs_at_decode_is_noticed(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from tracekv.replay.rigs import Scenario
from tracekv.replay.rigs.build import find_source, parse_build
from tracekv.replay.rigs.sglang import SglangRig

build = parse_build("0.5.16")
rig = SglangRig(build, find_source(build), Path(sys.argv[1]))
for mutate in (False, True):
    rig.begin(Scenario((2, 3), abort=False))
    while ready := [actor for actor in "WBSD" if actor in rig.parked() and rig.parked()[actor].enabled]:
        rig.grant(ready[0])
    if mutate:
        rig.engine.target.kv[1][rig.engine.target.pages - 3, 17] ^= 0xFF
    end = rig.end()
    print(end.label, end.pinned, end.left, end.bytes_checked, end.bytes_wrong, flush=True)
rig.close()
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    bytes_checked = 5 * 4096 * 2
    assert done.stdout.splitlines() == [
        f"Success False () {bytes_checked} 0",
        f"Success False () {bytes_checked} 1",
    ], done.stderr


def test_patches_are_those_that_the_message_names(pin: Path) -> None:
    result = run(pin, "--build", "0.5.14+fork+fix-z")
    assert result.exit_code == 2 and all(name in result.stderr for name in PATCHES)


def test_a_recorded_write_keeps_its_place_on_a_build_with_more_reads(samples: Path) -> None:
    """In the trace the worker stores Transferring before the ABORT is handled; 0.5.16 reads twice for it."""
    free = samples / "bad/natural_pin"
    found = told(free, "--room", "6161024040744970188", "--build", "0.5.16", "--expect", "failed")
    assert (found["met"], found["divergences"]) == (1, 0)
    assert "removes the peer metadata" in found["ended_otherwise"]["original"]
