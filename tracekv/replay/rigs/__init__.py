"""What a schedule runs on: one interface, more and more real.

A rig holds one room at a time.  Its actors are the threads that share the room, named by one
letter: ``S`` the scheduler, ``B`` the bootstrap thread, ``W`` the transfer worker, ``D`` the decode
engine.  Between two calls every actor is parked before its next gated event; :meth:`Rig.grant`
lets one of them perform that event and run on, alone, to its next gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tracekv.event import Event, State
from tracekv.seams import Wait

ACTORS = ("S", "B", "W", "D")

THREADS: Mapping[str, str] = {
    "S": "scheduler",
    "B": "bootstrap",
    "W": "worker-0",
    "D": "decode",
}


@dataclass(frozen=True, slots=True)
class Pending:
    """Where an actor stands: the gate before its next event, and whether it can go on.

    ``gate`` is a value of :data:`tracekv.seams.GATE_OF`; ``chunk`` is known at the gates of a chunk
    or of its transfers.  ``waits`` says what a disabled actor waits for.
    """

    actor: str
    gate: str
    chunk: int | None = None
    enabled: bool = True
    waits: Wait = Wait.NOTHING


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to execute, without any order.

    ``pages`` holds the pages of each chunk, in enqueue order; ``abort`` says whether decode aborts
    after it has sent its metadata.
    """

    pages: tuple[int, ...] = (4, 4)
    abort: bool = True


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended, read from the rig's own dictionaries and memory, never from the trace.

    ``polled`` is what the scheduler saw last.  ``pinned``: every actor is parked, none is enabled,
    and the scheduler still waits for a room that is not terminal.  ``left`` names what the room
    left behind after it was cleared (ghost entries).  ``bytes_checked`` counts bytes at decode that
    were compared with their source pages, ``bytes_wrong`` those that differed although their
    transfer was seen done.
    """

    state: State
    polled: State | None
    pinned: bool
    peers: bool = False
    left: tuple[str, ...] = ()
    bytes_checked: int = 0
    bytes_wrong: int = 0
    died: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The end state in one word: the terminal state that released the room, or where it hangs."""
        if self.polled is not None and self.polled.terminal:
            return self.polled.label
        return self.state.label


class Stalled(Exception):
    """An actor did not reach its next gate in time; the text holds its Python stack."""


class Rig(Protocol):
    """The interface of every rig."""

    build: str
    manager: str  # "model", or "real 0.5.14+fork"

    def begin(self, scenario: Scenario) -> int:
        """Start a fresh room with every actor parked at its first gate; returns the room's id."""

    def parked(self) -> Mapping[str, Pending]:
        """Where each living actor stands.  An actor that finished or died is not in it."""

    def grant(self, actor: str) -> Event | None:
        """Let one enabled actor perform its event and run to its next gate.

        Returns the row of the granted event, or ``None`` where it left none (an operation that
        raised).  Raises :class:`Stalled` when the actor does not come to its next gate.
        """

    def end(self) -> End:
        """Read how the room ended, then drain it so that the next room can begin."""

    def reusable(self) -> bool:
        """Whether another room may begin in this process (no thread died, nothing is stuck)."""

    def close(self) -> None:
        """Stop recording and release what the rig holds; the process exits right after."""
