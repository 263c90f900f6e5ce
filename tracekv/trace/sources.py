"""The two kinds of files behind a trace, behind one interface.

Both are surveyed when they are made, and read again at each pass.  The promise: what a pass gives
was there at the survey, so that a live spool does not grow between two passes, and a file that
was damaged since is damage, not an exception.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tracekv.errors import UnreadableError
from tracekv.event import Event
from tracekv.spool import Damage, Loss, SegmentRead, missing_segments, read_segment, same
from tracekv.trace.describe import DESCRIBING
from tracekv.trace.parquet import Shard, rows, survey, table_of, tables


def batches(events: Iterable[Event], size: int = 1 << 16) -> Iterator[list[Event]]:
    """The events in lists of at most ``size``."""
    batch: list[Event] = []
    for event in events:
        batch.append(event)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def distinct(events: list[Event]) -> Iterator[Event]:
    """By seq, and each row once: a file that was copied into a trace twice does not double it."""
    events.sort(key=lambda event: event.seq)
    for _, group in groupby(events, key=lambda event: event.seq):
        yield from dict.fromkeys(group)


def _found(folder: Path, suffix: str, top: str | None = None) -> list[Path]:
    """Files below a folder by their suffix, hidden ones left out, symbolic links to folders not followed."""
    found = []
    for here, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if name[0] != "." and name != top)
        found += [Path(here) / name for name in names if name.endswith(suffix) and name[0] != "."]
    return sorted(found)


def parquet_files(folder: Path) -> list[Path]:
    """The files of events below a folder; tables of processes beside them are left out."""
    return _found(folder, ".parquet", "processes")


def spool_files(folder: Path, *, deep: bool) -> list[Path]:
    """The segments in a folder, or in those below it too."""
    if deep:
        return _found(folder, ".seg")
    return sorted(path for path in folder.iterdir() if path.name.endswith(".seg") and path.name[0] != ".")


class SpoolSource:
    """Segments, in one folder or in several."""

    kind = "spool"

    def __init__(self, files: list[Path], root: Path, *, alone: bool = False) -> None:
        self.describing: list[Event] = []
        self.losses: list[Loss] = []
        self.damage: list[Damage] = []
        self._segments: list[tuple[Path, SegmentRead]] = []
        for path in files:
            self._survey(path, str(path.relative_to(root)))
        if not self._segments:
            raise UnreadableError(f"{root}: no segment can be read", hint=str(self.damage[0]))
        heads = [head for _, head in self._segments]
        if not alone:
            self.damage += missing_segments(heads, *{path.parent for path in files})
        self.processes = tuple(sorted({head.process for head in heads}))
        self.describing.sort(key=lambda event: (event.process, event.seq))

    def _survey(self, path: Path, name: str) -> None:
        found = read_segment(path)
        if isinstance(found, Damage):
            self.damage.append(Damage(name, found.where, found.why))
        elif any(same(found, head) for _, head in self._segments):
            self.damage.append(Damage(name, "header", "the same segment a second time; not read"))
        else:
            self.describing += [event for event in found.events if event.op in DESCRIBING]
            self.losses += found.losses
            self.damage += [Damage(name, item.where, item.why) for item in found.damage]
            found.events.clear()
            self._segments.append((path, found))

    def rows(self, process: str) -> Iterator[Event]:
        events: list[Event] = []
        for path, head in self._segments:
            if head.process == process:
                found = read_segment(path, head.end)
                if isinstance(found, SegmentRead):
                    events += found.events
                else:
                    self.damage.append(found)
        return distinct(events)

    def tables(self, process: str) -> Iterator[pa.Table]:
        return map(table_of, batches(self.rows(process)))


class DatasetSource:
    """Parquet files: the rows of a process are in one of them, or spread over several."""

    kind = "dataset"

    def __init__(self, files: list[Path], root: Path) -> None:
        self.damage: list[Damage] = []
        self._shards: list[Shard] = []
        errors = []
        for path in files:
            name = str(path.relative_to(root))
            try:
                self._shards.append(survey(path, name))
            except UnreadableError as error:
                errors.append(error)
                self.damage.append(Damage(name, "file", error.message.removeprefix(f"{name}: ")))
        if not self._shards:
            raise errors[0]
        self.damage = list(dict.fromkeys(self.damage + [d for shard in self._shards for d in shard.damage]))
        self.losses = list(dict.fromkeys(loss for shard in self._shards for loss in shard.losses))
        self.processes = tuple(sorted(set().union(*(shard.processes for shard in self._shards))))
        told = dict.fromkeys(event for shard in self._shards for event in shard.describing)
        self.describing = sorted(told, key=lambda event: (event.process, event.seq))

    def rows(self, process: str) -> Iterator[Event]:
        for table in self._ordered(process):
            yield from rows(table)

    def tables(self, process: str) -> Iterator[pa.Table]:
        return self._ordered(process)

    def _ordered(self, process: str) -> Iterator[pa.Table]:
        """Row groups as they lie where they lie well; otherwise all rows of the process, put in order."""
        shards = [shard for shard in self._shards if process in shard.processes]
        if len(shards) == 1 and shards[0].ordered:
            yield from tables(shards[0])
            return
        parts = [
            table.filter(pc.equal(table.column("process"), process))
            for shard in shards
            for table in tables(shard)
        ]
        yield table_of(list(distinct(list(rows(pa.concat_tables(parts))))))
