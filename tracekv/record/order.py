"""One order for all threads of a process, taken at the effect, without a lock.

The promise: a dictionary operation, the value that was there before it, its number in the order and
its two clocks belong together, so that rows sorted by ``seq`` are in the order in which the
operations really happened.

CPython switches threads only between bytecodes.  ``next(zip(a, b, c))`` is one bytecode that calls
``a``, ``b`` and ``c`` in turn, in C; so an effect and its number that are taken by the iterators of
one ``zip`` cannot be torn apart by another thread, and nothing can wait for anything.  This holds
for keys whose hash and equality are C code (room ids are ``int``) and for a build with the GIL; on a
free-threaded build :data:`ATOMIC` is false and every row says that it could not be ordered surely.
See ``docs/adr/0001-order-without-a-lock.md``.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

ATOMIC: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()

Stamp = tuple[int, int, int]  # seq, mono_ns, wall_ns


class Order:
    """The ticket counter and the clocks of one process."""

    __slots__ = ("_mono", "_ticket", "_wall")

    def __init__(self) -> None:
        self._ticket = itertools.count(1)
        self._mono: Iterator[int] = iter(time.monotonic_ns, None)
        self._wall: Iterator[int] = iter(time.time_ns, None)

    def now(self) -> Stamp:
        """A number and both clocks, together."""
        return next(zip(self._ticket, self._mono, self._wall))

    def after(self, effect: Callable[..., Any], *args: Any) -> tuple[Any, int, int, int]:
        """``effect(*args)``, its number and both clocks: result, seq, mono_ns, wall_ns.

        ``effect`` must be C code that runs no Python, such as ``dict.get``.  What it raises is
        raised, and no number is used up.
        """
        return next(
            zip(map(effect, *[(arg,) for arg in args]), self._ticket, self._mono, self._wall)
        )

    def replacing(
        self, look: Callable[..., Any], effect: Callable[..., Any], table: Any, key: Any, *args: Any
    ) -> tuple[Any, Any, int, int, int]:
        """What ``look(table, key, None)`` saw, then ``effect(table, key, *args)``, then the stamp.

        Returns (seen, result, seq, mono_ns, wall_ns), all of one moment.
        """
        return next(
            zip(
                map(look, (table,), (key,), (None,)),
                map(effect, (table,), (key,), *[(arg,) for arg in args]),
                self._ticket,
                self._mono,
                self._wall,
            )
        )
