"""Crash-safe append-only segments, both ends: what a serving process writes, and its reader.

``writer`` and ``reader`` are mirror images over ``layout``.  The promise: a row that
:meth:`Lane.append` returned ``True`` for survives SIGKILL of the process, one that it returned
``False`` for is counted in the spool, and the reader reports what is torn instead of raising or
inventing.

Standard library only: the writing half runs inside serving processes.
"""

from __future__ import annotations

from tracekv.spool.account import Damage, Loss, json_object, losses_of, number_of, text_of
from tracekv.spool.files import LINK, open_regular, shown
from tracekv.spool.layout import safe_name
from tracekv.spool.reader import (
    STATE_OUTSIDE,
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
    "LINK",
    "STATE_OUTSIDE",
    "Damage",
    "Lane",
    "Loss",
    "SegmentRead",
    "SpoolRead",
    "SpoolWriter",
    "json_object",
    "losses_of",
    "missing_segments",
    "number_of",
    "open_regular",
    "read_segment",
    "read_spool",
    "safe_name",
    "same",
    "segment_files",
    "shown",
    "text_of",
]
