"""A rig on paper: each actor is a list of gates, and a test says who can go on.

It implements the same protocol as the real ones, so that what the driver says about every kind of
trouble can be provoked one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tracekv.event import Event, State
from tracekv.replay.rigs import End, Pending, Scenario, Stalled
from tracekv.replay.schedule import POLL
from tracekv.seams import Wait

#: An entry of a script: a gate, or a gate and its chunk.
Entry = str | tuple[str, int]


class PaperRig:
    """``scripts`` holds the gates of each actor in order.

    ``blocked`` tells, from what was granted so far, whether an actor cannot go on; ``stalls`` are the
    actors that do not come back from a grant, ``raises`` those whose operation leaves no row, ``dies`` the
    reason with which an actor ends once its script is over.
    """

    build = "paper"
    manager = "paper"

    def __init__(
        self,
        scripts: Mapping[str, Sequence[Entry]],
        *,
        blocked: Callable[[str, list[str]], bool] = lambda actor, granted: False,
        stalls: Sequence[str] = (),
        raises: Sequence[str] = (),
        dies: Mapping[str, str] | None = None,
        end: End | None = None,
    ) -> None:
        self.scripts = scripts
        self.blocked, self.stalls, self.raises, self.dies = blocked, stalls, raises, dies or {}
        self.ended = end or End(State.ABSENT, State.FAILED, pinned=False)
        self.left: dict[str, list[Entry]] = {}
        self.granted: list[str] = []
        self.ends = 0

    def begin(self, scenario: Scenario) -> int:
        self.left = {actor: list(gates) for actor, gates in self.scripts.items()}
        self.granted = []
        return 7

    def parked(self) -> Mapping[str, Pending]:
        return {actor: self._pending(actor, gates[0]) for actor, gates in self.left.items() if gates}

    def _pending(self, actor: str, entry: Entry) -> Pending:
        gate, chunk = (entry, None) if isinstance(entry, str) else entry
        waits = {POLL: Wait.VALUE_CHANGED, "control.in": Wait.FRAME_ANNOUNCED}.get(gate, Wait.NOTHING)
        gate = "status.checked" if gate == POLL else gate
        return Pending(actor, gate, chunk, not self.blocked(actor, self.granted), waits)

    def grant(self, actor: str) -> Event | None:
        assert not self.blocked(actor, self.granted), f"{actor} was granted although it is blocked"
        if actor in self.stalls:
            raise Stalled(f"{actor} did not reach its next gate; it is at\n  worker.py:12 in spin")
        entry = self.left[actor].pop(0)
        gate = entry if isinstance(entry, str) else entry[0]
        self.granted.append(f"{actor} {gate}")
        return None if actor in self.raises else Event(seq=len(self.granted), op=gate, process="paper")

    def end(self) -> End:
        self.ends += 1
        died = {actor: why for actor, why in self.dies.items() if not self.left[actor]}
        return End(self.ended.state, self.ended.polled, self.ended.pinned, died=died)

    def reusable(self) -> bool:
        return not self.dies

    def close(self) -> None: ...
