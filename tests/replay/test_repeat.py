"""The rig's own process may do what it likes: its caller gets an answer or one clear error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tracekv.errors import CannotTellError
from tracekv.event import State
from tracekv.replay import repeat as repeat_module
from tracekv.replay.drive import Divergence, Run
from tracekv.replay.job import Job, job_facts, read_job, read_run, run_facts
from tracekv.replay.repeat import RigError, repeat
from tracekv.replay.rigs import End, Scenario
from tracekv.replay.run import replay
from tracekv.replay.schedule import Schedule, Step
from tracekv.trace.store import open_trace

SCHEDULE = Schedule("anchored", (Step("D", "meta.sent"), Step("S", "status.written", None, False, False)))
RUN = Run(2**63 + 1, End(State.TRANSFERRING, None, True, left=("peers",), died={"B": "why"}), 2)


def job(folder: Path, times: int = 3) -> Job:
    return Job("nixl", "0.5.14+fork", str(folder), Scenario((2, 1), abort=True), SCHEDULE, times)


def play(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """Let the rig's process run ``body``; ``answer(dict)`` is there, and RUN is a run's facts."""
    text = (
        "import json, os, sys, time, signal\n"
        "asked = json.load(sys.stdin)\n"
        "def answer(message):\n"
        "    os.write(int(sys.argv[1]), (json.dumps(message) + '\\n').encode())\n"
        f"RUN = json.loads({json.dumps(run_facts(RUN))!r})\n"
    )
    (folder / "child.py").write_text(text + body)
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen[str]:
        return real([sys.executable, str(folder / "child.py"), command[-1]], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "Popen", popen)


def test_a_job_and_a_run_survive_json(tmp_path: Path) -> None:

    made = job(tmp_path)
    assert read_job(json.loads(json.dumps(job_facts(made)))) == made
    diverged = Divergence(3, "W x", "W y", ("S z",), ("D a",), "stack")
    for run in (RUN, Run(5, End(State.ABSENT, State.FAILED, False), 0, diverged)):
        assert read_run(json.loads(json.dumps(run_facts(run)))) == run


def test_garbage_on_standard_output_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = "answer({'manager': 'm'})\n" + "os.write(1, b'\\xff{}[' * 99999); answer({'run': RUN})\n" * 3
    play(monkeypatch, tmp_path, body)
    counts: list[int] = []
    found = repeat(job(tmp_path), counts.append)
    assert (found.manager, found.runs, counts) == ("m", [RUN] * 3, [1, 2, 3])


def test_a_rig_that_ends_after_each_run_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(monkeypatch, tmp_path, "answer({'run': RUN | {'consumed': asked['times']}})\n")
    assert [run.consumed for run in repeat(job(tmp_path)).runs] == [3, 2, 1]


def test_a_crash_is_told_with_the_end_of_what_was_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(monkeypatch, tmp_path, "answer({'run': RUN})\nraise KeyError('no such layer')\n")
    with pytest.raises(RigError, match=r"failed \(exit code 1\)") as crashed:
        repeat(job(tmp_path))
    assert "no such layer" in str(crashed.value.hint)
    assert crashed.value.exit_code == 2


def test_a_signal_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    play(monkeypatch, tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)\n")
    with pytest.raises(RigError, match="ended by SIGSEGV"):
        repeat(job(tmp_path))


def test_an_answer_that_was_cut_off_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    play(monkeypatch, tmp_path, "os.write(int(sys.argv[1]), b'{\"run\": {'); os._exit(3)\n")
    with pytest.raises(RigError, match="exit code 3"):
        repeat(job(tmp_path))


def test_a_rig_that_answers_nothing_does_not_run_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(monkeypatch, tmp_path, "pass\n")
    with pytest.raises(RigError, match="without a single run"):
        repeat(job(tmp_path))


@pytest.mark.parametrize("chatter", ["time.sleep(0.05)", "time.sleep(0.01); print('busy', flush=True)"])
def test_a_silent_rig_is_ended_even_if_it_prints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chatter: str
) -> None:
    monkeypatch.setattr(repeat_module, "SILENCE_S", 0.5)
    pid = tmp_path / "pid"
    play(monkeypatch, tmp_path, f"open({str(pid)!r}, 'w').write(str(os.getpid()))\nwhile True: {chatter}\n")
    started = time.monotonic()
    with pytest.raises(RigError, match="answered nothing for"):
        repeat(job(tmp_path))
    assert time.monotonic() - started < 10
    assert not alive(int(pid.read_text()))


def test_the_rigs_own_errors_keep_their_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    play(monkeypatch, tmp_path, "answer({'error': 'cannot', 'hint': 'do', 'exit_code': 3}); sys.exit(1)\n")
    with pytest.raises(CannotTellError, match="cannot\n  do"):
        repeat(job(tmp_path))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- the real child


@pytest.mark.nixl
def test_a_rig_that_is_killed_in_the_middle_is_one_error(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: int) -> None:
        if done == 5:
            killed.extend(children())
            os.kill(killed[0], signal.SIGKILL)

    started = time.monotonic()
    with pytest.raises(RigError, match="ended by SIGKILL"):
        repeat(job(tmp_path, 100_000), kill)
    assert time.monotonic() - started < 30
    assert not alive(killed[0])


@pytest.mark.nixl
def test_an_interrupt_ends_the_rig(tmp_path: Path) -> None:
    seen: list[int] = []

    def interrupted(done: int) -> None:
        seen.extend(children())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repeat(job(tmp_path, 100_000), interrupted)
    assert seen and not alive(seen[0])


def children() -> list[int]:
    """The processes that this one started and that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and b"tracekv.replay.child" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.nixl
def test_the_working_directory_does_not_shadow_what_the_rig_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('shadow')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    pin = Path(__file__).parents[2] / "sample_traces/bad/resurrection_pin"
    assert replay(open_trace(pin)).reproduced == 1
