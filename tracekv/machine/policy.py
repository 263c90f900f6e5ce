"""What builds do differently, as data: the model has one program and many policies.

A policy holds only choices that a line of the build's source makes.  It promises nothing about
which of them are right: whether a policy pins a room is for :mod:`tracekv.machine.search` to find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

from tracekv.event import State


class Merge(Enum):
    """How ``update_status`` stores into an entry that exists."""

    MAX = "the larger of the two, and Failed always overwrites"
    FAILED_STICKY = "as max, behind an override that reads first and lets nothing overwrite Failed"
    TERMINAL_STICKY = "reads request_status[room] first; Failed and Success are never overwritten"


class Guard(Enum):
    """What the transfer worker asks before it works on a chunk."""

    ASSERT = "Failed: skip; no peers: AssertionError, caught, which writes Failed"
    PEERS = "no peers, or Failed: skip"
    STATUS = "no status, or Failed: skip"


class Abort(Enum):
    """What the bootstrap thread does with an ABORT frame."""

    DIES = "no handler: the assert on the frame's guard kills the thread"
    FAILS = "marks the room Failed where it is present and not Success"


OPENING_STATES: Final = frozenset({State.BOOTSTRAPPING, State.WAITING, State.TRANSFERRING, State.SUCCESS})


@dataclass(frozen=True, slots=True)
class Policy:
    """The choices of one build.  The defaults are SGLang 0.5.14 on NIXL, unmodified.

    ``creates`` holds the states that may create an absent entry.  ``abort_pops``: the ABORT handler
    pops ``transfer_infos`` whatever it found.  ``transferring``: the worker writes Transferring
    before each chunk and after each but the last.  ``skip_concludes``: a skipped chunk of a room
    that is not terminal writes Failed.  ``absent_reads`` is what ``check_status`` answers for an
    absent room, ``None`` for a KeyError.  ``worker_catches``: an exception in the worker writes
    Failed instead of ending the thread.  ``bootstrap_timeout``: the sender's poll fails a room that
    stays Bootstrapping.  ``waiting_timeout``: a decode engine that waits in vain sends ABORT.
    ``success_pops``: the worker pops ``transfer_infos`` after it wrote Success.  ``peer_reads``
    counts the reads of ``transfer_infos[room]`` while one metadata frame is handled.
    """

    merge: Merge = Merge.MAX
    creates: frozenset[State] = OPENING_STATES
    abort: Abort = Abort.DIES
    abort_pops: bool = False
    guard: Guard = Guard.ASSERT
    transferring: bool = True
    skip_concludes: bool = False
    absent_reads: State | None = State.WAITING
    worker_catches: bool = True
    bootstrap_timeout: bool = False
    waiting_timeout: bool = True
    success_pops: bool = True
    peer_reads: int = 4


_STOCK = Policy()
_FORK = replace(_STOCK, abort=Abort.FAILS, abort_pops=True, guard=Guard.PEERS)
_FIX_A = replace(_FORK, merge=Merge.TERMINAL_STICKY)

#: One policy for each build that the model knows.  ``mooncake`` is *Mooncake-like*: the three
#: choices that keep Mooncake from pinning and its timeout, on the NIXL worker's program.
POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        "0.5.14": _STOCK,
        "0.5.14+fork": _FORK,
        "0.5.14+fork+fix-a": _FIX_A,
        "0.5.14+fork+fix-b": replace(_FORK, skip_concludes=True),
        "0.5.14+fork+fix-a+fix-b": replace(_FIX_A, skip_concludes=True),
        "0.5.16": replace(_STOCK, merge=Merge.FAILED_STICKY, abort=Abort.FAILS, peer_reads=5),
        "mooncake": replace(
            _STOCK,
            abort=Abort.FAILS,
            guard=Guard.STATUS,
            transferring=False,
            bootstrap_timeout=True,
            peer_reads=3,
        ),
    }
)
