"""Crash-safe append-only segments, both ends: what a serving process writes, and its reader.

``writer`` and ``reader`` are mirror images over ``layout``.  The promise: a row that
:meth:`Lane.append` returned ``True`` for survives SIGKILL of the process, one that it returned
``False`` for is counted in the spool, and the reader reports what is torn instead of raising or
inventing.

Standard library only: the writing half runs inside serving processes.
"""

from __future__ import annotations

from tracekv.spool.account import Damage, Loss, losses_of
from tracekv.spool.layout import safe_name
from tracekv.spool.reader import (
    SegmentRead,
    SpoolRead,
    missing_segments,
    read_segment,
    read_spool,
    same,
    segment_files,
)
from tracekv.spool.writer import Lane, SpoolWriter

__all__ = [
    "Damage",
    "Lane",
    "Loss",
    "SegmentRead",
    "SpoolRead",
    "SpoolWriter",
    "losses_of",
    "missing_segments",
    "read_segment",
    "read_spool",
    "safe_name",
    "same",
    "segment_files",
]
