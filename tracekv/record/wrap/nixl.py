"""The NIXL agent: transfers posted and settled, notifications.

A worker spins on ``check_xfer_state`` tens of times for one transfer; what is recorded is the one
change.  Which room a transfer belongs to is what the posting thread took from its queue.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Final

from tracekv.event import Op
from tracekv.record.order import Stamp
from tracekv.record.recorder import Recorder, as_room, to_json

SETTLE_DEADLINE_S: Final = 8.0  # a gated settle gives up then and reports what it saw
_ROOM = re.compile(rb"(\d{1,20})_(\w+)")


@dataclass(slots=True)
class _Flight:
    serial: int
    room: int | None
    chunk: int | None
    last: bool | None


def take_agent(agent: Any, recorder: Recorder, manager: int) -> Any:
    """Record what passes through ``agent``; gives the same agent back."""
    flights: dict[int, _Flight] = {}  # by id() of a handle that the engine holds until it settled
    if hasattr(agent, "transfer") and hasattr(agent, "check_xfer_state"):
        _take_transfer(agent, recorder, manager, flights)
        _take_check(agent, recorder, manager, flights)
    if hasattr(agent, "get_new_notifs"):
        _take_notifs(agent, recorder, manager)
    if hasattr(agent, "send_notif"):
        _take_send_notif(agent, recorder, manager)
    return agent


def _take_transfer(agent: Any, recorder: Recorder, manager: int, flights: dict[int, _Flight]) -> None:
    transfer = agent.transfer

    def recorded_transfer(handle: Any, *args: Any, **kwargs: Any) -> Any:
        here = recorder.here
        if recorder.gate is not None:
            recorder.gate.arrive(Op.XFER_POSTED, manager=manager, room=here.room, chunk=here.chunk)
        flight = _Flight(recorder.next_serial(), here.room, here.chunk, here.last)
        stamp = recorder.order.now()  # before the post: bytes may land at once
        try:
            state = transfer(handle, *args, **kwargs)
        except Exception as error:
            _emit(recorder, Op.XFER_FAILED, manager, flight, reason=recorder.tell(repr, error))
            raise
        if state == "ERR":
            _emit(recorder, Op.XFER_FAILED, manager, flight, reason="ERR")
            return state
        here.posted += 1
        flights[id(handle)] = flight
        _emit(recorder, Op.XFER_POSTED, manager, flight, stamp=stamp)
        return state

    agent.transfer = recorded_transfer


def _take_check(agent: Any, recorder: Recorder, manager: int, flights: dict[int, _Flight]) -> None:
    check = agent.check_xfer_state

    def recorded_check(handle: Any, *args: Any, **kwargs: Any) -> Any:
        flight = flights.get(id(handle))
        if flight is None:
            return check(handle, *args, **kwargs)
        controlled = recorder.gate is not None and recorder.gate.arrive(
            "xfer.settled", manager=manager, room=flight.room, chunk=flight.chunk
        )
        try:
            state = _until_settled(check, handle) if controlled else check(handle, *args, **kwargs)
        except Exception as error:
            flights.pop(id(handle), None)
            _emit(recorder, Op.XFER_FAILED, manager, flight, reason=recorder.tell(repr, error))
            raise
        if state in ("DONE", "ERR"):
            flights.pop(id(handle), None)
            if state == "DONE":
                _emit(recorder, Op.XFER_DONE, manager, flight)
            else:
                _emit(recorder, Op.XFER_FAILED, manager, flight, reason="ERR")
        return state

    agent.check_xfer_state = recorded_check


def _until_settled(check: Any, handle: Any) -> Any:
    """The collapsed busy loop: one event whose body waits for the real handle."""
    deadline = time.monotonic() + SETTLE_DEADLINE_S
    while (state := check(handle)) not in ("DONE", "ERR") and time.monotonic() < deadline:
        time.sleep(0.00005)
    return state


def _emit(recorder: Recorder, op: str, manager: int, flight: _Flight, **columns: Any) -> None:
    recorder.emit(
        op, manager=manager, room=flight.room, chunk=flight.chunk, last=flight.last,
        handle=flight.serial, **columns,
    )  # fmt: skip


def _take_notifs(agent: Any, recorder: Recorder, manager: int) -> None:
    get_new_notifs = agent.get_new_notifs

    def recorded_notifs(*args: Any, **kwargs: Any) -> Any:
        found = get_new_notifs(*args, **kwargs)
        if found:
            recorder.tell(_notified, recorder, manager, found)
        return found

    agent.get_new_notifs = recorded_notifs


def _take_send_notif(agent: Any, recorder: Recorder, manager: int) -> None:
    send_notif = agent.send_notif

    def recorded_send_notif(*args: Any, **kwargs: Any) -> Any:
        stamp = recorder.order.now()  # before the send: the peer may be quicker than we are
        result = send_notif(*args, **kwargs)
        recorder.tell(_sent, recorder, manager, stamp, *args)
        return result

    agent.send_notif = recorded_send_notif


def _sent(recorder: Recorder, manager: int, stamp: Stamp, peer: Any, message: Any, *_: Any) -> None:
    room, kind = _about(message)
    recorder.emit(
        Op.NOTIF_SENT,
        stamp=stamp,
        manager=manager,
        room=room,
        peer=str(peer),
        attrs=to_json({"notif": kind}),
    )


def _about(message: Any) -> tuple[int | None, str | None]:
    """Room and kind of a notification, which begins ``<room>_<kind>`` in every release."""
    match = _ROOM.match(message)
    if match is None:
        return None, None
    return as_room(int(match.group(1))), match.group(2).decode("ascii", "replace")[:64]


def _notified(recorder: Recorder, manager: int, found: Any) -> None:
    for peer, messages in found.items():
        for message in messages:
            room, kind = _about(message)
            recorder.emit(
                Op.NOTIF_RECEIVED, manager=manager, room=room, peer=str(peer), attrs=to_json({"notif": kind})
            )
