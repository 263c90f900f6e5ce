"""Two rows with one number: the same row twice is a copy, two different ones are damage."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spools import columns, some, write
from tracekv.event import Event, Op
from tracekv.spool import SpoolWriter
from tracekv.trace import open_trace, write_dataset
from tracekv.trace.rows import table_of

ROWS = some(5)
OTHER = replace(ROWS[3], new=0)


def lay(kind: str, rows: list[Event], folder: Path, lane: int = 0) -> None:
    if kind == "dataset":
        write_dataset(rows, folder)
    elif kind == "file":
        folder.mkdir(parents=True)
        pq.write_table(table_of(rows), folder / "x.parquet")
    else:
        writer = SpoolWriter(folder, "p")
        for row in rows:
            assert writer.lane("worker-0", 7).append(**columns(row))


KINDS = ["spool", "dataset", "file"]


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("two", KINDS)
def test_between_files(one: str, two: str, tmp_path: Path) -> None:
    lay(one, ROWS, tmp_path / "1")
    lay(two, [*ROWS[:3], OTHER], tmp_path / "2")
    if one == two == "spool":  # the same segments a second time are not even read
        for path in (tmp_path / "2").iterdir():
            path.unlink()
        write([OTHER], tmp_path / "2")
        (tmp_path / "2" / "p.0.0.seg").unlink()
        writer = SpoolWriter(tmp_path / "2", "p")
        lanes = [writer.lane("worker-0", 7) for _ in range(7)]
        for lane in lanes[:6]:
            lane._segment.path.unlink()  # type: ignore[union-attr]
        assert lanes[6].append(**columns(OTHER))
    trace = open_trace(tmp_path)
    found = [each for each in trace.damage if "different" in each.why]
    assert [(each.where, each.why) for each in found] == [
        ("seq 3 of p", "two different rows have this number (1 such)")
    ]
    assert found[0].file[0] in "12" and trace.partial
    assert sorted(row.new or 0 for row in trace.events()) == [0, 3, 3, 3, 3, 3]


def test_inside_one_file_and_between_its_row_groups(tmp_path: Path) -> None:
    for size in (100, 2):
        pq.write_table(table_of([*ROWS, OTHER]), tmp_path / "x.parquet", row_group_size=size)
        assert [each.where for each in open_trace(tmp_path).damage] == ["seq 3 of p"]


def test_a_thousand_rows_with_one_number_are_one_damage(tmp_path: Path) -> None:
    pq.write_table(table_of([replace(row, seq=1) for row in some(1000)]), tmp_path / "x.parquet")
    (damage,) = open_trace(tmp_path).damage
    assert "999 such" in damage.why


def test_copies_are_fine(tmp_path: Path) -> None:
    write(ROWS, tmp_path / "s")
    write_dataset(ROWS, tmp_path / "d")
    shutil.copytree(tmp_path / "d", tmp_path / "e")
    pq.write_table(table_of([*ROWS, *ROWS]), tmp_path / "x.parquet")
    trace = open_trace(tmp_path)
    assert not trace.partial and list(trace.events()) == ROWS and len(trace.frame()) == 5


def test_a_count_of_losses_that_went_on_is_fine(tmp_path: Path) -> None:
    for n in (1, 2):
        lost = Event(seq=9, op=Op.ROWS_LOST, process="p", attrs=f'{{"n": {n}}}')
        write_dataset([*ROWS, lost], tmp_path / str(n))
    assert open_trace(tmp_path).damage == []


def test_rows_of_many_lanes_and_groups_come_by_seq(tmp_path: Path) -> None:
    rows = some(3000)
    shuffled = sorted(rows, key=lambda row: row.seq * 7919 % 3001)
    pq.write_table(table_of(shuffled), tmp_path / "x.parquet", row_group_size=100)
    assert list(open_trace(tmp_path).events()) == rows
    assert [int(seq) for seq in open_trace(tmp_path).frame()["seq"]] == list(range(3000))
