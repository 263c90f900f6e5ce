"""Ctrl-C ends a verb and what it started, and does not read as a violation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PIN = Path(__file__).parents[2] / "sample_traces/bad/resurrection_pin"


def hear_ctrl_c() -> None:
    """A test run in the background ignores SIGINT, and hands that on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def children_of(pid: int) -> list[str]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text().split() if path.exists() else []


@pytest.mark.nixl
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see the rig's process")
def test_ctrl_c_during_a_replay() -> None:
    command = [sys.executable, "-m", "tracekv", "replay", str(PIN), "--times", "100000"]
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
    time.sleep(0.5)
    os.kill(verb.pid, signal.SIGINT)
    _, said = verb.communicate(timeout=30)
    assert verb.returncode == 130
    assert b"interrupted" in said and b"Traceback" not in said
    assert rigs and not any(Path(f"/proc/{rig}").exists() for rig in rigs)
