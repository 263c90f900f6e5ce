"""The decode side of a modelled room: the rows of one receiver, from its constructor to clear().

The model decides when decode sends; this file only tells what the receiver did around it.  It keeps
to the receivers of SGLang up to 0.5.22 on NIXL, whose Success lives in ``conclude_state`` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracekv.event import Op, State

Emit = Callable[..., Any]


class Receiver:
    """One room at decode; ``emit(op, **columns)`` leaves a row of its manager and thread."""

    def __init__(self, emit: Emit, awaited: int) -> None:
        self._emit = emit
        self._awaited = awaited  # notifications that make up the whole room

    def opens(self) -> None:
        """The constructor, just before the metadata goes out."""
        self._emit(Op.ROOM_OPENED)
        self._write(State.BOOTSTRAPPING, old=State.ABSENT)

    def waits(self) -> None:
        """The first poll after the metadata went out, where nobody is about to abort."""
        self._emit(Op.POLL_CHANGED, new=int(State.WAITING))

    def gives_up(self) -> None:
        """abort(), up to the frame that it sends."""
        self._emit(Op.ABORT_REQUESTED)
        self._emit(Op.FAILURE_RECORDED, reason="Aborted by AbortReq.")
        self._write(State.FAILED, old=State.BOOTSTRAPPING)
        self._emit(Op.CONCLUDE_SET, new=int(State.FAILED))

    def gave_up(self) -> None:
        """clear(), after the frame went out."""
        self._clear(State.FAILED)

    def notified(self, **columns: Any) -> None:
        """A notification arrived; the last one concludes the room."""
        self._emit(Op.NOTIF_RECEIVED, **columns)
        self._awaited -= 1
        if self._awaited == 0:
            self._emit(Op.CONCLUDE_SET, new=int(State.SUCCESS))
            self._emit(Op.POLL_CHANGED, old=int(State.WAITING), new=int(State.SUCCESS))
            self._clear(State.BOOTSTRAPPING)

    def _write(self, state: State, *, old: State) -> None:
        self._emit(Op.STATUS_WRITTEN, requested=int(state), old=int(old), new=int(state))

    def _clear(self, held: State) -> None:
        self._emit(Op.STATUS_DROPPED, old=int(held))
        self._emit(Op.ROOM_CLEARED)
