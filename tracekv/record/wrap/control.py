"""The control sockets, both ways: which frame came, which was sent, and that the listener lives.

A frame is recognised by its first part, over all releases: NIXL tags every frame, Mooncake tags
some and lets the room's digits stand first in the rest.  A frame is read, never changed; one that is
not understood is passed on and recorded as such.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tracekv.event import ROOM_MAX, Op
from tracekv.record.recorder import Recorder, to_json

GUARD: Final = b"NixlMsgGuard"
STATUS: Final = b"KV_STATUS"
PARTS_READ: Final = 5
BYTES_READ: Final = 256

RECEIVED: Final = {"meta": Op.META_RECEIVED, "abort": Op.ABORT_RECEIVED, "ack": Op.ACK_RECEIVED}
FOREIGN: Final = "x.sglang.frame.received"
SENT: Final = {"meta": Op.META_SENT, "abort": Op.ABORT_SENT, "ack": Op.ACK_SENT}


@dataclass(frozen=True, slots=True)
class Frame:
    """What a control message is: ``kind`` is meta, abort, ack, or ``other`` with its tag."""

    kind: str
    room: int | None = None
    peer: str | None = None
    tag: str | None = None


EMPTY: Final = Frame("other", tag="empty")
UNREADABLE: Final = Frame("other", tag="unreadable")


def read_frame(parts: Any) -> Frame:
    """The meaning of one multipart message; never raises."""
    try:
        return _read([_start_of(part) for part in parts[:PARTS_READ]]) if len(parts) else EMPTY
    except Exception:  # a part may be anything that the engine's socket takes, or refuses to take
        return UNREADABLE


def _read(message: list[bytes]) -> Frame:
    head = message[0]
    if head == b"ABORT":
        return Frame("abort", _room(message[1]), _address(message[2:4]))
    if head == b"ABORT_ACK":
        return Frame("ack", _room(message[1]))
    if head == STATUS or (head.isdigit() and len(message) == 3):  # Mooncake's has no tag
        return Frame("other", _room(message[head == STATUS]), tag="KV_STATUS")
    if head == GUARD:
        message = message[1:]
    elif not head.isdigit() and head != b"None":
        return Frame("other", tag=head[:24].decode("ascii", "replace"))
    if message[0] == b"None":
        return Frame("other", tag="register", peer=_address(message[1:3]))
    return Frame("meta", _room(message[0]), _address(message[1:3]))


def _start_of(part: Any) -> bytes:
    """The first bytes of a part: what we read is short, and a part may be large."""
    return bytes(memoryview(getattr(part, "buffer", part)).cast("B")[:BYTES_READ])


def _room(part: bytes) -> int:
    if not part.isdigit() or not int(part) <= ROOM_MAX:
        raise ValueError(part)
    return int(part)


def _address(parts: list[bytes]) -> str | None:
    return ":".join(part.decode("ascii") for part in parts) if len(parts) == 2 else None


def take_receiving(socket: Any, recorder: Recorder, manager: int, role: str) -> Any:
    """Record what ``socket.recv_multipart`` returns; gives the same socket back."""
    receive = socket.recv_multipart

    def recv_multipart(*args: Any, **kwargs: Any) -> Any:
        recorder.name_thread(role)
        recorder.emit(Op.CONTROL_WAITING, manager=manager)
        if recorder.gate is not None:
            recorder.gate.arrive("control.in", manager=manager, ready=lambda: bool(socket.poll(0)))
        parts = receive(*args, **kwargs)
        frame = read_frame(parts)
        if frame.kind in RECEIVED:
            recorder.here.did = RECEIVED[frame.kind]
            recorder.emit(RECEIVED[frame.kind], manager=manager, room=frame.room, peer=frame.peer)
        else:
            recorder.here.did = FOREIGN
            tag = recorder.tell(to_json, {"tag": frame.tag})
            recorder.emit(FOREIGN, manager=manager, room=frame.room, peer=frame.peer, attrs=tag)
        return parts

    socket.recv_multipart = recv_multipart  # pyzmq allows names that exist on the class
    return socket


def take_sending(socket: Any, recorder: Recorder) -> Any:
    """Record what is sent through ``socket.send_multipart``; gives the same socket back."""
    send: Callable[..., Any] = socket.send_multipart
    if getattr(send, "recorded_by", None) is recorder:
        return socket

    def send_multipart(parts: Any, *args: Any, **kwargs: Any) -> Any:
        frame = read_frame(parts)
        op = SENT.get(frame.kind)
        manager = recorder.here.manager
        if op and recorder.gate is not None:
            recorder.gate.arrive(op, manager=manager, room=frame.room)
        stamp = recorder.order.now()  # before the send: the receiver may be quicker than we are
        result = send(parts, *args, **kwargs)
        if op:
            recorder.emit(op, stamp=stamp, manager=manager, room=frame.room)
        return result

    send_multipart.recorded_by = recorder  # type: ignore[attr-defined]
    socket.send_multipart = send_multipart
    return socket
