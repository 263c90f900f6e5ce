"""Reading one Parquet file of a dataset, without trusting it.

A file is surveyed once: its footer, then every page against its checksum.  The promise: after the
survey the readable row groups are known, everything else is named as damage, and reading them
again holds one row group in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracekv.errors import UnreadableError
from tracekv.event import COLUMNS, Event
from tracekv.spool import Damage, Loss
from tracekv.trace.describe import DESCRIBING
from tracekv.trace.schema import REQUIRED, SCHEMA, VERSION, canonical, check_columns, file_version

BATCH: int = 1 << 16


@dataclass(frozen=True, slots=True)
class Shard:
    """One readable file: its good row groups, whose rows it has, and whether they are in order."""

    path: Path
    name: str
    version: int
    groups: tuple[int, ...]
    processes: frozenset[str]
    ordered: bool
    describing: tuple[Event, ...] = field(repr=False)
    losses: tuple[Loss, ...]
    damage: tuple[Damage, ...]


def survey(path: Path, name: str) -> Shard:
    """Reads a file once, to learn what of it can be read.

    Raises
    ------
    UnreadableError
        where nothing of it can: foreign, truncated, too new; also where it has row groups, and
        none of them is whole.
    """
    with _open(path, name) as file:
        metadata = file.schema_arrow.metadata or {}
        metadata = {**metadata, **(file.metadata.metadata or {})}
        try:
            version = file_version(metadata)
            check_columns(file.schema_arrow, ours=b"tracekv.writer" in metadata and version == VERSION)
        except UnreadableError as error:
            raise UnreadableError(f"{name}: {error.message}", hint=error.hint) from None
        looked = _Looked()
        for group in range(file.num_row_groups):
            looked.at(file, group, version, name)
    if looked.bad and not looked.good:
        raise UnreadableError(f"{name}: no row group can be read", hint=str(looked.damage[0]))
    losses, damage = _kept(metadata)
    return Shard(
        path,
        name,
        version,
        tuple(looked.good),
        frozenset(looked.processes),
        looked.ordered,
        tuple(looked.describing),
        tuple(losses),
        (*damage, *looked.damage),
    )


def _open(path: Path, name: str) -> Any:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UnreadableError(
            f"{name}: cannot be read as Parquet: {reason}",
            hint="a file that was cut while it was written or copied holds nothing: copy it again, "
            "or ingest its spool again",
        ) from None


class _Looked:
    """What the survey of one file has found so far."""

    def __init__(self) -> None:
        self.good: list[int] = []
        self.bad = 0
        self.processes: set[str] = set()
        self.ordered = True
        self.describing: list[Event] = []
        self.damage: list[Damage] = []
        self._last: tuple[str, int] | None = None

    def at(self, file: Any, group: int, version: int, name: str) -> None:
        where = f"row group {group}"
        try:
            table = canonical(file.read_row_group(group, columns=_wanted(file)), version)
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            self.bad += 1
            self.damage.append(Damage(name, where, str(error).splitlines()[0][:200]))
            return
        self.good.append(group)
        whole = _whole(table)
        if whole.num_rows < table.num_rows:
            self.damage.append(
                Damage(name, where, f"{table.num_rows - whole.num_rows} rows without {', '.join(REQUIRED)}")
            )
        self._order(whole)
        mask = pc.is_in(whole.column("op"), value_set=pa.array(DESCRIBING))
        self.describing += rows(whole.filter(mask))

    def _order(self, table: pa.Table) -> None:
        """Whether the rows are of one process, by seq, none twice: as ``write_dataset`` lays them."""
        names = pc.unique(table.column("process")).to_pylist()
        self.processes.update(names)
        if len(self.processes) > 1:
            self.ordered = False
        if not self.ordered or not table.num_rows:
            return
        seqs = table.column("seq").to_numpy()
        first = (names[0], int(seqs[0]))
        rising = bool((seqs[1:] > seqs[:-1]).all())
        self.ordered = rising and (self._last is None or self._last < first)
        self._last = (names[0], int(seqs[-1]))


def _wanted(file: Any) -> list[str]:
    return [name for name in file.schema_arrow.names if name in COLUMNS]


def _whole(table: pa.Table) -> pa.Table:
    """Only the rows that have the required columns."""
    if not any(table.column(name).null_count for name in REQUIRED):
        return table
    mask = pc.is_valid(table.column(REQUIRED[0]))
    for name in REQUIRED[1:]:
        mask = pc.and_(mask, pc.is_valid(table.column(name)))
    return table.filter(mask)


def tables(shard: Shard) -> Iterator[pa.Table]:
    """The readable row groups of a file, each in exactly the dataset's schema."""
    with _open(shard.path, shard.name) as file:
        for group in shard.groups:
            yield _whole(canonical(file.read_row_group(group, columns=_wanted(file)), shard.version))


def rows(table: pa.Table) -> Iterator[Event]:
    """The rows of a table in the dataset's schema as events, a batch at a time."""
    for batch in table.to_batches(max_chunksize=BATCH):
        # Most columns of most rows are null: what is null throughout is left to Event's defaults.
        names = [name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows]
        lists = [batch.column(name).to_pylist() for name in names]
        if "source" in names and batch.column("source").null_count:
            at = names.index("source")
            lists[at] = [value or "unknown" for value in lists[at]]
        for values in zip(*lists, strict=True):
            yield Event(**dict(zip(names, values, strict=True)))


def table_of(events: Iterable[Event]) -> pa.Table:
    """Events as a table in the dataset's schema.

    Raises
    ------
    ValueError
        (as pyarrow's ArrowInvalid, or OverflowError) where a value does not fit its column.
    """
    listed = events if isinstance(events, list) else list(events)
    columns = [
        pa.array([getattr(event, name) for event in listed], SCHEMA.field(name).type) for name in COLUMNS
    ]
    return pa.table(columns, schema=SCHEMA)


def _kept(metadata: dict[bytes, bytes]) -> tuple[list[Loss], list[Damage]]:
    """What the ingest that wrote this file could not read, from the file's metadata."""
    damage = [
        Damage(str(item.get("file")), str(item.get("where")), str(item.get("why")))
        for item in _listed(metadata, b"tracekv.damage")
    ]
    losses = [
        Loss(
            str(item.get("process")),
            item.get("thread") if isinstance(item.get("thread"), str) else None,
            item["n"] if isinstance(item.get("n"), int) else 1,
            item["from_ns"] if isinstance(item.get("from_ns"), int) else None,
            item["to_ns"] if isinstance(item.get("to_ns"), int) else None,
            str(item.get("why")),
        )
        for item in _listed(metadata, b"tracekv.losses")
    ]
    return losses, damage


def _listed(metadata: dict[bytes, bytes], key: bytes) -> list[dict[str, Any]]:
    try:
        found = json.loads(metadata.get(key, b"[]"))
    except (ValueError, RecursionError):
        return [{"file": "metadata", "where": key.decode(), "why": "is not JSON"}]
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
