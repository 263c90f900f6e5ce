"""The spool: what it gives back after kills, cuts and flips, and that it never raises."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spools import LISTS, some, write
from tracekv.event import Event, Op
from tracekv.spool import SpoolWriter, read_segment, read_spool, safe_name, shown
from tracekv.spool.layout import FRAME, HEADER_BYTES, KIND_TEXT, LOSS_AT, MAX_TEXT


@settings(max_examples=60, deadline=None)
@given(LISTS, st.booleans(), st.sampled_from([4096, 1 << 16]))
def test_what_is_written_is_read(events: list[Event], close: bool, segment: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(events, Path(folder), close=close, segment_bytes=segment)
        read = read_spool(Path(folder))
        assert read.damage == [] and read.losses == []
        assert read.events == sorted(events, key=lambda event: (event.process, event.seq))
        assert all(path.parent == Path(folder) for path in Path(folder).rglob("*"))


def test_many_segments_and_close_gives_the_disk_back(tmp_path: Path) -> None:
    events = some(500)
    write(events, tmp_path, segment_bytes=8192)
    assert read_spool(tmp_path).events == events
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) > 5 and sizes[-1] < 8192 and min(sizes) > HEADER_BYTES


def test_a_live_spool_reads_without_damage(tmp_path: Path) -> None:
    lane = SpoolWriter(tmp_path, "p", segment_bytes=1 << 16).lane("worker-0", 7)
    done, stop = [0], threading.Event()

    def work() -> None:
        i = 0
        while not stop.is_set():
            assert lane.append(seq=i, op=Op.STATUS_WRITTEN, mono_ns=i, wall_ns=i, site=f"f:{i % 50}")
            i += 1
            done[0] = i

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        for _ in range(10):
            sure = done[0]
            read = read_spool(tmp_path)
            assert read.damage == []
            assert [event.seq for event in read.events] == list(range(len(read.events)))
            assert len(read.events) >= sure
            if sure > 20_000:
                break
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("more", [{}, {"chunk": 3, "peer": "p"}], ids=["short", "long"])
def test_a_cut_at_every_byte(tmp_path: Path, close: bool, more: dict[str, Any]) -> None:
    events = some(12, **more)
    write(events, tmp_path, close=close, segment_bytes=4096)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    ends = record_ends(whole)  # of a text and a row for each event after the first
    start = ends[-10]
    for cut in range(start, ends[-1]):
        path.write_bytes(whole[:cut])
        read = read_spool(tmp_path)
        there = [e for e, end in zip(events, row_ends(whole), strict=True) if end <= cut]
        assert read.events == there, cut
        assert len(read.damage) == 1, (cut, read.damage)
        assert read.damage[0].file == path.name and read.damage[0].where.startswith("byte ")
        assert sum(loss.n for loss in read.losses) == 1
    path.write_bytes(whole)
    assert read_spool(tmp_path).damage == []


def records(data: bytes) -> list[tuple[int, int, int]]:
    """(start, end without padding, kind) of every record."""
    found, at = [], HEADER_BYTES
    while at + 8 <= len(data) and (length := FRAME.unpack_from(data, at)[0] & 0xFFFFFFFF):
        found.append((at, at + 8 + length, data[at + 8]))
        at = (at + 8 + length + 7) & ~7
    return found


def record_ends(data: bytes) -> list[int]:
    return [end for _, end, _ in records(data)]


def row_ends(data: bytes) -> list[int]:
    return [end for _, end, kind in records(data) if kind != KIND_TEXT]


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("mask", [0xFF, 0x01, 0x80, None])
@pytest.mark.parametrize("more", [{}, {"chunk": 3, "peer": "p"}], ids=["short", "long"])
def test_a_flipped_byte_anywhere_in_a_record(
    tmp_path: Path, close: bool, mask: int | None, more: dict[str, Any]
) -> None:
    events = some(6, **more)
    write(events, tmp_path, close=close, segment_bytes=4096)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    starts = [start for start, _, kind in records(whole) if kind != KIND_TEXT]
    start, end = starts[3], row_ends(whole)[3]
    for at in range(start, end):
        flipped = whole[at] ^ (mask if mask is not None else whole[at])  # None: the byte becomes zero
        if flipped == whole[at]:
            continue
        path.write_bytes(whole[:at] + bytes([flipped]) + whole[at + 1 :])
        read = read_spool(tmp_path)
        assert read.events == events[:3], at
        assert len(read.damage) == 1 and read.damage[0].where == f"byte {start}", (at, read.damage)
        assert sum(loss.n for loss in read.losses) == 1


@pytest.mark.parametrize("at", [0, 5, 8, 12, 20, 40, 60, 200])
def test_a_flipped_byte_in_the_header(tmp_path: Path, at: int) -> None:
    write(some(3), tmp_path)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    read = read_spool(tmp_path)
    assert read.events == [] and len(read.damage) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 4096, b"PAR1" * 400, b"tkvspool", os.urandom(3000)],
    ids=["empty", "zeros", "foreign", "short", "noise"],
)
def test_a_file_that_is_no_segment_is_one_damage(tmp_path: Path, content: bytes) -> None:
    write(some(3), tmp_path)
    (tmp_path / "strange.seg").write_bytes(content)
    (tmp_path / "notes.txt").write_bytes(b"not ours to judge")
    read = read_spool(tmp_path)
    assert read.events == some(3)
    assert [item.file for item in read.damage] == ["strange.seg"]


def test_links_folders_and_huge_files_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    write(some(3), outside)
    inside.mkdir()
    (inside / "a.seg").symlink_to(next(outside.iterdir()))
    (inside / "b.seg").mkdir()
    os.mkfifo(inside / "c.seg")
    with open(inside / "d.seg", "wb") as huge:
        huge.truncate(1 << 40)
    read = read_spool(inside)
    assert read.events == [] and len(read.damage) == 4


@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 1 << 20, 121, 1])
def test_a_wrong_length_word(tmp_path: Path, length: int) -> None:
    events = some(4)
    write(events, tmp_path)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    start = [start for start, _, kind in records(bytes(data)) if kind != KIND_TEXT][2]
    data[start : start + 4] = length.to_bytes(4, "little")
    path.write_bytes(data)
    read = read_spool(tmp_path)
    assert read.events == events[:2] and read.damage[0].where == f"byte {start}"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_hostile_bytes_never_raise(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(some(5), Path(folder), segment_bytes=4096)
        (path,) = Path(folder).iterdir()
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 6))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
        path.write_bytes(content)
        written = some(5)
        assert all(event in written or event.op == Op.ROWS_LOST for event in read_spool(Path(folder)).events)


def test_a_segment_that_was_taken_away_or_copied(tmp_path: Path) -> None:
    write(some(200), tmp_path, segment_bytes=4096)
    third = tmp_path / "p.0.2.seg"
    rows = read_segment(third).events  # type: ignore[union-attr]
    shutil.copy(third, tmp_path / "p.0.2 (copy).seg")
    read = read_spool(tmp_path)
    assert read.events == some(200) and len(read.damage) == 1
    (tmp_path / "p.0.2 (copy).seg").unlink()
    third.unlink()
    read = read_spool(tmp_path)
    assert len(read.events) == 200 - len(rows)
    assert [item.file for item in read.damage] == [third.name]
    max(tmp_path.iterdir()).unlink()  # the last one: the one before it says that it was there
    assert [item.why for item in read_spool(tmp_path).damage] == ["missing (2 of its segments)"]


def three_lanes(folder: Path, *, close: bool) -> SpoolWriter:
    writer = SpoolWriter(folder, "p")
    for i in range(3):
        assert writer.lane("worker", i).append(seq=i, op="a", mono_ns=i, wall_ns=i)
    if close:
        writer.close()
    return writer


@pytest.mark.parametrize("close", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_lane_that_was_taken_away(tmp_path: Path, gone: int, close: bool) -> None:
    three_lanes(tmp_path, close=close)
    assert read_spool(tmp_path).damage == []
    (tmp_path / f"p.{gone}.0.seg").unlink()
    known = close or gone < 2  # of a process that was killed nobody knows how many lanes it had
    said = [(item.file, item.where) for item in read_spool(tmp_path).damage]
    assert said == ([(f"p.{gone}.0.seg", f"lane {gone} of p")] if known else [])


def test_a_lane_that_is_made_after_the_end_is_no_damage(tmp_path: Path) -> None:
    assert three_lanes(tmp_path, close=True).lane("late", 9).append(seq=9, op="a", mono_ns=1, wall_ns=1)
    assert read_spool(tmp_path).damage == []


@pytest.mark.parametrize("column", ["requested", "old", "new"])
@pytest.mark.parametrize("state", [-128, -2, 5, 127])
@pytest.mark.parametrize("more", [{}, {"chunk": 3}], ids=["short", "long"])
def test_a_state_that_is_none_is_damage(
    tmp_path: Path, column: str, state: int, more: dict[str, Any]
) -> None:
    lane = SpoolWriter(tmp_path, "p").lane("worker-0", 7)
    for seq, value in enumerate([-1, state, 4]):
        assert lane.append(seq=seq, op="a", mono_ns=seq, wall_ns=1, **{column: value}, **more)
    read = read_spool(tmp_path)
    assert [event.seq for event in read.events] == [0, 2]
    assert [(item.where, item.why) for item in read.damage] == [
        ("seq 1", "1 rows with a state outside -1 to 4")
    ]
    assert [(loss.n, loss.from_ns, loss.thread) for loss in read.losses] == [(1, 1, "worker-0")]


def test_what_is_no_regular_file_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.seg")
    (tmp_path / "link.seg").symlink_to("/dev/zero")
    said = {item.file: item.why for item in read_spool(tmp_path).damage}
    assert said == {"pipe.seg": "not a regular file", "link.seg": "a symbolic link: not followed"}


def test_a_path_in_a_message_is_short_and_one_line() -> None:
    assert shown("a\nb\x1b\u202e/ü") == "a\\nb\\x1b\\u202e/ü" and shown("\udcff") == "\\udcff"
    assert len(shown("x" * 5000)) < 300


KILLED = textwrap.dedent(
    """
    import mmap, sys, threading
    from pathlib import Path
    from tracekv.spool import SpoolWriter
    folder, shared, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    file = open(shared, "r+b")
    count = mmap.mmap(file.fileno(), 8 * threads)
    writer = SpoolWriter(Path(folder), "killed", segment_bytes=1 << 15)
    def work(k):
        lane = writer.lane(f"worker-{k}", k)
        i = 0
        while True:
            assert lane.append(seq=i * threads + k, op="status.written", mono_ns=i, wall_ns=i, room=i,
                               site=f"f:{i % 97}", attrs=str(i) if i % 11 == 0 else None)
            i += 1
            count[8 * k : 8 * k + 8] = i.to_bytes(8, "little")
    for k in range(threads):
        threading.Thread(target=work, args=(k,)).start()
    print("on", flush=True)
    """
)


@pytest.mark.parametrize("turn", range(8))
def test_sigkill_loses_nothing_that_was_acknowledged(tmp_path: Path, turn: int) -> None:
    threads, shared, spool = 3, tmp_path / "count", tmp_path / "spool"
    shared.write_bytes(bytes(8 * threads))
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(spool), str(shared), str(threads)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"on\n"
    time.sleep(random.Random(turn).uniform(0.0, 0.12))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    counts = shared.read_bytes()
    read = read_spool(spool)
    assert read.damage == [] and read.losses == []
    for k in range(threads):
        said = int.from_bytes(counts[8 * k : 8 * k + 8], "little")
        rows = [event for event in read.events if event.tid == k]
        assert said <= len(rows) <= said + 1
        for i, event in enumerate(rows):
            assert (event.seq, event.room, event.site) == (i * threads + k, i, f"f:{i % 97}")
            assert event.attrs == (str(i) if i % 11 == 0 else None)


def test_where_there_is_no_folder_rows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    writer = SpoolWriter(tmp_path / "file" / "spool", "p")
    lane = writer.lane("worker-0", 7)
    assert [lane.append(seq=i, op="a", mono_ns=i, wall_ns=i) for i in range(5)] == [False] * 5
    assert writer.lost == lane.lost == 5
    writer.close()


def test_the_size_limit_is_told_in_the_spool(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "p", segment_bytes=4096, max_bytes=8192)
    lane = writer.lane("worker-0", 7)
    kept = [lane.append(seq=i, op="a", mono_ns=i, wall_ns=i + 10**18) for i in range(200)]
    writer.close()
    read = read_spool(tmp_path)
    assert sum(kept) == len(read.events) - 1 and False in kept
    (loss,) = read.losses
    first = kept.index(False)
    assert (loss.n, loss.from_ns, loss.to_ns, loss.thread) == (kept.count(False), first, 199, "worker-0")
    row = read.events[first]
    assert row.op == Op.ROWS_LOST and row.attr("n") == loss.n and "limit" in row.attr("why")


def test_a_lane_that_never_had_a_segment_tells_at_the_end(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "p", max_bytes=0)
    lane = writer.lane("worker-0", 7)
    assert not lane.append(seq=3, op="a", mono_ns=1, wall_ns=2)
    writer.close()
    (event,) = read_spool(tmp_path).events
    assert event.op == Op.ROWS_LOST and event.attr("n") == 1 and event.seq == 3


def test_a_full_disk_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        lane = SpoolWriter(tmp_path, "p").lane("worker-0", 7)
        assert not lane.append(seq=0, op="a", mono_ns=0, wall_ns=0)
    lane._retry = 0.0
    assert lane.append(seq=1, op="a", mono_ns=1, wall_ns=1)
    read = read_spool(tmp_path)
    assert [(event.seq, event.op) for event in read.events] == [(0, Op.ROWS_LOST), (1, "a")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.0.0.seg"]


@pytest.mark.parametrize(
    "bad",
    [{"room": -1}, {"room": 2**64}, {"new": 300}, {"generation": 2**63}, {"seq": None}, {"manager": "x"}],
    ids=str,
)
def test_a_value_that_does_not_fit_is_a_lost_row(tmp_path: Path, bad: dict[str, Any]) -> None:
    lane = SpoolWriter(tmp_path, "p").lane("worker-0", 7)
    assert not lane.append(**{"seq": 1, "op": "a", "mono_ns": 1, "wall_ns": 1, **bad})
    assert lane.append(seq=2, op="a", mono_ns=1, wall_ns=1)
    read = read_spool(tmp_path)
    assert [event.op for event in read.events if event.seq == 2] == ["a"]
    assert [loss.n for loss in read.losses] == [1] and read.damage == []


def test_a_row_larger_than_a_segment(tmp_path: Path) -> None:
    lane = SpoolWriter(tmp_path, "p", segment_bytes=4096).lane("worker-0", 7)
    big = "x" * 4000
    assert not lane.append(seq=1, op="a", mono_ns=1, wall_ns=1, reason=big, rid=big)
    assert lane.append(seq=2, op="a", mono_ns=1, wall_ns=1)
    assert len(list(tmp_path.iterdir())) == 1
    assert "larger" in read_spool(tmp_path).losses[0].why


def test_long_texts_are_cut_with_a_mark(tmp_path: Path) -> None:
    lane = SpoolWriter(tmp_path, "p").lane("worker-0", 7)
    attrs = '{"a": "' + "ä" * 9000 + '"}'
    assert lane.append(seq=1, op="a", mono_ns=1, wall_ns=1, reason="ü" * 5000, attrs=attrs, rid="\ud800")
    (event,) = read_spool(tmp_path).events
    assert event.reason is not None and len(event.reason.encode()) <= MAX_TEXT
    assert event.reason.endswith("…[cut, 10000 bytes]")
    assert event.attr("cut_bytes") == len(attrs.encode())
    assert event.rid == "\\ud800"


def test_rows_after_close_are_counted(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "p")
    lane = writer.lane("worker-0", 7)
    assert lane.append(seq=1, op="a", mono_ns=1, wall_ns=1)
    writer.close()
    assert not lane.append(seq=2, op="a", mono_ns=2, wall_ns=2)
    writer.close()
    read = read_spool(tmp_path)
    assert [loss.n for loss in read.losses] == [1] and read.damage == []


def test_closing_from_another_thread_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    for turn in range(10):
        writer = SpoolWriter(tmp_path / str(turn), "p")
        lane = writer.lane("worker-0", 7)
        kept: list[bool] = []

        def work(lane: Any = lane, kept: list[bool] = kept) -> None:
            for i in range(3000):
                kept.append(lane.append(seq=i, op="a", mono_ns=i, wall_ns=i, site=str(i)))

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.002)
        writer.close()
        thread.join()
        read = read_spool(tmp_path / str(turn))
        assert read.damage == []
        rows = [event for event in read.events if event.op == "a"]
        assert sum(kept) <= len(rows) <= sum(kept) + 1
        assert sum(loss.n for loss in read.losses) == kept.count(False)


def test_a_fork_leaves_the_parents_segment_alone(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "p")
    lane = writer.lane("worker-0", 7)
    lane.append(seq=1, op="a", mono_ns=1, wall_ns=1)
    child = os.fork()
    if not child:
        os._exit(0 if not lane.append(seq=9, op="a", mono_ns=1, wall_ns=1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert lane.append(seq=2, op="a", mono_ns=1, wall_ns=1)
    assert [event.seq for event in read_spool(tmp_path).events] == [1, 2]


def test_an_exception_in_the_middle_of_an_append_leaves_no_row(tmp_path: Path) -> None:
    class Stop(str):
        def encode(self, *_: object) -> bytes:  # type: ignore[override]
            raise KeyboardInterrupt

    lane = SpoolWriter(tmp_path, "p").lane("worker-0", 7)
    with pytest.raises(KeyboardInterrupt):
        lane.append(seq=1, op="a", mono_ns=1, wall_ns=1, site=Stop("x"))
    assert lane.append(seq=2, op="a", mono_ns=1, wall_ns=1)
    assert [event.seq for event in read_spool(tmp_path).events] == [2]


@pytest.mark.parametrize("name", ["../../x", "", ".", "..", "a/b", "a\0b", "ü" * 300, "x" * 500, "-rf"])
def test_names_from_elsewhere_stay_in_the_folder(name: str) -> None:
    safe = safe_name(name)
    assert "/" not in safe and "\0" not in safe and safe not in ("", ".", "..") and len(safe) < 120
    assert safe[0] not in ".-" and safe != safe_name(name + "x")


def test_torn_loss_count(tmp_path: Path) -> None:
    lane = SpoolWriter(tmp_path, "p", segment_bytes=4096, max_bytes=4096).lane("worker-0", 7)
    lost = [lane.append(seq=i, op="a", mono_ns=i, wall_ns=i) for i in range(90)].count(False)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[LOSS_AT[lost & 1] + 3] ^= 0xFF  # the newer of the two
    path.write_bytes(data)
    assert read_spool(tmp_path).losses[0].n == lost - 1
    data[LOSS_AT[1 - (lost & 1)] + 3] ^= 0xFF
    path.write_bytes(data)
    assert len(read_spool(tmp_path).damage) == 1
