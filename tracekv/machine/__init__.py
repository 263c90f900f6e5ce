"""The executable model of one room on the prefill side: one ``step`` for every build.

It drives the proof that a room is pinned, the replay on the model rig, and the docs.  Its promise:
the same state, action and policy always give the same next state, and the end states that it finds
for a build are those that the build's own code was seen to reach.

Standard library only.
"""

from __future__ import annotations

from tracekv.machine.policy import POLICIES, Abort, Guard, Merge, Policy
from tracekv.machine.run import Row
from tracekv.machine.search import Ending, Proof, count, ending, explore, settles
from tracekv.machine.state import Action, Actor, RoomState, observed, opening
from tracekv.machine.steps import Parked, Performed, enabled, outcomes, parked, perform, step

__all__ = [
    "POLICIES",
    "Abort",
    "Action",
    "Actor",
    "Ending",
    "Guard",
    "Merge",
    "Parked",
    "Performed",
    "Policy",
    "Proof",
    "RoomState",
    "Row",
    "count",
    "enabled",
    "ending",
    "explore",
    "observed",
    "opening",
    "outcomes",
    "parked",
    "perform",
    "settles",
    "step",
]
