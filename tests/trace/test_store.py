"""The dataset: identity of write and read, tolerance of what others write, and clear refusals."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spools import LISTS, columns, write
from tracekv.errors import UnreadableError, UsageError
from tracekv.event import COLUMNS, Event, Op
from tracekv.spool import Damage, Loss, SpoolWriter
from tracekv.trace import open_trace, write_dataset
from tracekv.trace.schema import SCHEMA

DAY = 1_700_000_000 * 10**9  # 2023-11-14


def ordered(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event.process, event.seq))


def row(seq: int, process: str = "p", op: str = Op.STATUS_WRITTEN, **more: Any) -> Event:
    return Event(
        seq=seq, op=op, process=process, thread="worker-0", tid=7, mono_ns=seq, wall_ns=DAY + seq, **more
    )


def started(process: str, host: str = "h1", seq: int = 0) -> Event:
    attrs = {"host": host, "pid": 9, "engine": "sglang", "version": "0.5.14", "build": "0.5.14+fork",
             "detail": "gates"}  # fmt: skip
    return row(seq, process, Op.PROCESS_STARTED, attrs=json.dumps(attrs))


def history(process: str = "p", n: int = 5) -> list[Event]:
    return [started(process), *(row(i, process, room=2**63 + i, new=3) for i in range(1, n))]


@settings(max_examples=50, deadline=None)
@given(LISTS, st.randoms())
def test_what_is_written_is_read(events: list[Event], random: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "trace"
        random.shuffle(events)
        paths = write_dataset(events, target)
        assert all(path.resolve().is_relative_to(target.resolve()) for path in paths)
        assert {path.name for path in Path(folder).iterdir()} <= {"trace"}
        if events:
            trace = open_trace(target)
            assert list(trace.events()) == ordered(events)
            assert not trace.partial


@settings(max_examples=25, deadline=None)
@given(LISTS)
def test_spool_and_dataset_give_the_same(events: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spool, target = Path(folder) / "spool", Path(folder) / "trace"
        write(events, spool)
        if not events:
            return
        live = open_trace(spool)
        write_dataset(live.events(), target)
        stored = open_trace(target)
        assert list(live.events()) == list(stored.events()) == ordered(events)
        assert live.processes == stored.processes
        pd.testing.assert_frame_equal(live.frame(), stored.frame())


def test_rooms_are_never_floats(tmp_path: Path) -> None:
    rooms = [0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, None]
    write_dataset([row(i, room=room) for i, room in enumerate(rooms)], tmp_path / "t")
    frame = open_trace(tmp_path / "t").frame()
    assert str(frame["room"].dtype) == "UInt64"
    assert [None if pd.isna(room) else int(room) for room in frame["room"]] == rooms
    assert list(frame.columns) == list(COLUMNS)
    assert not any("float" in str(kind) for kind in frame.dtypes)


def test_the_layout_and_the_metadata(tmp_path: Path) -> None:
    seam = row(1, op=Op.SEAM_INSTALLED, attrs='{"seam":"status","state":"installed"}')
    (path,) = write_dataset([started("p"), seam, row(2, room=1)], tmp_path)
    assert path == tmp_path / "events" / "date=2023-11-14" / "host=h1" / "p.parquet"
    said = pq.read_schema(path).metadata
    assert said[b"tracekv.schema"] == b"1" and said[b"tracekv.engine_version"] == b"0.5.14"
    coverage = json.loads(said[b"tracekv.coverage"])
    assert coverage["seams"] == {"status": "installed"} and coverage["ops"][Op.STATUS_WRITTEN] == 1
    (known,) = pq.read_table(tmp_path / "processes" / "p.parquet").to_pylist()
    assert (known["host"], known["rows"], known["ended"]) == ("h1", 3, False)
    assert pq.read_schema(path).field("room").type == pa.uint64()
    assert not [p for p in tmp_path.rglob(".*")]


@pytest.mark.parametrize("inside", [".", "events", "events/date=2023-11-14/host=h1/p.parquet"])
def test_every_way_to_name_a_dataset(tmp_path: Path, inside: str) -> None:
    write_dataset(history(), tmp_path)
    trace = open_trace(tmp_path / inside)
    assert trace.kind == "dataset" and list(trace.events()) == history()
    assert trace.processes["p"].build == "0.5.14+fork" and trace.processes["p"].started_ns == DAY


def test_folders_of_traces_and_a_copy_in_them(tmp_path: Path) -> None:
    write_dataset(history("a"), tmp_path / "one")
    write_dataset(history("b"), tmp_path / "two")
    shutil.copytree(tmp_path / "one", tmp_path / "again")
    trace = open_trace(tmp_path)
    assert list(trace.events()) == [*history("a"), *history("b")] and not trace.partial


def test_folders_of_spools(tmp_path: Path) -> None:
    write(history("a"), tmp_path / "one")
    write(history("b"), tmp_path / "two")
    trace = open_trace(tmp_path)
    assert trace.kind == "spool" and list(trace.events()) == [*history("a"), *history("b")]


def test_traces_merge_by_copying(tmp_path: Path) -> None:
    write_dataset(history("a"), tmp_path / "one")
    write_dataset([started("b", "h2"), row(1, "b")], tmp_path / "two")
    shutil.copytree(tmp_path / "two", tmp_path / "one", dirs_exist_ok=True)
    assert set(open_trace(tmp_path / "one").processes) == {"a", "b"}


def test_writing_again_is_merging(tmp_path: Path) -> None:
    (path,) = write_dataset(history(n=3), tmp_path)
    before = path.read_bytes()
    assert write_dataset(history(n=3), tmp_path) == [path] and path.read_bytes() == before
    write_dataset(history(n=6)[1:], tmp_path)
    assert list(open_trace(tmp_path).events()) == history(n=6)
    assert len(list(tmp_path.rglob("p.parquet"))) == 2  # of events, and of the process


def test_a_process_whose_start_was_seen_late_moves(tmp_path: Path) -> None:
    write_dataset(history()[1:], tmp_path)
    write_dataset(history(), tmp_path)
    assert [p.parent.name for p in tmp_path.glob("events/*/*/*")] == ["host=h1"]
    assert list(open_trace(tmp_path).events()) == history()


@pytest.mark.parametrize("process", ["../../x", "/etc/x", "a\0b", "", "x" * 400])
def test_hostile_names_stay_inside(tmp_path: Path, process: str) -> None:
    target = tmp_path / "deep" / "er" / "trace"
    write_dataset([started(process, host="../../../../h"), row(1, process)], target)
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]
    assert len(list(target.rglob("*.parquet"))) == 2 and len(list(tmp_path.rglob("*.parquet"))) == 2
    assert set(open_trace(target).processes) == {process}


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        write_dataset(history(), tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        write_dataset(history(), tmp_path / "thesis.tex")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such"):
        open_trace(tmp_path / "nowhere")
    with pytest.raises(UnreadableError, match="expected segments"):
        open_trace(tmp_path)
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"user": [1], "seq": [2]}), foreign)
    with pytest.raises(UnreadableError, match="no column op, process"):
        open_trace(foreign)
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(UnreadableError, match="cannot be read as Parquet"):
        open_trace(tmp_path / "text.parquet")


def test_a_newer_version_says_what_is_needed(tmp_path: Path) -> None:
    (path,) = write_dataset(history(), tmp_path)
    newer = {"tracekv.schema": "2", "tracekv.needs": "3.4"}
    pq.write_table(pq.read_table(path).replace_schema_metadata(newer), path)
    with pytest.raises(UnreadableError, match=r"(?s)schema version 2.*tracekv 3\.4 or newer"):
        open_trace(path)
    write_dataset(history("q"), tmp_path)
    trace = open_trace(tmp_path)
    assert trace.partial and "version 2" in trace.damage[0].why and list(trace.events()) == history("q")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_one_cut_file_among_good_ones(tmp_path: Path, share: float) -> None:
    paths = write_dataset([*history("a"), *history("b")], tmp_path)
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[: int(len(data) * share)])
    trace = open_trace(tmp_path)
    assert list(trace.events()) == history("b") and trace.partial
    assert [item.file for item in trace.damage] == [str(paths[0].relative_to(tmp_path))]
    with pytest.raises(UnreadableError):
        open_trace(paths[0])


def test_a_flipped_byte_anywhere_in_a_file(tmp_path: Path) -> None:
    (path,) = write_dataset(history(n=50), tmp_path)
    data = path.read_bytes()
    good = history(n=50)
    for at in range(0, len(data), 5):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        try:
            trace = open_trace(path)
            events = list(trace.events())
            trace.frame()
        except UnreadableError:
            continue
        assert trace.partial or events == good, at


def test_other_writers_are_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table(
        {
            "op": pa.array(["status.written"] * 2).dictionary_encode(),
            "process": pa.array(["p", "p"], pa.large_string()),
            "seq": pa.array([2, 1], pa.int32()),
            "room": pa.array([5, None], pa.int64()),
            "new": pa.array([3, 0], pa.int64()),
            "peer": pa.nulls(2),
            "weather": ["rain", "sun"],
        }
    )
    pq.write_table(table, path)
    assert list(open_trace(path).events()) == [
        Event(seq=1, op="status.written", process="p", new=0),
        Event(seq=2, op="status.written", process="p", room=5, new=3),
    ]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("room", [1.0, 2.0]),
        ("room", [-1, 5]),
        ("new", [300, 1]),
        ("last", [1, 0]),
        ("peer", [1, 2]),
        ("seq", ["1", "2"]),
    ],
)
def test_wrong_types_and_ranges_are_damage(tmp_path: Path, name: str, values: list[Any]) -> None:
    write_dataset(history("good"), tmp_path)
    table = pa.table({"seq": [1, 2], "op": ["a", "a"], "process": ["p", "p"]})
    at = table.schema.get_field_index(name)
    column = pa.array(values)
    table = table.set_column(at, name, column) if at >= 0 else table.append_column(name, column)
    pq.write_table(table, tmp_path / "events" / "bad.parquet")
    trace = open_trace(tmp_path)
    assert list(trace.events()) == history("good")
    assert [item.file for item in trace.damage] == ["events/bad.parquet"]


def test_hostile_rows_do_not_crash(tmp_path: Path) -> None:
    table = pa.table(
        {
            "seq": [-5, 1, None, 3, 4, 5],
            "op": ["process.started", "manager.started", "a", None, "rows.lost", "seam.installed"],
            "process": ["p"] * 6,
            "manager": pa.array([None, 0, 1, 2, 3, 4], pa.int16()),
            "room": pa.array([None] * 6, pa.uint64()),
            "old": pa.array([4, -1, 0, 0, 0, 0], pa.int8()),
            "source": pa.array([None] * 6, pa.string()),
            "attrs": ["{not json", "[1]", "", "", '{"n": "many"}', '{"seam": 3}'],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    trace = open_trace(tmp_path / "x.parquet")
    assert [event.seq for event in trace.events()] == [-5, 1, 4, 5]
    assert trace.processes["p"].host is None and trace.managers[("p", 0)].role is None
    assert trace.losses[0].n == 1 and "2 rows without" in trace.damage[0].why
    trace.frame()


def test_no_rows_is_readable(tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "x.parquet")
    trace = open_trace(tmp_path / "x.parquet")
    assert list(trace.events()) == [] and not trace.partial and len(trace.frame()) == 0
    SpoolWriter(tmp_path / "spool", "p").lane("scheduler", 1)
    trace = open_trace(tmp_path / "spool")
    assert list(trace.events()) == [] and not trace.partial and list(trace.processes) == ["p"]


def test_a_spool_with_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "x.seg").write_bytes(b"")
    with pytest.raises(UnreadableError, match="no segment"):
        open_trace(tmp_path)


def test_damage_and_losses_stay_in_the_trace(tmp_path: Path) -> None:
    damage = Damage("p.0.0.seg", "byte 9", "torn")
    loss = Loss("p", "worker-0", 1, 5, None, "torn")
    write_dataset(history(), tmp_path, damage=[damage], losses=[loss])
    trace = open_trace(tmp_path)
    assert trace.damage == [damage] and trace.losses == [loss] and trace.partial
    write_dataset(history(n=3), tmp_path)  # knows less than what is there: the damage stays
    assert open_trace(tmp_path).damage == [damage]
    write_dataset(history(n=9), tmp_path)  # the whole, this time
    assert not open_trace(tmp_path).partial


def test_a_live_spool_does_not_grow_between_passes(tmp_path: Path) -> None:
    lane = SpoolWriter(tmp_path, "p").lane("worker-0", 7)
    for event in history(n=3):
        lane.append(**columns(event))
    trace = open_trace(tmp_path)
    lane.append(**columns(row(3)))
    assert [event.seq for event in trace.events()] == [event.seq for event in trace.events()] == [0, 1, 2]


def test_managers_and_seams(tmp_path: Path) -> None:
    attrs = {"role": "prefill", "backend": "nixl", "tp_size": 2, "tp_rank": 1, "bootstrap_timeout_s": 300}
    events = [
        started("p"),
        row(1, op=Op.MANAGER_STARTED, manager=0, attrs=json.dumps(attrs)),
        row(2, op=Op.SEAM_INSTALLED, manager=0, attrs='{"seam":"status","state":"installed"}'),
        row(3, op=Op.SEAM_INSTALLED, attrs='{"seam":"agent","state":"absent"}'),
        row(4, op=Op.PROCESS_ENDED),
    ]
    write_dataset(events, tmp_path)
    trace = open_trace(tmp_path)
    manager = trace.managers[("p", 0)]
    assert (manager.role, manager.tp_rank, manager.pp_rank, manager.bootstrap_timeout_s) == (
        "prefill",
        1,
        None,
        300,
    )
    assert manager.seams == {"status": "installed"}
    process = trace.processes["p"]
    assert process.ended and process.seams == {"status": "installed", "agent": "absent"}
    assert replace(process, ended=False).host == "h1"
