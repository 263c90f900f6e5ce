"""Reading one Parquet file of a dataset, without trusting it.

A file is surveyed once: its footer, then every page against its checksum.  The promise: after the
survey the readable row groups are known, everything else is named as damage, and reading them
again holds one row group in memory at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracekv.errors import UnreadableError
from tracekv.event import COLUMNS, Event, Op, State
from tracekv.spool import STATE_OUTSIDE, Damage, Loss, open_regular
from tracekv.trace.describe import DESCRIBING
from tracekv.trace.metadata import check_coverage, check_needs, damage_said, losses_said
from tracekv.trace.pieces import Numbered
from tracekv.trace.schema import REQUIRED, SCHEMA, VERSION, canonical, check_columns, file_version

BATCH: Final = 1 << 13
_STATES: Final = ("requested", "old", "new")


@dataclass(frozen=True, slots=True)
class Shard:
    """One readable file: its good row groups, and whose rows are in them."""

    path: Path
    name: str
    version: int
    groups: tuple[int, ...]
    processes: frozenset[str]
    pieces: tuple[Numbered, ...] = field(repr=False)
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
            looked.at(file, group, version, path, name)
    if looked.bad and not looked.good:
        raise UnreadableError(f"{name}: no row group can be read", hint=str(looked.damage[0]))
    said, wrong = damage_said(metadata, name)
    lost, unsaid = losses_said(metadata, name)
    damage = [*said, *wrong, *unsaid, *check_needs(metadata, name), *looked.damage]
    if not looked.damage:
        damage += check_coverage(metadata, looked.ops, name)
    return Shard(
        path,
        name,
        version,
        tuple(looked.good),
        frozenset(piece.process for piece, _ in looked.pieces),
        tuple(looked.pieces),
        tuple(looked.describing),
        (*lost, *looked.losses),
        tuple(damage),
    )


def is_process_table(path: Path) -> bool:
    """Whether a file is the table of a process that lies beside its events: derived, nobody reads it."""
    if path.parent.name != "processes":
        return False
    try:
        with _open(path, path.name) as file:
            return not {"seq", "op"} & set(file.schema_arrow.names)
    except UnreadableError:
        return False


@contextmanager
def _open(path: Path, name: str) -> Iterator[Any]:
    try:
        source = open_regular(path)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    with source, _parquet(source, name) as file:
        yield file


def _parquet(source: Any, name: str) -> Any:
    try:
        return pq.ParquetFile(source, page_checksum_verification=True)
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
        self.pieces: list[Numbered] = []
        self.ops: Counter[str] = Counter()
        self.describing: list[Event] = []
        self.losses: list[Loss] = []
        self.damage: list[Damage] = []

    def at(self, file: Any, group: int, version: int, path: Path, name: str) -> None:
        where = f"row group {group}"
        try:
            table = canonical(file.read_row_group(group, columns=_wanted(file)), version)
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            self.bad += 1
            self.damage.append(Damage(name, where, str(error).splitlines()[0][:200]))
            return
        self.good.append(group)
        whole = table.filter(_whole(table))
        if short := table.num_rows - whole.num_rows:
            self.damage.append(Damage(name, where, f"{short} rows without {', '.join(REQUIRED)}"))
        good = whole.filter(_sound(whole))
        if wrong := whole.num_rows - good.num_rows:
            self.damage.append(Damage(name, where, f"{wrong} rows {STATE_OUTSIDE}"))
            strange = _counts(whole.filter(pc.invert(_sound(whole))).column("process"))
            self.losses += [Loss(who, None, n, None, None, STATE_OUTSIDE) for who, n in strange.items()]
        self.ops.update(_counts(good.column("op")))
        mask = pc.is_in(good.column("op"), value_set=pa.array(DESCRIBING))
        self.describing += rows(good.filter(mask))
        self.pieces += _pieces(good, path, name, version, group)


def _wanted(file: Any) -> list[str]:
    return [name for name in file.schema_arrow.names if name in COLUMNS]


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {item["values"]: item["counts"] for item in pc.value_counts(column).to_pylist()}


def _whole(table: pa.Table) -> pa.Array:
    """Which rows have the required columns."""
    return _all(pc.is_valid(table.column(name)) for name in REQUIRED)


def _sound(table: pa.Table) -> pa.Array:
    """Which rows have only states that there are."""
    known = pa.array([None, *State], pa.int8())
    return _all(pc.is_in(table.column(name), value_set=known) for name in _STATES)


def _all(masks: Iterable[pa.Array]) -> pa.Array:
    return reduce(pc.and_, masks)


@dataclass(frozen=True, slots=True)
class GroupPiece:
    """The rows of one process in a row group of a file, which others may share."""

    path: Path
    name: str
    version: int
    group: int
    process: str
    first: int
    last: int
    rising: bool
    whole: bool

    def table(self) -> pa.Table:
        """Its rows by seq, in the dataset's schema.

        Raises
        ------
        UnreadableError, ArrowException
            where it cannot be read any more.
        """
        table = _group(self.path, self.name, self.version, self.group)
        if not self.whole:
            table = table.filter(pc.equal(table.column("process"), self.process))
        return table if self.rising else table.take(pc.sort_indices(table, [("seq", "ascending")]))

    def rows(self) -> Iterator[Event]:
        """The same as events."""
        return rows(self.table())


def _pieces(table: pa.Table, path: Path, name: str, version: int, group: int) -> list[Numbered]:
    """What each process has in a row group."""
    codes = table.column("process").combine_chunks().dictionary_encode()
    owners, whose = codes.dictionary.to_pylist(), codes.indices.to_numpy()
    seqs = table.column("seq").to_numpy()
    told = pc.not_equal(table.column("op"), Op.ROWS_LOST).to_numpy()
    order = np.argsort(whose, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(whose[order])) + 1) if len(order) else []
    found: list[Numbered] = []
    for part in parts:
        mine = seqs[part]
        rising = bool((mine[1:] > mine[:-1]).all())
        bounds = int(mine.min()), int(mine.max())
        owner = owners[whose[part[0]]]
        piece = GroupPiece(path, name, version, group, owner, *bounds, rising, len(owners) == 1)
        found.append((piece, mine[told[part]]))
    return found


def _group(path: Path, name: str, version: int, group: int) -> pa.Table:
    """The readable rows of a row group, in exactly the dataset's schema."""
    with _open(path, name) as file:
        table = canonical(file.read_row_group(group, columns=_wanted(file)), version)
    whole = table.filter(_whole(table))
    return whole.filter(_sound(whole))


def tables(shard: Shard) -> Iterator[pa.Table]:
    """The readable rows of a file, a row group at a time."""
    return (_group(shard.path, shard.name, shard.version, group) for group in shard.groups)


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
