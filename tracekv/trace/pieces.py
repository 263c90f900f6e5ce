"""Rows that are read in one go, and how those of several files become one history.

A piece is a segment, or what a row group has of one process.  The promise: rows come by seq, each
once, a piece is held in memory only while its rows are due, and two different rows that claim the
same place are named.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from tracekv.event import Event, Op
from tracekv.spool import Damage

#: A piece, and the seqs of its rows, of any order; those of ``rows.lost`` left out.
Numbered: TypeAlias = "tuple[Piece, np.ndarray[Any, np.dtype[np.int64]]]"


class Piece(Protocol):
    """Some rows of one process, between the seqs ``first`` and ``last``; ``rising``: by seq, none twice."""

    @property
    def process(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def rising(self) -> bool: ...

    def rows(self) -> Iterator[Event]:
        """Its rows by seq."""

    def table(self) -> pa.Table:
        """The same in the dataset's schema."""


def merged(pieces: Iterable[Piece]) -> Iterator[tuple[Event, str]]:
    """The rows of pieces by seq, each with the name of its piece, which is loaded when it is due."""
    waiting = sorted(pieces, key=lambda piece: piece.first, reverse=True)
    active: list[tuple[int, int, Event, Iterator[Event], str]] = []

    def proceed(turn: int, rest: Iterator[Event], name: str) -> None:
        if (event := next(rest, None)) is not None:
            heapq.heappush(active, (event.seq, turn, event, rest, name))

    while waiting or active:
        if waiting and (not active or waiting[-1].first <= active[0][0]):
            piece = waiting.pop()
            proceed(len(waiting), piece.rows(), piece.name)
        else:
            _, turn, event, rest, name = heapq.heappop(active)
            yield event, name
            proceed(turn, rest, name)


def history(pieces: Iterable[Piece]) -> Iterator[Event]:
    """The rows of pieces by seq, each once: a file that was copied into a trace does not double it."""
    last, seen = None, set[Event]()
    for event, _ in merged(pieces):
        if last is None or event.seq != last.seq:
            seen.clear()
        else:
            seen.add(last)
            if event in seen:
                continue
        last = event
        yield event


def apart(pieces: Iterable[Piece]) -> bool:
    """Whether the pieces, sorted by ``first``, are one history as they lie."""
    listed = list(pieces)
    return all(piece.rising for piece in listed) and all(a.last < b.first for a, b in pairwise(listed))


def conflicts(numbered: Iterable[Numbered]) -> list[Damage]:
    """Different rows of a process with the same seq: one of them is not what happened.

    ``rows.lost`` is exempt: it counts on while a spool is live.
    """
    by_process: dict[str, list[Numbered]] = {}
    for piece, seqs in numbered:
        by_process.setdefault(piece.process, []).append((piece, seqs))
    return [
        damage
        for process, listed in sorted(by_process.items())
        if not apart(sorted((piece for piece, _ in listed), key=lambda piece: piece.first))
        and _any_twice([seqs for _, seqs in listed])
        for damage in _differing(process, [piece for piece, _ in listed])
    ]


def _any_twice(numbers: list[np.ndarray[Any, np.dtype[np.int64]]]) -> bool:
    together = np.sort(np.concatenate(numbers))
    return bool((together[1:] == together[:-1]).any())


def _differing(process: str, pieces: list[Piece]) -> list[Damage]:
    found: dict[str, list[int]] = {}
    last = None
    for event, name in merged(pieces):
        if event.op == Op.ROWS_LOST:
            continue
        if last is not None and event.seq == last.seq and event != last:
            found.setdefault(name, []).append(event.seq)
        last = event
    return [
        Damage(name, f"seq {seqs[0]} of {process}", f"two different rows have this number ({len(seqs)} such)")
        for name, seqs in sorted(found.items())
    ]
