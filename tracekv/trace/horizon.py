"""How far a spool that is still written can be read as one moment.

Lanes are read one after another, and those read later hold rows that are newer than what was seen of
the first: as if rows were missing.  So the newest numbers are looked up first, and whatever came after
that look is left for the next reading.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tracekv.spool import Damage, read_segment


def horizons(files: Iterable[Path]) -> dict[str, int]:
    """For each process that still writes, or never closed its spool: the highest ``seq`` there is now."""
    highest: dict[str, int] = defaultdict(int)
    live = set()
    for lane in _lanes(files):
        for path in lane[-2:]:  # the last one may still be empty
            found = read_segment(path)
            if isinstance(found, Damage):
                continue
            highest[found.process] = max(highest[found.process], *(row.seq for row in found.events), 0)
            if path == lane[-1] and not found.lanes:  # not closed, or closed because another follows
                live.add(found.process)
    return {process: highest[process] for process in live}


def _lanes(files: Iterable[Path]) -> list[list[Path]]:
    """The segments of each lane in their order, by their names."""
    lanes: dict[tuple[Path, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in files:
        lane, _, number = path.stem.rpartition(".")
        lanes[path.parent, lane].append((int(number) if number.isdecimal() else 0, path))
    return [[path for _, path in sorted(found)] for found in lanes.values()]
