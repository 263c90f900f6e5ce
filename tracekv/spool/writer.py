"""The writing half: what a thread of a serving process calls for every row.

A thread writes into a mapped, preallocated file of its own, so that nothing is locked and nothing
is lost when the process is killed.  The promise: a row that :meth:`Lane.append` returned ``True``
for survives SIGKILL, one that it returned ``False`` for is counted, and it never raises.
"""

from __future__ import annotations

import itertools
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from tracekv.spool.layout import (
    CLOSED_LANE,
    FORKED,
    FRAME,
    HEADER_BYTES,
    KIND_ROW,
    KIND_SHORT,
    LIMIT,
    MAX_SEGMENT,
    MIN_SEGMENT,
    NO_SEGMENT,
    ROW,
    ROW_STEP,
    SHORT,
    TEXT,
    TOO_BIG,
    VALUE,
    WHYS,
    cut_text,
    pack_head,
    segment_name,
)
from tracekv.spool.segment import Full, Segment

_RETRY_S: Final = 1.0
_SIGN: Final = 1 << 63


class Lane:
    """The rows of one thread, in the order in which it appended them.

    Not to be shared between threads; :meth:`close` may be called from any.
    """

    def __init__(self, writer: SpoolWriter, number: int, thread: str, tid: int) -> None:
        self._writer = writer
        self._lane = number
        self._thread = thread
        self._tid = tid
        self._number = 0
        self._segment: Segment | None = None
        self._stopped = 0
        self._retry = 0.0
        self._loss: tuple[int, int, int, int, int, int] | None = None
        self._told = 0  # of the rows in _loss, those that another lane's row tells of
        self.lost = 0
        self._open()

    def append(
        self,
        *,
        seq: int,
        op: str,
        mono_ns: int | None,
        wall_ns: int | None,
        manager: int | None = None,
        seq_before: int | None = None,
        room: int | None = None,
        rid: str | None = None,
        generation: int | None = None,
        site: str | None = None,
        requested: int | None = None,
        old: int | None = None,
        new: int | None = None,
        chunk: int | None = None,
        last: bool | None = None,
        peer: str | None = None,
        handle: int | None = None,
        bytes: int | None = None,
        reason: str | None = None,
        source: str = "hook",
        precision_ns: int | None = None,
        attrs: str | None = None,
    ) -> bool:
        """Stores one row; the columns are those of :class:`tracekv.event.Event`.

        Never raises.  ``True``: the row is there, whatever happens to this process.  ``False``: it
        is lost, and counted.
        """
        # One long function on purpose: this is the hot path of a serving process, and each call
        # would add a tenth to it.
        try:
            if self._stopped and not self._resume():
                return self._lose(seq, mono_ns, wall_ns, self._stopped)
            # What a status write has, and most rows are: half the bytes, two thirds of the time.
            short = (
                mono_ns is not None and wall_ns is not None
                and chunk is None and attrs is None and peer is None and handle is None and bytes is None
                and last is None and reason is None and rid is None and generation is None
                and seq_before is None and precision_ns is None and source == "hook"
            )  # fmt: skip
            if short:
                bits = (
                    (manager is not None)
                    | (requested is not None) << 1
                    | (old is not None) << 2
                    | (new is not None) << 3
                    | (room is not None) << 4
                )
            else:
                bits = (
                    (mono_ns is not None)
                    | (wall_ns is not None) << 1
                    | (seq_before is not None) << 2
                    | (room is not None) << 3
                    | (generation is not None) << 4
                    | (handle is not None) << 5
                    | (bytes is not None) << 6
                    | (precision_ns is not None) << 7
                    | (manager is not None) << 8
                    | (requested is not None) << 9
                    | (old is not None) << 10
                    | (new is not None) << 11
                    | (chunk is not None) << 12
                    | (last is not None) << 13
                )
            for _ in (0, 1):
                segment = self._segment
                assert segment is not None
                known = segment.ids.get
                intern = segment.intern
                try:
                    if short:
                        data = SHORT.pack(
                            KIND_SHORT, bits, requested or 0, old or 0, new or 0, manager or 0,
                            known(op) or intern(op), 0 if site is None else known(site) or intern(site),
                            seq, mono_ns, wall_ns, room or 0,
                        )  # fmt: skip
                    else:
                        data = ROW.pack(
                                KIND_ROW, last or 0, requested or 0, old or 0, new or 0, manager or 0,
                                bits, chunk or 0,
                                known(op) or intern(op),
                                known(source) or intern(source),
                                0 if site is None else known(site) or intern(site),
                                0 if peer is None else known(peer) or intern(peer),
                                0 if reason is None else known(reason) or intern(reason),
                                0 if rid is None else known(rid) or intern(rid),
                                0 if attrs is None else known(attrs) or intern(attrs),
                                0,
                                seq, mono_ns or 0, wall_ns or 0, seq_before or 0, room or 0,
                                generation or 0, handle or 0, bytes or 0, precision_ns or 0,
                        )  # fmt: skip
                    start = segment.used  # what follows is put(), without the call
                    length = len(data)
                    end = start + 8 + length  # both kinds are multiples of eight
                    if end >= segment.size:
                        raise Full
                    segment.map[start + 8 : end] = data
                    FRAME.pack_into(segment.map, start, crc32(data) << 32 | length)
                    segment.used = end
                    return True
                except Full:
                    texts = (op, source, site, peer, reason, rid, attrs)
                    if not self._roll(texts):
                        return self._lose(seq, mono_ns, wall_ns, self._stopped or TOO_BIG)
            return self._lose(seq, mono_ns, wall_ns, TOO_BIG)
        except Exception:
            return self._lose(seq, mono_ns, wall_ns, self._stopped or VALUE)
        except BaseException:  # KeyboardInterrupt, raised in the middle: the application's, not ours
            if self._segment is not None and not self._stopped:
                self._segment.wipe()
            raise

    def close(self) -> None:
        """Gives back the unused disk.  Rows appended afterwards are lost, and counted.  Never raises."""
        if self._stopped in (CLOSED_LANE, FORKED):
            return
        try:
            if self._segment is None and self._loss and self._loss[0] > self._told:
                self._open(MIN_SEGMENT)
            self._stopped = CLOSED_LANE
            if self._segment is not None:
                self._segment.close(self._writer.lanes)
        except Exception:
            self._stopped = CLOSED_LANE

    def orphan(self) -> None:
        """In the child of a fork: the segment stays the parent's."""
        self._segment = None
        self._loss = None
        self._stopped = FORKED

    def _roll(self, texts: tuple[str | None, ...]) -> bool:
        """A new segment for a row with these texts; refused where it would not fit there either."""
        need = FRAME.size + ROW_STEP
        need += sum(FRAME.size + TEXT.size + 7 + len(cut_text(text)) for text in texts if text)
        return need <= self._writer.segment_bytes - HEADER_BYTES and self._open()

    def _resume(self) -> bool:
        """Tries again now and then: a full disk may be cleared."""
        if self._stopped in (CLOSED_LANE, FORKED) or time.monotonic() < self._retry:
            return False
        return self._open()

    def _open(self, size: int | None = None) -> bool:
        """The next segment; where there is none to be had, the lane stops and keeps the last one."""
        before = self._segment
        try:
            path, head = self._writer.place(self._lane, self._number, self._thread, self._tid, size)
            segment = Segment(path, size or self._writer.segment_bytes, head)
        except Exception as error:
            self._stopped = LIMIT if isinstance(error, Full) else NO_SEGMENT
            self._retry = time.monotonic() + _RETRY_S
            return False
        self._segment, self._stopped = segment, 0
        self._number += 1
        if before is not None:
            self._loss = None  # told in the segment before
            with suppress(OSError):
                before.close()
        elif self._loss and self._loss[0] > self._told:
            self._loss = (self._loss[0] - self._told, *self._loss[1:])
            segment.lose(self._loss)
        else:
            self._loss = None
        self._told = 0
        return True

    def untold(self) -> dict[str, object] | None:
        """What this lane lost and has no segment to say it in, since it was last asked: for a row.

        For the thread of another lane, which then must write that row.
        """
        loss = self._loss
        if self._segment is not None or loss is None or loss[0] <= self._told:
            return None
        n, self._told = loss[0] - self._told, loss[0]
        return {"n": n, "from_ns": loss[2], "to_ns": loss[3], "why": WHYS[loss[5]], "thread": self._thread}

    def _lose(self, seq: int, mono_ns: int | None, wall_ns: int | None, why: int) -> bool:
        """Counts a lost row where a reader finds the count; in memory where there is no such place."""
        self.lost += 1
        with suppress(Exception):
            now = _fitting(mono_ns)
            n, first, start, _, wall, reason = self._loss or (
                0,
                _fitting(seq),
                now,
                0,
                _fitting(wall_ns),
                why,
            )
            self._loss = (n + 1, first, start, now, wall, reason)
            if self._segment is not None:
                self._segment.lose(self._loss)
            elif self._stopped != FORKED:
                self._writer.homeless[self._lane] = self
        return False


def _fitting(value: object) -> int:
    """The number, or 0 where it is none that the count of losses can hold."""
    return value if isinstance(value, int) and -_SIGN <= value < _SIGN else 0


_WRITERS: Final[weakref.WeakSet[SpoolWriter]] = weakref.WeakSet()


class SpoolWriter:
    """All lanes of one process run.

    Parameters
    ----------
    folder
        Made when it is not there.  Where it cannot be, every row is lost and counted; nothing raises.
    process
        The uuid of the process run.
    segment_bytes
        Size of a segment, between 4 KiB and 64 MiB.
    max_bytes
        What all segments of this writer may take together; beyond it rows are lost and counted.
    """

    def __init__(
        self, folder: Path, process: str, *, segment_bytes: int = 1 << 20, max_bytes: int = 1 << 30
    ) -> None:
        self.folder = Path(folder).absolute()
        self.process = process
        self.segment_bytes = min(max(segment_bytes, MIN_SEGMENT), MAX_SEGMENT) & ~7
        self._left = max_bytes
        self._numbers = itertools.count()
        self._lanes: list[Lane] = []
        #: Lanes that lost rows and have no segment to say so: whoever has one should (:meth:`Lane.untold`).
        self.homeless: dict[int, Lane] = {}
        with suppress(OSError):  # every lane will say so
            self.folder.mkdir(parents=True, exist_ok=True)
        _WRITERS.add(self)

    @property
    def lost(self) -> int:
        """Rows lost so far, in all lanes."""
        return sum(lane.lost for lane in list(self._lanes))

    @property
    def lanes(self) -> int:
        """Lanes made so far; they are numbered from 0."""
        return len(self._lanes)

    def lane(self, thread: str, tid: int) -> Lane:
        """A lane for the calling thread.  Never raises; makes its first segment now."""
        # No lock: a finalizer that runs in here may ask for a lane of the same thread.
        lane = Lane(self, next(self._numbers), thread, tid)
        self._lanes.append(lane)
        return lane

    def close(self) -> None:
        """Closes every lane.  Never raises."""
        for lane in list(self._lanes):
            lane.close()

    def place(self, lane: int, number: int, thread: str, tid: int, size: int | None) -> tuple[Path, bytes]:
        """Path and header of a lane's next segment, taken out of what the writer may use.

        Raises
        ------
        Full
            beyond ``max_bytes``.  A segment of an explicit size, for a loss alone, is exempt.
        """
        if size is None:
            if self._left < self.segment_bytes:
                raise Full
            self._left -= self.segment_bytes
        head = pack_head(self.process, lane, number, thread, tid, size or self.segment_bytes)
        return self.folder / segment_name(self.process, lane, number), head

    def orphan(self) -> None:
        """In the child of a fork: it needs a writer of its own."""
        for lane in self._lanes:
            lane.orphan()


def _orphan_all() -> None:
    for writer in list(_WRITERS):
        writer.orphan()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_orphan_all)
