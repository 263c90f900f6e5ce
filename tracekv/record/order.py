"""One order for all threads of a process, taken at the effect, without a lock.

The promise: a dictionary operation, the value that was there before it, its number in the order and
its two clocks belong together, so that rows sorted by ``seq`` are in the order in which the
operations really happened; where that could not be, the stamp says between which numbers.

CPython switches threads only between bytecodes.  ``next(zip(a, b, c))`` is one bytecode that calls
``a``, ``b`` and ``c`` in turn, in C; so an effect and its number that are taken by the iterators of
one ``zip`` cannot be torn apart by another thread, and nothing can wait for anything.  What can still
run Python in between (a key with a hash of its own; before 3.12 a garbage collection) is noticed by a
second number, taken before: then the value seen may be stale, the number is right all the same.  See
``docs/adr/0001-order-without-a-lock.md``.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

#: Whether this build switches threads between bytecodes only.
ATOMIC: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()

#: seq, mono_ns, wall_ns, and seq_before: ``None`` unless others took numbers during the operation.
Stamp = tuple[int, int, int, "int | None"]

#: What an absent key looks like; ``None`` is a value like any other.
NOTHING: Final = object()


class Order:
    """The ticket counter and the clocks of one process."""

    __slots__ = ("_mono", "_ticket", "_wall")

    def __init__(self) -> None:
        self._ticket = itertools.count(1)
        self._mono: Iterator[int] = iter(time.monotonic_ns, None)
        self._wall: Iterator[int] = iter(time.time_ns, None)

    def now(self) -> Stamp:
        """A number and both clocks, together."""
        return *next(zip(self._ticket, self._mono, self._wall)), None  # noqa: B905

    def after(self, effect: Callable[..., Any], *args: Any) -> tuple[Any, Stamp]:
        """The result of ``effect(*args)`` and its stamp.

        ``effect`` must be C code, such as ``dict.get``.  What it raises is raised.
        """
        ticket = self._ticket
        before, result, seq, mono, wall = next(
            zip(ticket, map(effect, *[(arg,) for arg in args]), ticket, self._mono, self._wall)  # noqa: B905
        )
        return result, (seq, mono, wall, None if seq - before == 1 else before)

    def replacing(
        self, effect: Callable[..., Any], table: Any, key: Any, *args: Any
    ) -> tuple[Any, Any, Stamp]:
        """What ``table`` held for ``key``, the result of ``effect(table, key, *args)``, and its stamp.

        All of one moment; :data:`NOTHING` was held where the key was absent.
        """
        ticket, tables, keys = self._ticket, (table,), (key,)
        before, held, result, seq, mono, wall = next(
            zip(  # noqa: B905
                ticket,
                map(dict.get, tables, keys, (NOTHING,)),
                map(effect, tables, keys, *[(arg,) for arg in args]),
                ticket,
                self._mono,
                self._wall,
            )
        )
        return held, result, (seq, mono, wall, None if seq - before == 1 else before)
