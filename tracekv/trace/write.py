"""Writing a dataset: one file for each process run, beside which others can be laid.

``TRACE/events/date=YYYY-MM-DD/host=H/<process>.parquet`` and ``TRACE/processes/<process>.parquet``:
traces merge by copying their folders together.  The promise: a file appears whole or not at all,
nothing is ever written outside the folder, and writing the same rows again changes nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracekv import __version__
from tracekv.errors import UnreadableError, UsageError
from tracekv.event import Event
from tracekv.spool import Damage, Loss, safe_name, shown
from tracekv.trace.describe import DESCRIBING, Description, Process, describe
from tracekv.trace.parquet import survey, tables
from tracekv.trace.rows import rows, table_of
from tracekv.trace.schema import DELTA, DICTIONARY, NEEDS, SCHEMA, VERSION

EVENTS: Final = "events"
PROCESSES: Final = "processes"
_BATCH: Final = 1 << 16
_GROUP: Final = 1 << 18


def write_dataset(
    events: Iterable[Event],
    folder: Path,
    *,
    damage: Sequence[Damage] = (),
    losses: Sequence[Loss] = (),
    processes: Iterable[str] = (),
) -> list[Path]:
    """Writes events, of any processes in any order, into a dataset folder, new or old.

    A process that is there already is merged: rows that are in both are written once.

    Parameters
    ----------
    damage, losses
        What could not be read of the source.  Kept in the files' metadata, so that every later
        reader knows that the trace is partial.
    processes
        Process uuids that get a file even without a row.

    Returns
    -------
    list[Path]
        the files of events, sorted.

    Raises
    ------
    UsageError
        where the folder is there and is not a dataset, or cannot be written.
    ValueError
        where a value does not fit its column.
    """
    check_target(folder)
    pending: dict[str, list[Event]] = {process: [] for process in processes}
    packed: dict[str, list[pa.Table]] = {}
    for event in events:
        waiting = pending.setdefault(event.process, [])
        waiting.append(event)
        if len(waiting) >= _BATCH:
            packed.setdefault(event.process, []).append(table_of(waiting))
            waiting.clear()
    paths = []
    for process in sorted(pending):
        parts = [*packed.pop(process, []), table_of(pending[process])]
        mine = [loss for loss in losses if loss.process in (process, "")]
        paths.append(write_process(process, pa.concat_tables(parts), folder, damage=damage, losses=mine))
    return sorted(paths)


def check_target(folder: Path) -> None:
    """Refuses a folder that holds anything but a dataset.

    Raises
    ------
    UsageError
        with the entry that is in the way.
    """
    try:
        there = os.listdir(folder)
    except FileNotFoundError:
        if not folder.is_symlink():
            return
        raise UsageError(f"{shown(folder)}: a symbolic link to nothing") from None
    except NotADirectoryError:
        raise UsageError(
            f"{shown(folder)}: is a file, not a folder", hint="name a new folder for the trace"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown(folder)}: {getattr(error, 'strerror', None) or error}") from None
    if foreign := sorted({*there} - {EVENTS, PROCESSES}):
        raise UsageError(
            f"{shown(folder)}: holds {shown(foreign[0])}, so it is no dataset of ours; nothing was written",
            hint="name a new folder, or one that `tracekv ingest` made",
        )


def write_process(
    process: str,
    table: pa.Table,
    folder: Path,
    *,
    damage: Sequence[Damage] = (),
    losses: Sequence[Loss] = (),
) -> Path:
    """Writes the rows of one process, merged with those that the dataset has of it."""
    name = f"{safe_name(process)}.parquet"
    before = sorted((folder / EVENTS).glob(f"date=*/host=*/{name}"))
    table, damage, losses = _merged(table, before, folder, damage, losses)
    table = table.take(pc.sort_indices(table, [("seq", "ascending")]))
    mask = pc.is_in(table.column("op"), value_set=pa.array(DESCRIBING))
    told = describe(rows(table.filter(mask)), [process])
    known = told.processes[process]
    path = (
        folder / EVENTS / f"date={_date(known, table)}" / f"host={safe_name(known.host or 'unknown')}" / name
    )
    metadata = _metadata(known, table, damage, losses)
    _write(table.replace_schema_metadata(metadata), path)
    for old in before:
        if old != path:  # the first ingest had not seen the process start
            old.unlink()
    _write(_process_table(told, process, table, metadata), folder / PROCESSES / name)
    return path


def _merged(
    table: pa.Table,
    before: list[Path],
    folder: Path,
    damage: Sequence[Damage],
    losses: Sequence[Loss],
) -> tuple[pa.Table, Sequence[Damage], Sequence[Loss]]:
    """The union with what is there.  Its damage is forgotten only where the new rows include all of its."""
    for path in before:
        try:
            shard = survey(path, str(path.relative_to(folder)))
        except UnreadableError:
            continue  # what cannot be read cannot be kept; the new rows take its place
        old = pa.concat_tables([pa.table(table.slice(0, 0)), *tables(shard)])
        if old.equals(table.take(pc.sort_indices(table, [("seq", "ascending")]))):
            continue  # the same again
        mine = list(rows(table))
        known = set(mine)
        lost = {(event.op, event.tid, event.seq) for event in mine if event.op == "rows.lost"}
        extra = [
            event
            for event in rows(old)
            if event not in known and (event.op, event.tid, event.seq) not in lost
        ]
        if extra:
            table = pa.concat_tables([table, table_of(extra)])
            damage = list(dict.fromkeys([*damage, *shard.damage]))
            losses = list(dict.fromkeys([*losses, *shard.losses]))
    return table, damage, losses


def _date(process: Process, table: pa.Table) -> str:
    """The day, in UTC, on which the process started, or its first row was written."""
    wall = process.started_ns
    if wall is None:
        wall = pc.min(table.column("wall_ns")).as_py()
    try:
        return (
            datetime.fromtimestamp((wall or 0) // 10**9, timezone.utc).date().isoformat()
            if wall
            else "unknown"
        )
    except (ValueError, OverflowError, OSError):
        return "unknown"


def _metadata(
    process: Process, table: pa.Table, damage: Sequence[Damage], losses: Sequence[Loss]
) -> dict[str, str]:
    ops = Counter(table.column("op").to_pylist())
    coverage = {"seams": dict(sorted(process.seams.items())), "ops": dict(sorted(ops.items()))}
    said: dict[str, str] = {
        "tracekv.schema": str(VERSION),
        "tracekv.needs": NEEDS,
        "tracekv.writer": __version__,
        "tracekv.process": process.uuid,
        "tracekv.engine": process.engine or "",
        "tracekv.engine_version": process.version or "",
        "tracekv.build": process.build or "",
        "tracekv.detail": process.detail or "",
        "tracekv.coverage": json.dumps(coverage),
    }
    if damage:
        said["tracekv.damage"] = json.dumps([asdict(item) for item in damage])
    if losses:
        said["tracekv.losses"] = json.dumps([asdict(item) for item in losses])
    return said


def _process_table(told: Description, process: str, table: pa.Table, metadata: dict[str, str]) -> pa.Table:
    """One row that says what the file of events is; for people and other tools, the reader does without."""
    known = told.processes[process]
    managers = [asdict(m) for (owner, _), m in sorted(told.managers.items()) if owner == process]
    bounds = pc.min_max(table.column("wall_ns")).as_py()
    row: dict[str, Any] = {
        "process": known.uuid,
        "host": known.host,
        "pid": known.pid,
        "engine": known.engine,
        "version": known.version,
        "build": known.build,
        "detail": known.detail,
        "started_ns": known.started_ns,
        "ended": known.ended,
        "rows": table.num_rows,
        "first_wall_ns": bounds["min"],
        "last_wall_ns": bounds["max"],
        "rows_lost": min(sum(loss.n for loss in told.losses), 2**63 - 1),
        "seams": json.dumps(dict(known.seams)),
        "managers": json.dumps(managers, default=str),
    }
    numbers = {"pid", "started_ns", "rows", "first_wall_ns", "last_wall_ns", "rows_lost"}
    schema = pa.schema(
        [
            (name, pa.int64() if name in numbers else pa.bool_() if name == "ended" else pa.string())
            for name in row
        ],
        metadata=metadata,
    )
    return pa.Table.from_pylist([row], schema=schema)


def _write(table: pa.Table, path: Path) -> None:
    """Whole or not at all: under a hidden name first, then renamed.

    Raises
    ------
    UsageError
        where the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, hidden = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        os.close(fd)
        try:
            events = table.schema.names == SCHEMA.names
            pq.write_table(
                table,
                hidden,
                compression="zstd",
                row_group_size=_GROUP,
                write_page_checksum=True,
                use_dictionary=list(DICTIONARY) if events else True,
                column_encoding={name: "DELTA_BINARY_PACKED" for name in DELTA} if events else None,
            )
            os.chmod(hidden, 0o644)
            os.replace(hidden, path)
        except BaseException:
            os.unlink(hidden)
            raise
    except OSError as error:
        raise UsageError(f"{shown(path)}: cannot be written: {error.strerror or error}") from None
