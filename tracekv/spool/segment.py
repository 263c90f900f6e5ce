"""One mapped segment file, as its writer sees it.

The promise: a record exists from the moment that its commit word is stored, in one machine
instruction, and not before.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from zlib import crc32

from tracekv.spool.layout import (
    CLOSED,
    CLOSED_AT,
    FRAME,
    HEADER_BYTES,
    KIND_TEXT,
    LOSS,
    LOSS_AT,
    MAX_TEXT,
    ROW_STEP,
    TEXT,
    WORD,
    cut_text,
)


class Full(Exception):
    """The segment has no room for this record."""


class Segment:
    """One mapped file.  Only the lane's thread writes into it."""

    def __init__(self, path: Path, size: int, head: bytes) -> None:
        self.path = path
        self.size = size
        self.used = HEADER_BYTES
        self.ids: dict[str, int] = {}
        # Under a hidden name until the header stands: a segment that can be seen is whole.
        hidden = path.with_name(f".{path.name}.tmp")
        fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _reserve(fd, size)
            self.map = mmap.mmap(fd, size)
            self.map[: len(head)] = head
            if path.exists():
                raise FileExistsError(path)
            os.rename(hidden, path)
        except BaseException:
            os.unlink(hidden)
            raise
        finally:
            os.close(fd)

    def intern(self, text: str) -> int:
        """The id of ``text`` in this segment; writes its record when it is new.

        Raises
        ------
        Full
            when the record does not fit.
        """
        name = len(self.ids) + 1
        self.put(TEXT.pack(KIND_TEXT, name) + cut_text(text))
        self.ids[text] = name
        return name

    def put(self, payload: bytes) -> None:
        """Writes one record; it exists from the moment that its commit word is stored."""
        start = self.used
        body = start + 8
        end = (body + len(payload) + 7) & ~7
        if end >= self.size:
            raise Full
        self.map[body : body + len(payload)] = payload
        FRAME.pack_into(self.map, start, crc32(payload) << 32 | len(payload))
        self.used = end

    def wipe(self) -> None:
        """After an append that an exception cut short: its bytes must not pass for a record."""
        rest = min(self.used + ROW_STEP + 2 * MAX_TEXT, self.size) - self.used
        self.map[self.used : self.used + rest] = bytes(rest)

    def lose(self, loss: tuple[int, int, int, int, int, int]) -> None:
        """Two slots in turn: a kill in the middle leaves the older count."""
        data = LOSS.pack(*loss)
        at = LOSS_AT[loss[0] & 1]
        data += WORD.pack(crc32(data))
        if not self.map.closed:
            self.map[at : at + len(data)] = data
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(fd, data, at)
        finally:
            os.close(fd)

    def close(self, lanes: int = 0) -> None:
        """Ends the segment: says how long it is, and gives back the rest of the disk.

        ``lanes`` are those of the process so far, where the lane ends here; 0 where it goes on in
        another segment.

        The mapping goes first: a store into a page beyond the end of a file would be a SIGBUS.
        """
        self.map.close()
        fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            used = self.used
            while used + 8 <= self.size and (length := WORD.unpack(os.pread(fd, 4, used))[0]):
                used = (used + 8 + length + 7) & ~7  # committed while another thread closed the lane
            data = CLOSED.pack(used, lanes, 0)[: -WORD.size]
            os.pwrite(fd, data + WORD.pack(crc32(data)), CLOSED_AT)
            os.ftruncate(fd, used)
        finally:
            os.close(fd)


def _reserve(fd: int, size: int) -> None:
    """Real blocks, not a hole: a mapped store into a hole on a full disk kills the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:
        os.pwrite(fd, bytes(size), 0)
