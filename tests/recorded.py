"""A recorder whose rows a test can read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tracekv.event import Event
from tracekv.record.recorder import Recorder
from tracekv.spool import SpoolWriter, read_spool


class Recorded(Recorder):
    """A real recorder on a real spool; ``rows`` are what it wrote, told as they were made."""

    def __init__(self, folder: Path | None = None, **options: Any) -> None:
        self.rows: list[Event] = []
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tracekv-test-"))
        super().__init__(SpoolWriter(self.folder, "p"), listener=self.rows.append, **options)
        self.rows.clear()

    def of(self, *ops: str) -> list[Event]:
        return [row for row in self.rows if row.op in ops]

    def spooled(self) -> list[Event]:
        """The rows as a reader finds them after the process."""
        self.close()
        return read_spool(self.folder).events
