"""Segments of spools as pieces of a trace.

A segment is surveyed once and read again at each pass, up to the byte where the survey ended: a live
spool does not grow between two passes.  All lanes of a live process end at the same moment
(:mod:`tracekv.trace.horizon`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from tracekv.errors import UnreadableError
from tracekv.event import Event, Op
from tracekv.spool import (
    Damage,
    Loss,
    SegmentRead,
    missing_segments,
    read_segment,
    same,
    segment_files,
    shown,
)
from tracekv.trace.describe import DESCRIBING
from tracekv.trace.horizon import horizons
from tracekv.trace.pieces import Numbered
from tracekv.trace.rows import table_of


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """One segment with rows in it, up to the byte ``end``."""

    path: Path
    name: str
    process: str
    end: int
    first: int
    last: int
    rising: bool
    horizon: int | None

    def rows(self) -> Iterator[Event]:
        """Its rows by seq.

        Raises
        ------
        UnreadableError
            where it cannot be read any more.
        """
        found = read_segment(self.path, self.end)
        if isinstance(found, Damage):
            raise UnreadableError(f"{self.name}: {found.why}")
        return iter(sorted(_until(self.horizon, found.events), key=lambda event: event.seq))

    def table(self) -> pa.Table:
        """The same in the dataset's schema."""
        return table_of(self.rows())


@dataclass(slots=True)
class Spools:
    """What a survey of segments found; ``heads`` are those that can be read, without their rows."""

    heads: list[SegmentRead] = field(default_factory=list)
    pieces: list[Numbered] = field(default_factory=list)
    describing: list[Event] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def survey_segments(files: list[Path], root: Path, *, alone: bool = False) -> Spools:
    """Reads segments once; ``alone`` asks for no neighbours."""
    spools = Spools()
    ends = horizons(files)
    if ends and not alone:  # a lane may have gone on in a new segment since the files were listed
        files = sorted(
            {*files, *(path for parent in {p.parent for p in files} for path in segment_files(parent))}
        )
    for path in files:
        _survey(path, shown(path.relative_to(root)), spools, ends)
    if not alone:
        spools.damage += missing_segments(spools.heads, *{path.parent for path in files})
    return spools


def _survey(path: Path, name: str, spools: Spools, ends: dict[str, int]) -> None:
    found = read_segment(path)
    if isinstance(found, Damage):
        spools.damage.append(Damage(name, found.where, found.why))
        return
    if any(same(found, head) for head in spools.heads):
        spools.damage.append(Damage(name, "header", "the same segment a second time; not read"))
        return
    horizon = ends.get(found.process)
    found.events[:] = _until(horizon, found.events)
    spools.describing += [event for event in found.events if event.op in DESCRIBING]
    spools.losses += found.losses
    spools.damage += [Damage(name, item.where, item.why) for item in found.damage]
    if found.events:
        spools.pieces.append(_piece(path, name, found, horizon))
        found.events.clear()
    spools.heads.append(found)


def _until(horizon: int | None, rows: list[Event]) -> list[Event]:
    return rows if horizon is None else [row for row in rows if row.seq <= horizon]


def _piece(path: Path, name: str, found: SegmentRead, horizon: int | None) -> Numbered:
    seqs = np.array([event.seq for event in found.events], np.int64)
    told = np.array([event.op != Op.ROWS_LOST for event in found.events])
    rising = len(np.unique(seqs)) == len(seqs)
    first, last = int(seqs.min()), int(seqs.max())
    return SegmentPiece(path, name, found.process, found.end, first, last, rising, horizon), seqs[told]
