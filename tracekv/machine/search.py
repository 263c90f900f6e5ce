"""Every way in which a room can go on: whether one of them lets it settle, and how all of them end.

Both searches are exhaustive, breadth first, over a finite graph of frozen states, so a witness is
as short as any.  A proof that a room is pinned is worth what its state is worth: it says that no
thread's program can end the room, once the environment does only what it has already begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tracekv.event import State
from tracekv.machine.policy import Policy
from tracekv.machine.state import Action, RoomState
from tracekv.machine.steps import enabled, outcomes, step

Path = tuple[Action, ...]
_Moves = Callable[[RoomState, Policy], tuple[Action, ...]]
_Came = dict[RoomState, "tuple[RoomState, Action] | None"]


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether the scheduler can still see a terminal state.

    ``states`` counts the states visited: all that are reachable where ``settles`` is false, which
    makes it a proof that the room is pinned.  ``witness`` is a shortest way to settle.
    """

    settles: bool
    states: int
    witness: Path = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """A state in which no actor can go on, without the locals that no longer matter.

    ``polled`` is what the scheduler saw last; ``concluded`` that it released the room.
    """

    concluded: bool
    polled: State | None
    status: State
    peers: bool
    queued: int
    died: tuple[str, ...] = ()

    @property
    def pinned(self) -> bool:
        """Whether the scheduler waits for ever, none of its own threads having ended."""
        return not self.concluded and "S" not in self.died

    @property
    def label(self) -> str:
        """The state that released the room, or the state at which it hangs."""
        seen = self.polled if self.concluded and self.polled is not None else self.status
        return seen.label


def settles(state: RoomState, policy: Policy) -> Proof:
    """Whether any continuation of ``state`` lets the scheduler see Failed or Success.

    Continuations are all interleavings of what the actors have still to do, the timeouts that the
    policy arms, and the failure of transfers that are in flight.  Not among them: a client's abort
    at the scheduler, a restart, a second room with the same id.
    """
    came: _Came = {}
    for reached in _reachable(state, policy, _all_moves, came):
        if reached.concluded:
            return Proof(True, len(came), _path(came, reached))
    return Proof(False, len(came))


def explore(policy: Policy, start: RoomState) -> dict[Ending, Path]:
    """Every end of every interleaving from ``start``, each with a shortest way to it.

    Time stands still and no transfer fails, so an end is a state in which nothing moves by itself.
    """
    came: _Came = {}
    ends: dict[Ending, Path] = {}
    for reached in _reachable(start, policy, enabled, came):
        if not enabled(reached, policy):
            ends.setdefault(ending(reached), _path(came, reached))
    return ends


def count(policy: Policy, start: RoomState) -> int:
    """How many states all interleavings from ``start`` reach."""
    return sum(1 for _ in _reachable(start, policy, enabled, {}))


def ending(state: RoomState) -> Ending:
    """How a room that no longer moves has ended."""
    return Ending(
        concluded=state.concluded,
        polled=state.polled,
        status=state.status,
        peers=state.peers,
        queued=len(state.queue),
        died=tuple(sorted(state.died)),
    )


def _all_moves(state: RoomState, policy: Policy) -> tuple[Action, ...]:
    return enabled(state, policy) + outcomes(state, policy)


def _reachable(start: RoomState, policy: Policy, moves: _Moves, came: _Came) -> Iterator[RoomState]:
    """Every state from ``start`` on, nearest first; ``came`` is filled with how each was reached."""
    came[start] = None
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        yield state
        for action in moves(state, policy):
            after = step(state, action, policy)
            if after not in came:
                came[after] = (state, action)
                waiting.append(after)


def _path(came: _Came, reached: RoomState) -> Path:
    path: list[Action] = []
    link = came[reached]
    while link is not None:
        path.append(link[1])
        link = came[link[0]]
    return tuple(reversed(path))
