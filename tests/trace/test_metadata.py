"""What a file says about itself is held against what is in it; nonsense is damage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spools import some
from tracekv import __version__
from tracekv.errors import UnreadableError
from tracekv.event import Event, Op
from tracekv.spool import Damage
from tracekv.trace import Trace, open_trace, write_dataset
from tracekv.trace.rows import table_of


def opened(tmp_path: Path, said: dict[str, bytes | None], rows: list[Event] | None = None) -> Trace:
    """A file of five rows whose metadata, and perhaps rows, were changed behind our back."""
    (path,) = write_dataset(some(5), tmp_path)
    metadata = pq.read_schema(path).metadata
    metadata.update({key.encode(): value for key, value in said.items() if value is not None})
    for key in [key for key, value in said.items() if value is None]:
        del metadata[key.encode()]
    table = table_of(some(5) if rows is None else rows)
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return open_trace(path)


def damage(trace: Trace) -> list[tuple[str, str]]:
    assert trace.partial is bool(trace.damage)
    return [(each.where, each.why) for each in trace.damage]


def test_fewer_rows_than_the_file_says(tmp_path: Path) -> None:
    gone = opened(tmp_path / "1", {}, some(4))
    assert damage(gone) == [("rows", "the file says 5 status.written rows, it holds 4")]
    renamed = opened(tmp_path / "2", {}, [replace(row, op="x.a.b") for row in some(5)])
    assert damage(renamed) == [("rows", "the file says 5 status.written rows, it holds 0")]
    assert damage(opened(tmp_path / "3", {}, some(6))) == []  # of files laid together one speaks


NONSENSE = [
    b"{",
    b"null",
    b"\xff",
    b"[" * 100_000,
    b'"x"',
    b"[1]",
    b'[{"file":1}]',
    b'{"ops":3}',
    b'[{"n":5}]',
]


@pytest.mark.parametrize("key", ["coverage", "damage", "losses", "needs"])
@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: repr(value[:9]))
def test_nonsense_is_damage(tmp_path: Path, key: str, value: bytes) -> None:
    trace = opened(tmp_path, {f"tracekv.{key}": value})
    assert [where for where, _ in damage(trace)] == [f"metadata tracekv.{key}"]
    assert list(trace.events()) == some(5)


@pytest.mark.parametrize("ops", [[], 3, {"a": "x"}, {"a": None}, None])
def test_a_coverage_of_another_shape_is_damage(tmp_path: Path, ops: object) -> None:
    assert damage(opened(tmp_path, {"tracekv.coverage": json.dumps({"ops": ops}).encode()}))
    assert damage(opened(tmp_path, {"tracekv.coverage": None})) == [("metadata tracekv.coverage", "missing")]


def test_what_is_said_is_kept_and_can_be_printed(tmp_path: Path) -> None:
    said = [{"file": "\ud800", "where": "w", "why": "y"}]
    trace = opened(tmp_path, {"tracekv.damage": json.dumps(said).encode()})
    assert trace.damage == [Damage("?", "w", "y")]


@pytest.mark.parametrize("needs", ["99", "0.1.1", "0.2", "1"])
def test_a_file_that_needs_a_newer_tracekv(tmp_path: Path, needs: str) -> None:
    (only,) = damage(opened(tmp_path, {"tracekv.needs": needs.encode()}))
    assert f"tracekv {needs} or newer" in only[1] and __version__ in only[1]


@pytest.mark.parametrize("needs", ["0.1", __version__, "0.0.9", "0.1.0rc1"])
def test_a_file_that_needs_what_is_here(tmp_path: Path, needs: str) -> None:
    assert damage(opened(tmp_path, {"tracekv.needs": needs.encode()})) == []


@pytest.mark.parametrize("version", [b"0", b"-1", b"1.0", b"abc", b"", b"\xff", b"1_0", "١".encode()])
def test_a_schema_version_that_is_none(tmp_path: Path, version: bytes) -> None:
    with pytest.raises(UnreadableError, match="no schema version"):
        opened(tmp_path, {"tracekv.schema": version})


@pytest.mark.parametrize("needs", [b"0.1", b"abc", __version__.encode()])
def test_the_hint_never_names_what_is_installed(tmp_path: Path, needs: bytes) -> None:
    with pytest.raises(UnreadableError, match="schema version 2") as caught:
        opened(tmp_path, {"tracekv.schema": b"2", "tracekv.needs": needs})
    assert caught.value.hint == "install a newer tracekv"


@pytest.mark.parametrize("column", ["requested", "old", "new"])
@pytest.mark.parametrize("state", [-128, -2, 5, 127])
def test_a_state_that_is_none_is_damage(tmp_path: Path, column: str, state: int) -> None:
    rows = [replace(row, **{column: state}) if row.seq == 2 else row for row in some(5)]
    trace = opened(tmp_path, {}, rows)
    assert damage(trace) == [("row group 0", "1 rows with a state outside -1 to 4")]
    assert [(loss.process, loss.n) for loss in trace.losses] == [("p", 1)]
    assert [row.seq for row in trace.events()] == [0, 1, 3, 4]
    assert len(trace.frame()) == 4


def test_half_a_surrogate_in_a_row_can_be_printed(tmp_path: Path) -> None:
    bad = "\\ud800"
    attrs = f'{{"host": "{bad}", "build": "{bad}", "role": "{bad}", "why": "{bad}", "{bad}": 1}}'
    ops = (Op.PROCESS_STARTED, Op.MANAGER_STARTED, Op.ROWS_LOST)
    write_dataset(
        [Event(seq=i, op=op, process="p", manager=0, attrs=attrs) for i, op in enumerate(ops)], tmp_path
    )
    trace = open_trace(tmp_path)
    assert trace.processes["p"].host == trace.managers["p", 0].role == trace.losses[0].why == "?"
    repr((trace.processes, trace.managers, trace.losses)).encode()


def test_numbers_that_no_column_holds_are_unknown(tmp_path: Path) -> None:
    rows = [
        Event(seq=1, op=Op.PROCESS_STARTED, process="p", attrs=json.dumps({"pid": 10**30})),
        Event(seq=2, op=Op.ROWS_LOST, process="p", attrs=json.dumps({"n": -5, "from_ns": 2**64})),
    ]
    write_dataset(rows, tmp_path)
    trace = open_trace(tmp_path)
    assert trace.processes["p"].pid is None and (trace.losses[0].n, trace.losses[0].from_ns) == (1, None)
