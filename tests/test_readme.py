"""What README tells people to type is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekv.cli import VERBS, main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("tracekv ") and "sample_traces" in line
]
FETCHED = [line for line in COMMANDS if "--rig sglang" in line]
EXIT = {"analyze": 1, "replay": 0, "show": 0, "rooms": 0}


def typed(line: str) -> list[str]:
    """The words of a command, without its comment and the name of the program."""
    return shlex.split(line, comments=True)[1:]


@pytest.fixture(autouse=True)
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder like a clone's, in which a command may leave its picture."""
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    monkeypatch.chdir(tmp_path)


def test_every_verb_is_shown() -> None:
    shown = {line.split()[1] for line in re.findall(r"^tracekv .*$", README, re.MULTILINE)}
    assert shown == set(VERBS)


@pytest.mark.nixl
@pytest.mark.parametrize("line", [line for line in COMMANDS if line not in FETCHED])
def test_a_command(line: str) -> None:
    words = typed(line)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == EXIT[words[0]], result.output
    assert "-o" not in words or Path(words[-1]).stat().st_size > 10_000


@pytest.mark.sglang
@pytest.mark.parametrize("line", FETCHED)
def test_a_command_that_needs_sglang(line: str) -> None:
    result = CliRunner().invoke(main, typed(line.replace("--times 100", "--times 5")))
    reproduced = "5/5" if "--build" not in line else "0/5"
    assert f"reproduced {reproduced}" in result.stdout, result.output


def test_the_excerpt_is_what_is_printed() -> None:
    (excerpt,) = re.findall(r"```\n(VIOLATION.*?)```", README, re.DOTALL)
    printed = CliRunner().invoke(main, typed(COMMANDS[0])).stdout.splitlines()
    for line in excerpt.splitlines():
        assert line == "..." or line in [each.rstrip() for each in printed], line


def test_the_lines_for_a_notebook() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
