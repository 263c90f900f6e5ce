"""Control messages over real sockets: what is read off them, and that nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded import Recorded
from tracekv.event import ROOM_MAX, Event, Op
from tracekv.record.wrap.control import FOREIGN, GUARD, Frame, read_frame, take_receiving, take_sending

ROOM = 2**63 + 5
DIGITS = str(ROOM).encode()
WHERE = [b"127.0.0.1", b"4711"]
BIG = bytes(4 << 20)

META = [GUARD, DIGITS, *WHERE, b"agent", b"\xff\x00", b"0"]
MOONCAKE_META = [DIGITS, *WHERE, b"session", b"", b"", b"", b"1"]
FRAMES: dict[str, tuple[list[bytes], Frame]] = {
    "meta": (META, Frame("meta", ROOM, "127.0.0.1:4711")),
    "meta, untagged": (MOONCAKE_META, Frame("meta", ROOM, "127.0.0.1:4711")),
    "register": ([GUARD, b"None", *WHERE, b"agent"], Frame("other", None, "127.0.0.1:4711", "register")),
    "register, untagged": ([b"None", *WHERE, b"s"], Frame("other", None, "127.0.0.1:4711", "register")),
    "abort": ([b"ABORT", DIGITS, *WHERE], Frame("abort", ROOM, "127.0.0.1:4711")),
    "abort, generation": ([b"ABORT", DIGITS, *WHERE, b"7"], Frame("abort", ROOM, "127.0.0.1:4711")),
    "ack": ([b"ABORT_ACK", DIGITS], Frame("ack", ROOM)),
    "status": ([b"KV_STATUS", DIGITS, b"4", b"0"], Frame("other", ROOM, None, "KV_STATUS")),
    "status, untagged": ([DIGITS, b"4", b"0"], Frame("other", ROOM, None, "KV_STATUS")),
    "watermark": ([b"WATERMARK", b"1"], Frame("other", None, None, "WATERMARK")),
    "foreign": ([b"GET / HTTP/1.1\r\n"], Frame("other", None, None, "GET / HTTP/1.1\r\n")),
    "empty": ([b""], Frame("other", None, None, "")),
    "room that is no number": ([GUARD, b"r\xc3\xb6m", *WHERE], Frame("other", None, None, "unreadable")),
    "room too large": ([b"ABORT", str(ROOM_MAX + 1).encode()], Frame("other", None, None, "unreadable")),
    "room with a sign": ([b"ABORT", b"-5"], Frame("other", None, None, "unreadable")),
    "abort without a room": ([b"ABORT"], Frame("other", None, None, "unreadable")),
    "large": ([*META[:4], BIG], Frame("meta", ROOM, "127.0.0.1:4711")),
    "large head": ([BIG], Frame("other", None, None, "\0" * 24)),
    "address that is no text": ([b"ABORT", DIGITS, b"\xff", b"\xfe"], Frame("other", tag="unreadable")),
}
OPS = {
    "meta": (Op.META_SENT, Op.META_RECEIVED),
    "abort": (Op.ABORT_SENT, Op.ABORT_RECEIVED),
    "ack": (Op.ACK_SENT, Op.ACK_RECEIVED),
    "other": (None, FOREIGN),
}


@pytest.fixture(params=["inproc", "tcp"])
def sockets(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A PUSH and a PULL socket, as SGLang uses them."""
    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.rcvtimeo = push.sndtimeo = 5000
    if request.param == "tcp":
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
    else:
        pull.bind("inproc://tracekv")
        push.connect("inproc://tracekv")
    yield push, pull
    context.destroy(linger=0)


def columns(row: Event) -> tuple[Any, ...]:
    return row.op, row.room, row.manager


@pytest.mark.parametrize("name", FRAMES)
def test_frames_pass_unchanged_and_are_recorded(name: str, sockets: tuple[Any, Any]) -> None:
    parts, meaning = FRAMES[name]
    assert read_frame(parts) == meaning
    recorder = Recorded()
    push = take_sending(sockets[0], recorder)
    pull = take_receiving(sockets[1], recorder, 4, "bootstrap")
    assert (push, pull) == sockets
    push.send_multipart(parts)
    assert pull.recv_multipart() == parts
    sent, received = OPS[meaning.kind]
    expected: list[Any] = [(sent, meaning.room, None)] if sent else []
    expected += [(Op.CONTROL_WAITING, None, 4), (received, meaning.room, 4)]
    assert [columns(row) for row in recorder.rows] == expected
    last = recorder.rows[-1]
    assert last.peer == meaning.peer and last.attr("tag") == meaning.tag
    assert {row.thread for row in recorder.rows[-2:]} == {"bootstrap"}
    assert not recorder.troubles


def test_what_was_sent_is_numbered_before_what_was_received(sockets: tuple[Any, Any]) -> None:
    recorder = Recorded()
    push = take_sending(sockets[0], recorder)
    pull = take_receiving(sockets[1], recorder, 0, "bootstrap")
    push.send_multipart(META)
    pull.recv_multipart()
    sent, received = recorder.of(Op.META_SENT) + recorder.of(Op.META_RECEIVED)
    assert sent.seq < received.seq and (sent.mono_ns or 0) < (received.mono_ns or 0)


def test_zmq_frames_and_options_pass_too(sockets: tuple[Any, Any]) -> None:
    recorder = Recorded()
    push = take_sending(sockets[0], recorder)
    pull = take_receiving(sockets[1], recorder, 0, "bootstrap")
    push.send_multipart([zmq.Frame(b"ABORT"), memoryview(DIGITS), *WHERE], flags=0, copy=False)
    assert [part.bytes for part in pull.recv_multipart(copy=False)] == [b"ABORT", DIGITS, *WHERE]
    assert [row.room for row in recorder.rows] == [ROOM, None, ROOM]


def test_a_socket_is_taken_once(sockets: tuple[Any, Any]) -> None:
    recorder = Recorded()
    for _ in range(3):  # the engine asks for the same socket at each send
        take_sending(sockets[0], recorder)
    sockets[0].send_multipart(META)
    assert len(recorder.of(Op.META_SENT)) == 1


@pytest.mark.parametrize("parts", [5, None, [5], ["text"], [None], [b"ABORT", None]])
def test_what_the_socket_refuses_is_refused_by_the_socket(parts: Any, sockets: tuple[Any, Any]) -> None:
    with pytest.raises(Exception) as plain:
        sockets[0].send_multipart(parts)
    push = take_sending(sockets[0], Recorded())
    with pytest.raises(plain.type) as ours:
        push.send_multipart(parts)
    assert str(ours.value) == str(plain.value)


def test_a_timeout_of_the_socket_is_the_engines(sockets: tuple[Any, Any]) -> None:
    recorder = Recorded()
    pull = take_receiving(sockets[1], recorder, 0, "bootstrap")
    pull.rcvtimeo = 1
    with pytest.raises(zmq.Again):
        pull.recv_multipart()
    assert [row.op for row in recorder.rows] == [Op.CONTROL_WAITING]


TAGS = [b"ABORT", b"ABORT_ACK", b"KV_STATUS", GUARD, b"None", DIGITS]
PART = st.binary(max_size=30) | st.sampled_from(TAGS)
ANYTHING = st.one_of(
    st.lists(PART, max_size=6),
    st.lists(PART | st.none() | st.text(max_size=3) | st.integers() | st.floats(), max_size=6),
    st.none() | st.integers() | st.binary(max_size=8) | st.text(max_size=8),
)


@given(ANYTHING)
def test_reading_never_raises(parts: Any) -> None:
    frame = read_frame(parts)
    assert frame.kind in OPS
    assert frame.room is None or 0 <= frame.room <= ROOM_MAX
