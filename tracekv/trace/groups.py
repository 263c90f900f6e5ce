"""Row groups of Parquet files, a batch at a time.

The promise: what the survey of a group let through is exactly what a later pass gives, and neither
holds more than one batch of it, except where its rows have to be put in order.
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
from tracekv.spool import STATE_OUTSIDE, Damage, Loss, open_regular, shown
from tracekv.trace.describe import DESCRIBING
from tracekv.trace.pieces import Numbered
from tracekv.trace.rows import BATCH, rows
from tracekv.trace.schema import REQUIRED, SCHEMA, canonical

_STATES: Final = ("requested", "old", "new")


@contextmanager
def open_parquet(path: Path, name: str) -> Iterator[Any]:
    """A Parquet file.

    Raises
    ------
    UnreadableError
        where it is none, or no regular file.
    """
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
        raise UnreadableError(
            f"{name}: cannot be read as Parquet: {reason(error)}",
            hint="a file that was cut while it was written or copied holds nothing: copy it again, "
            "or ingest its spool again",
        ) from None


def reason(error: Exception) -> str:
    """What a library said, in one line."""
    return shown((str(error).splitlines() or [type(error).__name__])[0])


@dataclass(frozen=True, slots=True)
class Group:
    """One row group of a file."""

    path: Path
    name: str
    version: int
    number: int

    def batches(self) -> Iterator[pa.Table]:
        """Its sound rows, in the dataset's schema.

        Raises
        ------
        UnreadableError, ArrowException, OSError
            where it cannot be read any more.
        """
        with open_parquet(self.path, self.name) as file:
            for table in self.raw(file):
                whole = _kept(table, _whole(table))
                yield _kept(whole, _sound(whole))

    def raw(self, file: Any) -> Iterator[pa.Table]:
        """All its rows, of the file that is open already."""
        names = [name for name in file.schema_arrow.names if name in COLUMNS]
        for batch in file.iter_batches(BATCH, row_groups=[self.number], columns=names):
            yield canonical(pa.Table.from_batches([batch]), self.version)


@dataclass(frozen=True, slots=True)
class GroupPiece:
    """The rows of one process in a row group, which others may share (``whole``: none does)."""

    group: Group
    process: str
    first: int
    last: int
    rising: bool
    whole: bool

    @property
    def name(self) -> str:
        """The file's."""
        return self.group.name

    def table(self) -> pa.Table:
        """Its rows by seq, in the dataset's schema."""
        table = pa.concat_tables([SCHEMA.empty_table(), *self._mine()])
        return table if self.rising else table.take(pc.sort_indices(table, [("seq", "ascending")]))

    def rows(self) -> Iterator[Event]:
        """The same as events."""
        for table in self._mine() if self.rising else [self.table()]:
            yield from rows(table)

    def _mine(self) -> Iterator[pa.Table]:
        for table in self.group.batches():
            yield table if self.whole else table.filter(pc.equal(table.column("process"), self.process))


@dataclass(slots=True)
class GroupSurvey:
    """What one row group holds, batch by batch."""

    ops: Counter[str] = field(default_factory=Counter)
    describing: list[Event] = field(default_factory=list)
    short: int = 0
    strange: Counter[str] = field(default_factory=Counter)
    _owners: dict[str, int] = field(default_factory=dict)
    _whose: list[Any] = field(default_factory=list)
    _seqs: list[Any] = field(default_factory=list)
    _told: list[Any] = field(default_factory=list)

    def take(self, table: pa.Table) -> None:
        """One batch.

        Raises
        ------
        ArrowException
            where its bytes make no sense.
        """
        table.validate(full=True)
        whole = _kept(table, _whole(table))
        self.short += table.num_rows - whole.num_rows
        sound = _sound(whole)
        self.strange.update(_counts(whole.filter(pc.invert(sound)).column("process")))
        good = _kept(whole, sound)
        self.ops.update(_counts(good.column("op")))
        self.describing += rows(good.filter(pc.is_in(good.column("op"), value_set=pa.array(DESCRIBING))))
        codes = good.column("process").combine_chunks().dictionary_encode()
        known = [self._owners.setdefault(name, len(self._owners)) for name in codes.dictionary.to_pylist()]
        self._whose.append(np.array(known, np.int64)[codes.indices.to_numpy()])
        self._seqs.append(good.column("seq").to_numpy())
        self._told.append(pc.not_equal(good.column("op"), Op.ROWS_LOST).to_numpy())

    def pieces(self, group: Group) -> list[Numbered]:
        """What each process has in the group."""
        if not self._owners:
            return []
        whose, seqs, told = map(np.concatenate, (self._whose, self._seqs, self._told))
        order = np.argsort(whose, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(whose[order])) + 1)
        found: list[Numbered] = []
        for process, part in zip(self._owners, parts, strict=True):
            mine = seqs[part]
            rising = bool((mine[1:] > mine[:-1]).all())
            piece = GroupPiece(group, process, int(mine.min()), int(mine.max()), rising, len(parts) == 1)
            found.append((piece, mine[told[part]]))
        return found

    def damage(self, group: Group) -> list[Damage]:
        """Its rows that were left out."""
        where, strange = f"row group {group.number}", self.strange.total()
        found = [(self.short, f"without {', '.join(REQUIRED)}"), (strange, STATE_OUTSIDE)]
        return [Damage(group.name, where, f"{n} rows {why}") for n, why in found if n]

    def losses(self) -> list[Loss]:
        """The same, where it is known whose they were."""
        return [Loss(process, None, n, None, None, STATE_OUTSIDE) for process, n in self.strange.items()]


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {item["values"]: item["counts"] for item in pc.value_counts(column).to_pylist()}


def _whole(table: pa.Table) -> pa.ChunkedArray:
    """Which rows have the required columns."""
    return _all(pc.is_valid(table.column(name)) for name in REQUIRED)


def _sound(table: pa.Table) -> pa.ChunkedArray:
    """Which rows have only states that there are."""
    known = pa.array([None, *State], pa.int8())
    return _all(pc.is_in(table.column(name), value_set=known) for name in _STATES)


def _all(masks: Iterable[pa.ChunkedArray]) -> pa.ChunkedArray:
    return reduce(pc.and_, masks)


def _kept(table: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    return table if pc.all(mask, min_count=0).as_py() else table.filter(mask)
