"""The rig's own process: reads one job from standard input, answers on the descriptor it was given.

It never returns through the interpreter's shutdown: engine threads are not daemons, and a transport
library may crash there.  When the caller is gone, so is this process at its next answer.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from tracekv.errors import EXIT_CANNOT_TELL, TracekvError
from tracekv.replay.drive import run_once
from tracekv.replay.job import Job, read_job, run_facts
from tracekv.replay.rigs import Rig, Stalled


def main() -> None:
    """Serve one job and leave the process."""
    code = 1
    try:
        with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
            code = _answered(answers)
        sys.stderr.flush()
    finally:  # whatever the streams do: nobody may be there to read them
        os._exit(code)


def _answered(answers: TextIO) -> int:
    """Serve the job on standard input; the exit code of the process."""
    try:
        _serve(read_job(json.load(sys.stdin)), answers)
        return 0
    except TracekvError as error:
        _say(answers, {"error": error.message, "hint": error.hint, "exit_code": error.exit_code})
    except Stalled as stalled:
        message = "the rig could not begin a room"
        _say(answers, {"error": message, "hint": str(stalled), "exit_code": EXIT_CANNOT_TELL})
    except BaseException:
        traceback.print_exc()
    return 1


def _serve(job: Job, answers: TextIO) -> None:
    rig = make_rig(job)
    _say(answers, {"manager": rig.manager})
    for _ in range(job.times):
        _say(answers, {"run": run_facts(run_once(rig, job.scenario, job.schedule))})
        if not rig.reusable():
            break
    rig.close()


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def make_rig(job: Job) -> Rig:
    """The rig that a job names, ready to begin."""
    folder = Path(job.folder)
    if job.rig == "nixl":
        from tracekv.replay.rigs.nixl import recorded_rig

        return recorded_rig(job.build, folder)
    from tracekv.replay.rigs.build import parse_build
    from tracekv.replay.rigs.sglang import SglangRig

    return SglangRig(parse_build(job.build), Path(job.source or ""), folder)
