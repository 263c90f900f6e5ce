"""A trace, whatever it lies in: a live spool, a dataset, or one Parquet file.

The promise: :func:`open_trace` gives the same rows in the same order for a spool and for the
dataset that was ingested from it, and ``partial`` is true whenever a row may be missing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracekv.errors import UnreadableError, UsageError
from tracekv.event import Event
from tracekv.spool import Damage, Loss, shown
from tracekv.trace.describe import Manager, Process, describe

if TYPE_CHECKING:
    import pandas as pd

    from tracekv.trace.sources import Source

__all__ = ["Trace", "open_trace", "write_dataset"]


class Trace:
    """The rows of some processes, and what is known to be missing from them.

    ``losses`` are rows that the recorder could not keep or the reader not read, ``damage`` is
    bytes that made no sense; either makes the trace ``partial``.
    """

    def __init__(self, path: Path, source: Source) -> None:
        self.path = path
        self.kind = source.kind
        self._source = source
        told = describe(source.describing, source.processes)
        self.processes: dict[str, Process] = dict(sorted(told.processes.items()))
        self.managers: dict[tuple[str, int], Manager] = dict(sorted(told.managers.items()))
        self.found_losses: list[Loss] = source.losses  # no row says so: a reader noticed
        self.losses: list[Loss] = told.losses + source.losses
        self.damage: list[Damage] = source.damage

    @property
    def partial(self) -> bool:
        """Whether rows are known to be missing: no analysis of it may say clean."""
        return bool(self.losses or self.damage)

    def events(self) -> Iterator[Event]:
        """All rows in (process, seq) order; a new pass at each call, over the same rows.

        Memory: a batch of a dataset as :func:`write_dataset` lays it down, a segment for each lane
        of a spool; more only where files of a process overlap.
        """
        for process in self._source.processes:
            yield from self._source.rows(process)

    def rows(self, process: str) -> Iterator[Event]:
        """The rows of one process, by seq; none for a process that is not there."""
        return self._source.rows(process) if process in self._source.processes else iter(())

    def frame(self) -> pd.DataFrame:
        """All rows as a DataFrame of nullable columns; ``room`` is UInt64 and never a float."""
        import pandas as pd
        import pyarrow as pa

        from tracekv.trace.schema import SCHEMA

        kinds = {
            pa.uint64(): pd.UInt64Dtype(),
            pa.int64(): pd.Int64Dtype(),
            pa.int32(): pd.Int32Dtype(),
            pa.int16(): pd.Int16Dtype(),
            pa.int8(): pd.Int8Dtype(),
            pa.bool_(): pd.BooleanDtype(),
            pa.string(): pd.StringDtype(),
        }
        parts = [SCHEMA.empty_table()]
        parts += [table for process in self._source.processes for table in self._source.tables(process)]
        frame: pd.DataFrame = pa.concat_tables(parts).to_pandas(types_mapper=kinds.get)
        return frame

    def __repr__(self) -> str:
        word = ", partial" if self.partial else ""
        return f"<Trace {self.path} ({self.kind}): {len(self.processes)} processes{word}>"


def open_trace(path: str | Path) -> Trace:
    """Opens one file, or a folder: everything in it and below it that is a spool or a dataset, together.

    Every file is read through once, so that :attr:`Trace.damage` is complete from the start.  ``kind``
    is ``spool``, ``dataset``, or ``mixed``.

    Raises
    ------
    UsageError
        where there is no such path.
    UnreadableError
        where nothing in it can be read: empty, foreign, cut, too new, or neither file nor folder.
    """
    from tracekv.trace.folder import Found, find
    from tracekv.trace.sources import Source

    mode = _mode(path)
    path = Path(path)
    if stat.S_ISDIR(mode):
        return Trace(path, Source(find(path), path))
    if not stat.S_ISREG(mode):
        raise UnreadableError(f"{shown(path)}: neither a file nor a folder", hint=_NAME)
    file = path.resolve()  # a link that was named is meant
    found = Found([file]) if file.suffix.lower() == ".seg" else Found([], [file])
    return Trace(path, Source(found, file.parent, alone=True))


_NAME: Final = "name a spool folder, a trace folder or a .parquet file"


def _mode(path: str | Path) -> int:
    """What there is at a path; ``Path("")`` would be the folder in which we happen to be."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        raise UsageError(f"{shown(path) or 'an empty path'}: no such file or folder", hint=_NAME) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown(path)}: {why}", hint=_NAME) from None


def write_dataset(
    events: Iterable[Event],
    folder: str | Path,
    *,
    damage: Sequence[Damage] = (),
    losses: Sequence[Loss] = (),
    processes: Iterable[str] = (),
) -> list[Path]:
    """Writes events into a dataset folder; see :func:`tracekv.trace.write.write_dataset`."""
    from tracekv.trace import write

    return write.write_dataset(events, Path(folder), damage=damage, losses=losses, processes=processes)
