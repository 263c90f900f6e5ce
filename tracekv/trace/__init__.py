"""The trace: what everybody reads, in whatever files it lies."""

from __future__ import annotations

from tracekv.trace.describe import Damage, Loss, Manager, Process
from tracekv.trace.store import Trace, open_trace, write_dataset

__all__ = ["Damage", "Loss", "Manager", "Process", "Trace", "open_trace", "write_dataset"]
