"""A patch matches exactly once or is refused."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from tracekv.errors import UnreadableError, UsageError
from tracekv.replay.rigs.build import find_source, parse_build
from tracekv.replay.rigs.patches import COMMON, NIXL, PATCHES, module_path, patched_sources


def source(folder: Path, **texts: str) -> Path:
    """A tree whose two modules hold the places that the patches look for, or the texts given."""
    found = {COMMON: "", NIXL: ""}
    for changes in (PATCHES["fork"], PATCHES["fix-a"]):
        for change in changes:
            found[change.module] += change.old + "\n"
    for name, text in texts.items():
        found[{"common": COMMON, "nixl": NIXL}[name]] = text
    for module, text in found.items():
        path = module_path(folder, module)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_patches_change_text_in_memory_and_no_file(tmp_path: Path) -> None:
    tree = source(tmp_path)
    before = module_path(tree, NIXL).read_text()
    texts = patched_sources(tree, ("fork", "fix-a", "fix-b"))
    assert set(texts) == {COMMON, NIXL}
    assert b"ABORT" in texts[NIXL].encode() and "KV transfer aborted before completion" in texts[NIXL]
    assert module_path(tree, NIXL).read_text() == before
    assert patched_sources(tree, ()) == {}


@pytest.mark.parametrize("times", [0, 2])
def test_a_text_that_is_not_there_exactly_once_is_refused(tmp_path: Path, times: int) -> None:
    change = PATCHES["fix-a"][0]
    tree = source(tmp_path, common=change.old * times)
    with pytest.raises(UsageError) as refused:
        patched_sources(tree, ("fix-a",))
    said = refused.value.message
    assert "fix-a" in said and str(module_path(tree, COMMON)) in said and f"{times} times" in said
    assert "if status == KVPoll.Failed" in said or "self.request_status[bootstrap_room]" in said
    assert refused.value.exit_code == 2


def test_fix_b_needs_the_fork(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fix-b"):
        patched_sources(source(tmp_path), ("fix-b",))


def test_a_tree_without_the_module_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"conn\.py"):
        patched_sources(tmp_path, ("fork",))


def test_a_module_that_is_no_text_is_unreadable(tmp_path: Path) -> None:
    tree = source(tmp_path)
    module_path(tree, NIXL).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableError):
        patched_sources(tree, ("fork",))


@pytest.mark.sglang
@pytest.mark.parametrize(
    "names",
    [("fork", *more) for n in range(3) for more in combinations(("fix-a", "fix-b"), n)] + [("fix-a",)],
)
def test_every_combination_applies_to_the_released_0_5_14(names: tuple[str, ...]) -> None:
    build = parse_build("+".join(("0.5.14", *names)))
    for module, text in patched_sources(find_source(build), build.patches).items():
        compile(text, module, "exec")


@pytest.mark.sglang
def test_the_fork_is_refused_on_0_5_16() -> None:
    with pytest.raises(UsageError, match="'fork' does not match"):
        patched_sources(find_source(parse_build("0.5.16")), ("fork",))
