"""Lives by time: which of many touch a span, without a look at each of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import Any


@dataclass(frozen=True)
class Timeline:
    """Things with a ``span`` (begin, end), or with ``None``, which touches every span."""

    lives: Sequence[Any]

    @cached_property
    def _sorted(self) -> list[int]:
        timed = (at for at, life in enumerate(self.lives) if life.span is not None)
        return sorted(timed, key=lambda at: self.lives[at].span[0])

    @cached_property
    def _untimed(self) -> list[int]:
        return [at for at, life in enumerate(self.lives) if life.span is None]

    @cached_property
    def _begins(self) -> list[float]:
        return [self.lives[at].span[0] for at in self._sorted]

    @cached_property
    def _latest_ends(self) -> list[float]:
        """For each, the latest end of it and of all before it: never falls, so it can be searched."""
        return list(accumulate((self.lives[at].span[1] for at in self._sorted), max))

    def between(self, begin: float, end: float) -> Iterator[Any]:
        """Those that may touch the span from ``begin`` to ``end``, by their beginnings."""
        first, after = bisect_left(self._latest_ends, begin), bisect_right(self._begins, end)
        for at in chain(self._untimed, islice(self._sorted, first, after)):
            yield self.lives[at]
