"""The files behind a trace, spools and Parquet in any mixture, behind one interface.

They are surveyed when the source is made, and read again at each pass.  The promise: what a pass
gives was there at the survey, and a file that was damaged since is damage, not an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from tracekv.errors import UnreadableError
from tracekv.event import Event
from tracekv.spool import Damage, Loss, shown
from tracekv.trace.folder import Found
from tracekv.trace.parquet import Shard, is_process_table, survey
from tracekv.trace.pieces import Piece, apart, conflicts, history
from tracekv.trace.rows import table_of
from tracekv.trace.segments import survey_segments

_T = TypeVar("_T")


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


class Source:
    """Where a trace's rows come from.

    Raises
    ------
    UnreadableError
        where none of the files can be read.
    """

    def __init__(self, found: Found, root: Path, *, alone: bool = False) -> None:
        spools = survey_segments(found.segments, root, alone=alone)
        shards, refused = _survey_all(found.parquet, root)
        self.damage: list[Damage] = [*found.damage, *spools.damage, *(damage for damage, _ in refused)]
        self.damage += dict.fromkeys(damage for shard in shards for damage in shard.damage)
        if not shards and not spools.heads:
            raise _nothing(root, found, self.damage, [error for _, error in refused])
        self.kind = "dataset" if not spools.heads else "mixed" if shards else "spool"
        self.losses: list[Loss] = list(
            dict.fromkeys(chain(spools.losses, *(shard.losses for shard in shards)))
        )
        names = {head.process for head in spools.heads}.union(*(shard.processes for shard in shards))
        self.processes = tuple(sorted(names))
        told = dict.fromkeys(chain(spools.describing, *(shard.describing for shard in shards)))
        self.describing = sorted(told, key=lambda event: (event.process, event.seq))
        numbered = [*spools.pieces, *(each for shard in shards for each in shard.pieces)]
        self.damage += conflicts(numbered)
        self._pieces: dict[str, list[Piece]] = {process: [] for process in self.processes}
        for piece, _ in sorted(numbered, key=lambda each: each[0].first):
            self._pieces[piece.process].append(piece)

    def rows(self, process: str) -> Iterator[Event]:
        """The rows of one process by seq; none of them twice."""
        return self._safely(history, self._pieces[process])

    def tables(self, process: str) -> Iterator[pa.Table]:
        """The same rows as tables in the dataset's schema."""
        pieces = self._pieces[process]
        if apart(pieces):
            return self._safely(lambda pieces: (piece.table() for piece in pieces), pieces)
        return map(table_of, batches(self.rows(process)))

    def _safely(self, read: Callable[[list[Piece]], Iterator[_T]], pieces: list[Piece]) -> Iterator[_T]:
        try:
            yield from read(pieces)
        except (UnreadableError, pa.ArrowException, OSError) as error:
            self.damage.append(Damage(pieces[0].name, "file", f"changed while it was read: {error}"))


def _survey_all(files: list[Path], root: Path) -> tuple[list[Shard], list[tuple[Damage, UnreadableError]]]:
    shards, refused = [], []
    for path in files:
        name = shown(path.relative_to(root))
        if is_process_table(path):
            continue
        try:
            shards.append(survey(path, name))
        except UnreadableError as error:
            refused.append((Damage(name, "file", error.message.removeprefix(f"{name}: ")), error))
    return shards, refused


def _nothing(
    root: Path, found: Found, damage: list[Damage], errors: list[UnreadableError]
) -> UnreadableError:
    if errors:
        return errors[0]
    what = "no segment can be read" if found.segments else "nothing in it is a trace"
    expected = "expected segments (*.seg) of a spool, or *.parquet files that `tracekv ingest` wrote"
    return UnreadableError(f"{shown(root)}: {what}", hint=str(damage[0]) if damage else expected)
