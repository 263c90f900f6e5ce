"""N runs of one job, over as many rig processes as it takes.

The promise: it comes back.  A rig that answers nothing for :data:`SILENCE_S` seconds is killed, by its
own process id, however much it prints; and when the caller is interrupted the rig ends with it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tracekv.errors import CannotTellError, TracekvError, UnreadableError, UsageError
from tracekv.replay.drive import Run
from tracekv.replay.job import Job, job_facts, read_run

SILENCE_S: Final = 60.0
LOG_LINES: Final = 8
ERRORS: Final[dict[int, type[TracekvError]]] = {
    kind.exit_code: kind for kind in (UsageError, CannotTellError, UnreadableError)
}


@dataclass(slots=True)
class Repeated:
    """What came of a job: the runs in order, and which manager really ran."""

    manager: str = ""
    runs: list[Run] = field(default_factory=list)


class RigError(UsageError):
    """The rig's process ended without an answer; the text holds the end of what it printed."""


def repeat(job: Job, told: Callable[[int], None] = lambda _: None) -> Repeated:
    """Run ``job``; ``told`` is called after each run with the number of runs so far.

    Raises the rig's own TracekvError, or RigError where its process failed.
    """
    result = Repeated()
    while len(result.runs) < job.times:
        before = len(result.runs)
        for message in _answers(replace(job, times=job.times - before)):
            result.manager = message.get("manager", result.manager)
            if "run" in message:
                result.runs.append(read_run(message["run"]))
                told(len(result.runs))
        if len(result.runs) == before:
            raise RigError("the rig's process ended without a single run")
    return result


def _answers(job: Job) -> Iterator[dict[str, Any]]:
    """The messages of one rig process, in order."""
    read_end, write_end = os.pipe()
    # The rig imports what we import: -m would put the working directory before everything else.
    code = f"import sys; sys.path[:] = {sys.path!r}; from tracekv.replay.child import main; main()"
    command = [sys.executable, "-c", code, str(write_end)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        pass_fds=(write_end,), text=True, errors="replace",
    )  # fmt: skip
    os.close(write_end)
    log: list[str] = []
    try:
        _ask(process, job)
        for line in _lines(read_end, process, log):
            message = json.loads(line)
            if "error" in message:
                raise _error(message)
            yield message
        ended = process.wait(timeout=SILENCE_S)
        if ended != 0:
            raise RigError(f"the rig's process {_how(ended)}", hint=_tail(log))
    except subprocess.TimeoutExpired:
        raise RigError("the rig's process did not end", hint=_tail(log)) from None
    finally:
        os.close(read_end)
        if process.poll() is None:
            process.kill()
        process.wait()


def _ask(process: subprocess.Popen[str], job: Job) -> None:
    """Hand over the job; a process that is gone already is noticed by whoever waits for its answer."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(job_facts(job)))
    with suppress(BrokenPipeError):
        process.stdin.close()


def _how(code: int) -> str:
    """How a process ended, from its return code."""
    if code >= 0:
        return f"failed (exit code {code})"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _lines(descriptor: int, process: subprocess.Popen[str], log: list[str]) -> Iterator[str]:
    """Complete lines from ``descriptor`` until its end; what the process prints goes to ``log``."""
    assert process.stdout is not None
    printed, pending = process.stdout.fileno(), b""
    sources = [descriptor, printed]
    heard = time.monotonic()
    while descriptor in sources:
        ready, _, _ = select.select(sources, [], [], 1.0)
        if descriptor in ready:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE_S:
            raise RigError(f"the rig answered nothing for {SILENCE_S:g} s and was ended", hint=_tail(log))
        for source in ready:
            block = os.read(source, 1 << 16)
            if not block:
                sources.remove(source)
            elif source == printed:
                log.extend(block.decode("utf-8", "replace").splitlines())
                del log[:-200]
            else:
                *complete, pending = (pending + block).split(b"\n")
                yield from (line.decode("utf-8") for line in complete)


def _error(message: dict[str, Any]) -> TracekvError:
    return ERRORS.get(message["exit_code"], UsageError)(message["error"], hint=message.get("hint"))


def _tail(log: list[str]) -> str | None:
    return "\n  ".join(line for line in log[-LOG_LINES:] if line.strip()) or None
