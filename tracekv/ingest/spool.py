"""A spool, live or left behind, into a dataset.

The promise: every row that can be read is in the dataset afterwards, every one that cannot is
counted there, and doing it twice gives the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tracekv.errors import UsageError
from tracekv.event import Event
from tracekv.spool import Damage, Loss, shown


@dataclass(frozen=True, slots=True)
class Report:
    """What an ingest did: what came in, what is missing from it, and the files that it wrote."""

    rows: int
    processes: tuple[str, ...]
    losses: tuple[Loss, ...]
    damage: tuple[Damage, ...]
    files: tuple[Path, ...]
    size: int

    @property
    def bytes_per_row(self) -> float | None:
        """Bytes of Parquet for each row that came in; ``None`` for no rows."""
        return self.size / self.rows if self.rows else None


def ingest_spool(spool: Path, folder: Path, progress: Callable[[str, int], None] | None = None) -> Report:
    """Reads a spool and writes or merges it into the dataset at ``folder``, a process at a time.

    ``progress`` is called with each process and its number of rows when it is written.

    Raises
    ------
    UsageError
        where there is no such spool, it is no spool, or ``folder`` is not for a dataset.
    UnreadableError
        where nothing in the spool can be read.
    """
    from tracekv.trace.store import open_trace
    from tracekv.trace.write import check_target, write_dataset

    check_target(folder)
    trace = open_trace(spool)
    if trace.kind == "dataset":
        raise UsageError(f"{shown(spool)}: is a dataset already", hint=f"tracekv analyze {shown(spool)}")
    # The rows that count losses carry themselves; only what a reader found missing must be handed on.
    found = trace.found_losses
    rows, files = 0, []
    for process in trace.processes:
        mine = [loss for loss in found if loss.process == process]
        counted = _Counted(trace.rows(process))
        files += write_dataset(counted, folder, damage=trace.damage, losses=mine, processes=[process])
        rows += counted.n
        if progress is not None:
            progress(process, counted.n)
    size = sum(path.stat().st_size for path in files)
    return Report(rows, tuple(trace.processes), tuple(trace.losses), tuple(trace.damage), tuple(files), size)


class _Counted:
    """Events, counted as they pass: a process may have more than memory holds."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self.n = 0

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            self.n += 1
            yield event
