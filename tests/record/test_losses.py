"""Rows that could not be kept are counted in the trace, where any thread of the process can write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tracekv.event import Op
from tracekv.spool import read_spool

ROOT = Path(__file__).parents[2]

#: The scheduler has its segment; then nobody gets another one, and a worker writes 50 rows.
CODE = """
import os, resource, sys, threading
from pathlib import Path
from tracekv.record.recorder import Recorder
from tracekv.spool import SpoolWriter

recorder = Recorder(SpoolWriter(Path(sys.argv[1]), "p"))
if sys.argv[2] == "files":
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

def work():
    for _ in range(50):
        recorder.emit("chunk.dequeued", manager=0, room=5)

thread = threading.Thread(target=work, name="Thread-1 (transfer_worker)")
thread.start()
thread.join()
for _ in range(3):
    recorder.emit("status.written", manager=0, room=5, old=1, new=3)
if sys.argv[3] == "killed":
    os.kill(os.getpid(), 9)
recorder.close()
"""


@pytest.mark.parametrize("limit", ["files", "disk"])
@pytest.mark.parametrize("end", ["killed", "closed"])
def test_a_thread_without_a_segment_is_counted(limit: str, end: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), limit, end], cwd=ROOT, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == (-9 if end == "killed" else 0), done.stderr
    read = read_spool(tmp_path)
    assert len([row for row in read.events if row.op == Op.STATUS_WRITTEN]) == 3
    assert sum(loss.n for loss in read.losses) == 50
    assert {loss.why for loss in read.losses} == {"no segment could be opened"}
    assert {loss.thread for loss in read.losses} == {"worker"}
