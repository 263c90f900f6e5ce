"""Whatever is given as a path ends in one message and the code for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.spools import some, write
from tracekv.cli import main

VERBS = [["analyze"], ["rooms"], ["show"], ["ingest", "-o", "out"]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")


def said(verb: list[str], trace: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*verb, trace, *(["1"] if verb == ["show"] else [])])
    assert not Path("out").exists()
    return result.exit_code, result.stderr


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("trace", ["", "x" * 5000, "no\nsuch\x1b", "/dev/null/x", "file:///tmp"])
def test_what_is_not_there_is_usage(verb: list[str], trace: str) -> None:
    code, stderr = said(verb, trace)
    assert code == 2 and len(stderr) < 900 and "\x1b" not in stderr and "no\nsuch" not in stderr


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("trace", ["pipe", "/dev/null"])
def test_what_is_no_file_is_unreadable(verb: list[str], trace: str) -> None:
    code, stderr = said(verb, trace)
    assert code == 4 and "neither a file nor a folder" in stderr


def test_a_url_gets_the_path_as_a_hint() -> None:
    assert "give the path itself: /tmp/x" in said(["analyze"], "file:///tmp/x")[1]


@pytest.mark.parametrize("output", ["", "x" * 5000, "file", "/dev/null", "/dev/null/x", "pipe", "dangling"])
def test_where_no_trace_can_be_written_is_usage(output: str) -> None:
    write(some(3), Path("spool"))
    Path("file").write_text("x")
    os.symlink("nowhere", "dangling")
    result = CliRunner().invoke(main, ["ingest", "spool", "-o", output])
    assert result.exit_code == 2 and len(result.stderr) < 900
