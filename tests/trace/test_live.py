"""A spool that is read while it is written: one moment, however long the reading takes."""

from __future__ import annotations

import threading
from pathlib import Path

from tracekv.event import Op
from tracekv.spool import SpoolWriter
from tracekv.trace.store import open_trace

LANES = 4


def test_a_live_spool_ends_at_one_moment_in_all_lanes(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "p", segment_bytes=1 << 15, max_bytes=1 << 28)
    lanes = [writer.lane(f"worker-{number}", number) for number in range(LANES)]
    stop, begun = threading.Event(), threading.Event()

    def write() -> None:
        seq = 0
        while not stop.is_set():
            seq += 1
            lanes[seq % LANES].append(seq=seq, op=Op.STATUS_WRITTEN, mono_ns=seq, wall_ns=seq, room=7)
            if seq == 5_000:
                begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait(timeout=30)
    try:
        for _ in range(3):
            trace = open_trace(tmp_path)
            seen = [event.seq for event in trace.events()]
            assert not trace.damage and not trace.losses
            assert len(seen) >= 5_000
            assert seen == list(range(1, len(seen) + 1))
    finally:
        stop.set()
        thread.join()
        writer.close()


def test_what_a_killed_process_left_is_read_to_its_end(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "p", segment_bytes=1 << 12)
    busy, idle = writer.lane("worker-0", 1), writer.lane("scheduler", 2)
    idle.append(seq=1, op=Op.HEARTBEAT, mono_ns=1, wall_ns=1)
    for seq in range(2, 500):  # over many segments, none of which is closed at the end
        busy.append(seq=seq, op=Op.STATUS_WRITTEN, mono_ns=seq, wall_ns=seq, room=7)
    assert [event.seq for event in open_trace(tmp_path).events()] == list(range(1, 500))
