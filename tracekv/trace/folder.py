"""What lies below a folder: every file that may be a part of a trace, and what is not looked into.

The promise: nothing that looks like a part of a trace is passed over in silence.  Names that start
with a dot are what writers have not finished, and are left out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from tracekv.spool import LINK, Damage, shown


@dataclass(slots=True)
class Found:
    """Files by what they seem to be, and the rest as damage."""

    segments: list[Path] = field(default_factory=list)
    parquet: list[Path] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def find(root: Path) -> Found:
    """Segments and Parquet files in a folder and below it, sorted; symbolic links are not followed."""
    found = Found()

    def refused(error: OSError) -> None:
        name = os.path.relpath(error.filename or root, root)
        found.damage.append(Damage(shown(name), "folder", f"not read: {error.strerror}"))

    for here, folders, names in os.walk(root, onerror=refused, followlinks=False):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for path in [Path(here) / name for name in folders]:
            if path.is_symlink():
                found.damage.append(Damage(shown(path.relative_to(root)), "folder", LINK))
        files = {".seg": found.segments, ".parquet": found.parquet}
        for path in sorted(Path(here) / name for name in names if name[0] != "."):
            files.get(path.suffix.lower(), []).append(path)
    return found
