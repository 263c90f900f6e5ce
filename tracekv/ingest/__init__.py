"""Sources that are not yet a dataset, and how each becomes one.

One file a source.  The promise: what a source could not give is kept in the trace as a fact, so
that no later reader takes it for whole.
"""

from __future__ import annotations

from tracekv.ingest.spool import Report, ingest_spool

__all__ = ["Report", "ingest_spool"]
