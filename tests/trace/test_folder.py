"""Nothing below a folder that may be evidence is passed over, and nothing there makes a reader wait."""

from __future__ import annotations

import os
import shutil
import socket
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.spools import some, write
from tracekv.errors import UnreadableError, UsageError
from tracekv.event import Event
from tracekv.ingest import ingest_spool
from tracekv.trace import open_trace, write_dataset

HERE, THERE = [[Event(seq=i, op="a", process=p, thread="t", tid=1) for i in range(5)] for p in "ab"]


def parquet(folder: Path, rows: list[Event]) -> Path:
    """The file of events alone."""
    (path,) = write_dataset(rows, folder.with_name("made"))
    folder.mkdir(parents=True, exist_ok=True)
    moved = shutil.move(path, folder / path.name)
    shutil.rmtree(folder.with_name("made"))
    return Path(moved)


def upper(root: Path) -> None:
    parquet(root, HERE)
    path = parquet(root / "x", THERE)
    path.rename(root / "B.PARQUET")


MIXTURES: dict[str, Callable[[Path], object]] = {
    "spool and parquet": lambda root: (write(HERE, root), parquet(root, THERE)),
    "spool in a spool": lambda root: (write(HERE, root), write(THERE, root / "sub")),
    "spool beside parquet": lambda root: (parquet(root, HERE), write(THERE, root / "sub")),
    "dataset in a spool": lambda root: (write(HERE, root), write_dataset(THERE, root / "trace")),
    "in processes": lambda root: (write_dataset(HERE, root), parquet(root / "processes", THERE)),
    "upper case": upper,
    "a folder with the name of a file": lambda root: (
        write(HERE, root / "spool.seg"),
        parquet(root / "part.parquet", THERE),
    ),
}


@pytest.mark.parametrize("made", MIXTURES.values(), ids=MIXTURES)
def test_whatever_lies_below_is_read_together(made: Callable[[Path], object], tmp_path: Path) -> None:
    made(tmp_path / "root")
    trace = open_trace(tmp_path / "root")
    assert list(trace.events()) == HERE + THERE and not trace.partial
    assert len(trace.frame()) == 10


def test_one_process_in_a_spool_and_a_dataset(tmp_path: Path) -> None:
    write(HERE[:4], tmp_path / "spool")
    write_dataset(HERE[2:], tmp_path / "trace")
    trace = open_trace(tmp_path)
    assert trace.kind == "mixed" and list(trace.events()) == HERE and not trace.partial
    assert [int(seq) for seq in trace.frame()["seq"]] == list(range(5))


def test_a_mixture_can_be_ingested(tmp_path: Path) -> None:
    write(HERE, tmp_path / "root")
    write_dataset(THERE, tmp_path / "root" / "trace")
    ingest_spool(tmp_path / "root", tmp_path / "whole")
    assert list(open_trace(tmp_path / "whole").events()) == HERE + THERE


@pytest.mark.parametrize("target", ["folder", "b.parquet", "b.0.0.seg"])
def test_a_link_is_not_followed_and_told(tmp_path: Path, target: str) -> None:
    write_dataset(HERE, tmp_path / "root")
    write(THERE, tmp_path / "folder")
    parquet(tmp_path / "other", THERE).rename(tmp_path / "b.parquet")
    shutil.copy(tmp_path / "folder" / "b.0.0.seg", tmp_path)
    (tmp_path / "root" / target).symlink_to(tmp_path / target)
    trace = open_trace(tmp_path / "root")
    assert list(trace.events()) == HERE and trace.partial
    assert [(each.file, each.why) for each in trace.damage] == [(target, "a symbolic link: not followed")]


def test_a_link_that_is_named_is_meant(tmp_path: Path) -> None:
    parquet(tmp_path / "root", HERE)
    write(HERE, tmp_path / "spool")
    for n, target in enumerate([tmp_path / "root", *tmp_path.glob("*/a*")]):
        (tmp_path / f"link{n}").symlink_to(target)
        assert list(open_trace(tmp_path / f"link{n}").events()) == HERE


@pytest.mark.parametrize("suffix", [".parquet", ".seg"])
@pytest.mark.parametrize("what", ["pipe", "socket"])
def test_only_regular_files_are_opened(
    tmp_path: Path, what: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(HERE, tmp_path)
    monkeypatch.chdir(tmp_path)  # the path of a socket has to be short
    if what == "pipe":
        os.mkfifo(f"x{suffix}")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"x{suffix}")
    trace = open_trace(tmp_path)
    assert list(trace.events()) == HERE
    assert [(each.file, each.why) for each in trace.damage] == [(f"x{suffix}", "not a regular file")]


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(HERE, tmp_path)
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path: str) -> object:  # as root one may list every folder
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [each.file for each in open_trace(tmp_path).damage] == ["closed"]


def test_hidden_files_are_what_writers_have_not_finished(tmp_path: Path) -> None:
    write_dataset(HERE, tmp_path)
    (tmp_path / ".x.parquet").write_bytes(b"half")
    (tmp_path / ".y").mkdir()
    (tmp_path / ".y" / "z.seg").write_bytes(b"half")
    assert not open_trace(tmp_path).partial


def test_names_in_damage_are_printable(tmp_path: Path) -> None:
    write_dataset(HERE, tmp_path)
    (tmp_path / "a\nb\x1b.parquet").write_bytes(b"x")
    (tmp_path / os.fsdecode(b"\xff.seg")).write_bytes(b"x")
    assert sorted(each.file for each in open_trace(tmp_path).damage) == ["\\udcff.seg", "a\\nb\\x1b.parquet"]


@pytest.mark.parametrize("path", ["", "x" * 5000, "a\0b", "no\nsuch", "/dev/null/x"])
def test_a_path_of_nothing_is_usage_in_one_short_line(path: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_trace(path)
    assert len(caught.value.message) < 400 and caught.value.message.isprintable()


def test_a_device_or_a_pipe_is_no_trace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", "/dev/zero", tmp_path / "pipe"):
        with pytest.raises(UnreadableError, match="neither a file nor a folder"):
            open_trace(path)


def test_the_rows_of_a_long_history_are_not_all_held(tmp_path: Path) -> None:
    rows = [replace(row, tid=row.seq % 4) for row in some(40_000)]
    write(rows, tmp_path / "s", segment_bytes=1 << 16)
    write_dataset(rows, tmp_path / "d")
    for kind in "sd":
        trace = open_trace(tmp_path / kind)
        tracemalloc.start()
        assert sum(1 for _ in trace.events()) == 40_000
        passing = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        held = len(list(trace.events())) and tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert passing < held / 2, kind
