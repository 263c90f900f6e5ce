"""Ctrl-C ends a verb and what it started, and does not read as a violation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs /proc to see the rig's process"
)

PIN = Path(__file__).parents[2] / "sample_traces/bad/resurrection_pin"


def hear_ctrl_c() -> None:
    """A test run in the background ignores SIGINT, and hands that on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def children_of(pid: int) -> list[str]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text().split() if path.exists() else []


def started(*more: str) -> tuple[subprocess.Popen[bytes], list[str]]:
    """A replay that goes on for long, and the ids of its rig's processes."""
    command = [sys.executable, "-m", "tracekv", "replay", str(PIN), "--times", "100000", *more]
    verb = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )
    deadline = time.monotonic() + 30
    while not (rigs := children_of(verb.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert rigs
    time.sleep(1.5)
    return verb, rigs


def alive(rigs: list[str]) -> list[str]:
    return [rig for rig in rigs if Path(f"/proc/{rig}").exists()]


@pytest.mark.nixl
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_replay_that_is_ended_takes_its_rig_along(number: int) -> None:
    verb, rigs = started()
    os.kill(verb.pid, number)
    _, said = verb.communicate(timeout=30)
    assert verb.returncode == 130
    assert b"interrupted" in said and b"Traceback" not in said
    assert not alive(rigs)


@pytest.mark.parametrize(
    "rig", [pytest.param("nixl", marks=pytest.mark.nixl), pytest.param("sglang", marks=pytest.mark.sglang)]
)
def test_a_rig_whose_caller_was_killed_ends_by_itself(rig: str) -> None:
    verb, rigs = started("--rig", rig)
    verb.kill()
    verb.communicate(timeout=30)
    deadline = time.monotonic() + 20
    while alive(rigs) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = alive(rigs)
    for each in left:
        os.kill(int(each), signal.SIGKILL)
    assert not left
