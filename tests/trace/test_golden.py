"""A spool and a dataset of every published version are read for ever, to the same rows.

``python -m tests.trace.test_golden FOLDER`` makes them with the tracekv that is here: once for each
new version, never again for an old one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.spools import columns
from tracekv.event import Event, Op
from tracekv.ingest import ingest_spool
from tracekv.spool import Loss, SpoolWriter
from tracekv.trace import open_trace

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = ["v1"]
PROCESS, WALL = "5d1f0c64e1a24b0f9a1e6f0f6f3a7c01", 1_790_000_000 * 10**9
FACTS = {"host": "rig", "pid": 7, "engine": "sglang", "version": "0.5.14", "build": "0.5.14+fork",
         "detail": "gates", "schema": 1}  # fmt: skip
MANAGER = {"role": "prefill", "backend": "nixl", "tp_size": 2, "tp_rank": 1, "bootstrap_timeout_s": 300}


def of(thread: str, seq: int, op: str, **more: object) -> Event:
    tid = {"scheduler": 70, "worker-0": 71}[thread]
    return Event(seq=seq, op=op, process=PROCESS, thread=thread, tid=tid, mono_ns=seq * 1000,
                 wall_ns=WALL + seq, **more)  # type: ignore[arg-type]  # fmt: skip


def rows() -> list[Event]:
    """Every column, the ends of its range, and more short rows than a segment holds."""
    return [
        of("scheduler", 1, Op.PROCESS_STARTED, attrs=json.dumps(FACTS)),
        of("scheduler", 2, Op.MANAGER_STARTED, manager=0, attrs=json.dumps(MANAGER)),
        of("scheduler", 3, Op.SEAM_INSTALLED, manager=0, attrs='{"seam":"status","state":"installed"}'),
        of("scheduler", 4, Op.ROOM_OPENED, manager=0, room=2**64 - 1, rid="reüest"),
        of("worker-0", 5, Op.XFER_POSTED, manager=0, room=2**64 - 1, chunk=2**31 - 1, last=True,
           handle=2**63 - 1, bytes=-(2**63), peer="10.0.0.1:5", generation=0, seq_before=4,
           precision_ns=1, source="log"),
        of("worker-0", 6, Op.XFER_FAILED, manager=-(2**15), room=0, chunk=0, last=False, reason="line\nend"),
        *(of("worker-0", 7 + i, Op.STATUS_WRITTEN, manager=0, room=2**53 + 1, requested=3, old=i % 6 - 1,
             new=3, site="send_kvcache:12") for i in range(80)),
        of("scheduler", 200, "x.other.named"),
    ]  # fmt: skip


def make(folder: Path) -> None:
    """A lane that rolls over, and a hundred rows that are too large and are counted."""
    writer = SpoolWriter(folder / "spool", PROCESS, segment_bytes=4096)
    lanes = {name: writer.lane(name, tid) for name, tid in (("scheduler", 70), ("worker-0", 71))}
    for row in rows():
        assert lanes[str(row.thread)].append(**columns(row))
    for seq in range(100, 200):
        lanes["worker-0"].append(seq=seq, op=Op.HEARTBEAT, mono_ns=seq, wall_ns=WALL + seq, reason="x" * 4000)
    writer.close()
    ingest_spool(folder / "spool", folder / "dataset")


@pytest.mark.parametrize("kind", ["spool", "dataset"])
@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_read_for_ever(version: str, kind: str) -> None:
    trace = open_trace(GOLDEN / version / kind)
    assert trace.kind == kind and trace.damage == []
    (lost,) = [event for event in trace.events() if event.op == Op.ROWS_LOST]
    assert [event for event in trace.events() if event != lost] == rows()
    why = "the row is larger than a segment"
    assert trace.losses == [Loss(PROCESS, "worker-0", 100, 100, 199, why)] and trace.partial
    process, manager = trace.processes[PROCESS], trace.managers[PROCESS, 0]
    assert (process.host, process.build, process.seams) == ("rig", "0.5.14+fork", {"status": "installed"})
    assert (manager.role, manager.tp_rank, manager.bootstrap_timeout_s) == ("prefill", 1, 300)


def test_what_is_made_today_is_the_newest_version(tmp_path: Path) -> None:
    make(tmp_path)
    golden = GOLDEN / VERSIONS[-1]
    assert list(open_trace(tmp_path / "spool").events()) == list(open_trace(golden / "spool").events())
    for path in golden.rglob("*.seg"):
        assert (tmp_path / path.relative_to(golden)).read_bytes() == path.read_bytes()
    assert sum(path.stat().st_size for path in golden.rglob("*.*") if path.is_file()) < 60_000


if __name__ == "__main__":
    make(Path(sys.argv[1]))
