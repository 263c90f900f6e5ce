"""What one room carries: which page of prefill goes to which page of decode, and its stamp.

Every page is stamped with a pattern of its room, chunk and place, and decode's pages are poisoned
first; so bytes that are stale, misplaced, missing or of another room all differ from the stamp.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tracekv.errors import UsageError
from tracekv.replay.rigs.agents import AUX_BYTES, PAGE_BYTES, PAGES, Agents, Transfer

POISON: Final = 0xA5
_WORDS: Final = PAGE_BYTES // 8
_MIX: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_MASK: Final = 2**64 - 1


def stamp(room: int, chunk: int, place: int) -> NDArray[np.uint8]:
    """The bytes of one page, shape ``(PAGE_BYTES,)``: its words count up from a mix of the three."""
    seed = (room * _MIX[0] + chunk * _MIX[1] + place * _MIX[2]) & _MASK
    words = np.arange(_WORDS, dtype=np.uint64) * np.uint64(_MIX[0]) + np.uint64(seed)
    page: NDArray[np.uint8] = words.view(np.uint8)
    return page


@dataclass(slots=True)
class Cargo:
    """The pages of one room, ``pages`` of them for each chunk.

    Raises
    ------
    UsageError
        where the room has more pages than the region.
    """

    room: int
    pages: tuple[int, ...]
    agents: Agents

    def __post_init__(self) -> None:
        if not self.pages or min(self.pages) < 1 or sum(self.pages) > PAGES:
            raise UsageError(
                f"a room of {self.pages} pages does not fit this rig",
                hint=f"chunks of one page and more, {PAGES} pages in all",
            )

    def source(self, chunk: int) -> list[int]:
        """The prefill pages of a chunk."""
        ends = [0, *accumulate(self.pages)]
        return list(range(ends[chunk], ends[chunk + 1]))

    def target(self, chunk: int) -> list[int]:
        """The decode pages of a chunk: other places, in the opposite order."""
        return [PAGES - 1 - page for page in self.source(chunk)]

    def load(self) -> None:
        """Stamp the pages at prefill, poison those at decode."""
        for chunk in range(len(self.pages)):
            for place, (source, target) in enumerate(self._pairs(chunk)):
                self.agents.source[source] = stamp(self.room, chunk, place)
                self.agents.target[target] = POISON
        self.agents.source_aux[:] = stamp(self.room, len(self.pages), 0)[:AUX_BYTES]
        self.agents.target_aux[:] = POISON

    def _pairs(self, chunk: int) -> zip[tuple[int, int]]:
        return zip(self.source(chunk), self.target(chunk), strict=True)

    def post(self, chunk: int) -> Transfer:
        """Post the pages of a chunk."""
        last = chunk == len(self.pages) - 1
        tag = f"{self.room}_kv_{chunk}_{int(last)}_0".encode()
        return self.agents.post(self.source(chunk), self.target(chunk), tag)

    def post_aux(self) -> Transfer:
        """Post the aux slot, which goes with the last chunk."""
        return self.agents.post_aux(f"{self.room}_aux".encode())

    def landed(self, chunk: int) -> int:
        """How many pages of a chunk hold anything but poison at decode."""
        return sum(bool((self.agents.target[page] != POISON).any()) for page in self.target(chunk))

    def wrong(self, chunk: int) -> int:
        """How many bytes of a chunk at decode differ from the stamp of their source page."""
        return sum(
            int(np.count_nonzero(self.agents.target[page] != stamp(self.room, chunk, place)))
            for place, page in enumerate(self.target(chunk))
        )

    def wrong_aux(self) -> int:
        """How many bytes of the aux slot at decode differ from its stamp."""
        expected = stamp(self.room, len(self.pages), 0)[:AUX_BYTES]
        return int(np.count_nonzero(self.agents.target_aux[0] != expected))
