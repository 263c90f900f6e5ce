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
    for path in _newest(files):
        found = read_segment(path)
        if isinstance(found, Damage):
            continue
        if found.lanes is None:
            live.add(found.process)
        highest[found.process] = max(highest[found.process], *(row.seq for row in found.events), 0)
    return {process: highest[process] for process in live}


def _newest(files: Iterable[Path]) -> list[Path]:
    """The last two segments of each lane, by their names: the last one may still be empty."""
    lanes: dict[tuple[Path, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in files:
        lane, _, number = path.stem.rpartition(".")
        lanes[path.parent, lane].append((int(number) if number.isdecimal() else 0, path))
    return [path for found in lanes.values() for _, path in sorted(found)[-2:]]
