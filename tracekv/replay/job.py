"""What a rig's process is asked, and what it answers: plain JSON, one line a message.

A rig lives in a process of its own.  Real managers cannot be unloaded, a thread that died cannot be
raised, and a transport that crashes takes its process along; none of that may touch the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tracekv.event import State
from tracekv.replay.drive import Divergence, Run
from tracekv.replay.rigs import End, Scenario
from tracekv.replay.schedule import Schedule, Step


@dataclass(frozen=True, slots=True)
class Job:
    """Execute ``scenario`` ``times`` times in the order of ``schedule``.

    ``rig`` is ``nixl`` or ``sglang``; ``source`` is the folder that holds ``sglang/`` for the latter;
    ``folder`` receives the spool.
    """

    rig: str
    build: str
    folder: str
    scenario: Scenario
    schedule: Schedule
    times: int
    source: str | None = None


def job_facts(job: Job) -> dict[str, Any]:
    """A job as JSON knows it."""
    return asdict(job)


def read_job(facts: Mapping[str, Any]) -> Job:
    """The job of :func:`job_facts`."""
    scenario, schedule = facts["scenario"], facts["schedule"]
    return Job(
        **{
            **facts,
            "scenario": Scenario(tuple(scenario["pages"]), scenario["abort"]),
            "schedule": Schedule(schedule["kind"], tuple(Step(**step) for step in schedule["steps"])),
        }
    )


def run_facts(run: Run) -> dict[str, Any]:
    """A run as JSON knows it; the room as text, since it may exceed 2**53."""
    end = asdict(run.end) | {"died": dict(run.end.died)}
    diverged = None if run.divergence is None else asdict(run.divergence)
    return {"room": str(run.room), "consumed": run.consumed, "end": end, "divergence": diverged}


def read_run(facts: Mapping[str, Any]) -> Run:
    """The run of :func:`run_facts`."""
    end = dict(facts["end"])
    end["state"] = State(end["state"])
    end["polled"] = None if end["polled"] is None else State(end["polled"])
    end["left"] = tuple(end["left"])
    return Run(int(facts["room"]), End(**end), facts["consumed"], read_divergence(facts["divergence"]))


def read_divergence(facts: Mapping[str, Any] | None) -> Divergence | None:
    """A divergence from its JSON, ``None`` for none."""
    if facts is None:
        return None
    return Divergence(**{**facts, "enabled": tuple(facts["enabled"]), "last": tuple(facts["last"])})
