"""The rig's own process: reads one job from standard input, answers on the descriptor it was given.

``python -m tracekv.replay.child FD``.  It never returns through the interpreter's shutdown: engine
threads are not daemons, and a transport library may crash there.
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
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        try:
            _serve(read_job(json.load(sys.stdin)), answers)
            code = 0
        except TracekvError as error:
            _say(answers, {"error": error.message, "hint": error.hint, "exit_code": error.exit_code})
            code = 1
        except Stalled as stalled:
            message = "the rig could not begin a room"
            _say(answers, {"error": message, "hint": str(stalled), "exit_code": EXIT_CANNOT_TELL})
            code = 1
        except BaseException:
            traceback.print_exc()
            code = 1
    sys.stderr.flush()
    os._exit(code)


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


if __name__ == "__main__":
    main()
