"""``tracekv ingest``: a spool into a trace, twice, merged, live, and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.spools import columns, some, write
from tracekv.cli.ingest import ingest
from tracekv.errors import UnreadableError, UsageError
from tracekv.event import Event, Op
from tracekv.ingest import ingest_spool
from tracekv.spool import SpoolWriter
from tracekv.trace import open_trace


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def of(process: str, n: int = 20) -> list[Event]:
    return [Event(seq=i, op="a", process=process, thread="t", tid=1, wall_ns=10**18 + i) for i in range(n)]


def test_twice_is_once(tmp_path: Path) -> None:
    write(some(50), tmp_path / "s")
    report = ingest_spool(tmp_path / "s", tmp_path / "t")
    first = files(tmp_path / "t")
    assert ingest_spool(tmp_path / "s", tmp_path / "t") == report
    assert files(tmp_path / "t") == first and report.rows == 50
    assert list(open_trace(tmp_path / "t").events()) == some(50)


def test_two_spools_merge(tmp_path: Path) -> None:
    write(of("a"), tmp_path / "s1")
    write(of("b"), tmp_path / "s2")
    ingest_spool(tmp_path / "s1", tmp_path / "t")
    ingest_spool(tmp_path / "s2", tmp_path / "t")
    assert list(open_trace(tmp_path / "t").events()) == [*of("a"), *of("b")]


def test_a_live_spool_and_again_later(tmp_path: Path) -> None:
    lane = SpoolWriter(tmp_path / "s", "p").lane("t", 1)
    for event in of("p", 5):
        lane.append(**columns(event))
    assert ingest_spool(tmp_path / "s", tmp_path / "t").rows == 5
    for event in of("p", 9)[5:]:
        lane.append(**columns(event))
    assert ingest_spool(tmp_path / "s", tmp_path / "t").rows == 9
    assert list(open_trace(tmp_path / "t").events()) == of("p", 9)
    assert not open_trace(tmp_path / "t").partial


def test_a_damaged_spool_is_written_and_stays_partial(tmp_path: Path) -> None:
    write([*of("a"), *of("b")], tmp_path / "s")
    torn = tmp_path / "s" / "a.0.0.seg"
    torn.write_bytes(torn.read_bytes()[:-60])
    result = CliRunner().invoke(ingest, [str(tmp_path / "s"), "-o", str(tmp_path / "t")])
    assert result.exit_code == 4 and result.stdout == ""
    assert "39 rows of 2 processes" in result.stderr and "a.0.0.seg, byte" in result.stderr
    assert "partial" in result.stderr
    trace = open_trace(tmp_path / "t")
    assert list(trace.events()) == [*of("a", 19), *of("b")]
    assert trace.partial and trace.damage[0].file == "a.0.0.seg" and trace.losses[0].process == "a"


def test_damage_without_a_row_is_kept(tmp_path: Path) -> None:
    SpoolWriter(tmp_path / "s", "p").lane("t", 1)
    (tmp_path / "s" / "x.seg").write_bytes(b"")
    ingest_spool(tmp_path / "s", tmp_path / "t")
    assert open_trace(tmp_path / "t").damage[0].file == "x.seg"


def test_losses_are_told_and_kept(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path / "s", "p", segment_bytes=4096, max_bytes=4096)
    lane = writer.lane("t", 1)
    kept = [lane.append(**columns(event)) for event in of("p", 60)]
    writer.close()
    result = CliRunner().invoke(ingest, [str(tmp_path / "s"), "-o", str(tmp_path / "t")])
    assert result.exit_code == 0 and f"lost: at least {kept.count(False)} rows" in result.stderr
    (loss,) = open_trace(tmp_path / "t").losses
    assert loss.n == kept.count(False)
    assert sum(event.op == Op.ROWS_LOST for event in open_trace(tmp_path / "t").events()) == 1


def test_refusals(tmp_path: Path) -> None:
    write(of("a"), tmp_path / "s")
    with pytest.raises(UsageError, match="no dataset"):
        ingest_spool(tmp_path / "s", tmp_path / "s")
    with pytest.raises(UsageError, match="no such"):
        ingest_spool(tmp_path / "nowhere", tmp_path / "t")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableError):
        ingest_spool(tmp_path / "empty", tmp_path / "t")
    ingest_spool(tmp_path / "s", tmp_path / "t")
    with pytest.raises(UsageError, match="dataset already"):
        ingest_spool(tmp_path / "t", tmp_path / "t2")
