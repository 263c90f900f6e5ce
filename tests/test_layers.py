"""Who may import whom: arrows go towards an earlier stage only, and early stages carry no libraries."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracekv

ROOT = Path(tracekv.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py"))

#: Stage by stage, from the serving process to the command line.  A module may import its own stage
#: and earlier ones; ``errors`` is everybody's.
STAGES = (
    ("event", "errors"),
    ("seams", "story", "machine", "spool"),
    ("record",),
    ("trace",),
    ("ingest",),
    ("rooms",),
    ("finding",),
    ("detect",),
    ("explain", "remedy"),
    ("examine",),
    ("verdict",),
    ("replay",),
    ("show",),
    ("recording",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(STAGES) for name in names}

#: Only the standard library and each other.
BARE = ("event", "errors", "seams", "story", "machine", "spool", "record")


def stage_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> Iterator[str]:
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "tracekv" and len(parts) > 1 and parts[1] in RANK:
            yield parts[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_go_towards_an_earlier_stage(path: Path) -> None:
    stage = stage_of(path)
    if stage in ("__init__", "__main__"):
        return
    late = sorted(name for name in ours(path) if RANK[name] > RANK[stage])
    assert not late, f"{path.relative_to(ROOT)} imports a later stage: {late}"


def test_every_module_has_a_stage() -> None:
    assert {stage_of(path) for path in MODULES} - {"__init__", "__main__"} == set(RANK)


@pytest.mark.parametrize("stage", BARE)
def test_early_stages_use_the_standard_library_alone(stage: str) -> None:
    for path in (each for each in MODULES if stage_of(each) == stage):
        foreign = {name.split(".")[0] for name in imports_of(path)} - sys.stdlib_module_names
        assert foreign <= {"tracekv", "__future__"}, f"{path.relative_to(ROOT)}: {sorted(foreign)}"
        assert {name for name in ours(path)} <= set(BARE), path
