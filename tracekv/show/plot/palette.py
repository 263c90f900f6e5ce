"""What each state and each operation looks like: colour, hatch, marker, word.

One promise: nothing is told by colour alone.  Colours are Okabe and Ito's set, which people with
any colour vision can tell apart; states differ by hatch and by word too, marks by shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracekv.event import Event, Op, State, state_label

BLACK: Final = "#000000"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
YELLOW: Final = "#F0E442"
BLUE: Final = "#0072B2"
VERMILLION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#777777"
PALE: Final = "#F4F4F4"
WHITE: Final = "#FFFFFF"


@dataclass(frozen=True, slots=True)
class Shade:
    """How one state fills a band: its face, the colour of words on it, its hatch, a short word."""

    face: str
    ink: str
    hatch: str
    short: str


SHADES: Final[dict[int, Shade]] = {
    State.ABSENT: Shade(WHITE, BLACK, "", "absent"),
    State.FAILED: Shade(VERMILLION, BLACK, "xx", "Fail"),
    State.BOOTSTRAPPING: Shade(YELLOW, BLACK, "", "Boot"),
    State.WAITING: Shade(SKY, BLACK, "..", "Wait"),
    State.TRANSFERRING: Shade(BLUE, WHITE, "//", "Xfer"),
    State.SUCCESS: Shade(GREEN, BLACK, "--", "OK"),
}
UNKNOWN_SHADE: Final = Shade("#BBBBBB", BLACK, "\\\\", "?")


@dataclass(frozen=True, slots=True)
class Look:
    """How one kind of mark looks.  ``rank`` says whose label wins where room is short: 0 is first."""

    kind: str
    marker: str
    face: str
    rank: int
    word: str


LOOKS: Final[dict[str, Look]] = {
    Op.THREAD_DIED: Look("thread died", "X", BLACK, 0, "thread died"),
    Op.ABORT_REQUESTED: Look("abort", "X", ORANGE, 1, "abort()"),
    Op.ABORT_SENT: Look("abort", "X", VERMILLION, 1, "ABORT"),
    Op.ABORT_RECEIVED: Look("abort", "X", VERMILLION, 1, "ABORT"),
    Op.PEER_POPPED: Look("peer info popped", "v", BLACK, 2, "pop"),
    Op.CHUNK_SKIPPED: Look("chunk skipped", "D", WHITE, 2, "skip"),
    Op.ROOM_CLEARED: Look("room cleared", "<", BLACK, 3, "clear"),
    Op.ROOM_OPENED: Look("room opened", ">", BLACK, 3, "open"),
    Op.CONCLUDE_SET: Look("concluded", "p", ORANGE, 4, "concludes"),
    Op.STATUS_REFUSED: Look("write refused", "s", WHITE, 4, "refused"),
    Op.STATUS_DROPPED: Look("status dropped", "s", "#BBBBBB", 8, "drop"),
    Op.CHUNK_ENQUEUED: Look("chunk queued / taken", "D", ORANGE, 5, "put"),
    Op.CHUNK_DEQUEUED: Look("chunk queued / taken", "D", ORANGE, 5, "get"),
    Op.FAILURE_RECORDED: Look("failure recorded", "P", VERMILLION, 6, "failure"),
    Op.META_SENT: Look("metadata", "o", SKY, 6, "meta"),
    Op.META_RECEIVED: Look("metadata", "o", SKY, 6, "meta"),
    Op.ACK_SENT: Look("abort acknowledged", "o", WHITE, 6, "ACK"),
    Op.ACK_RECEIVED: Look("abort acknowledged", "o", WHITE, 6, "ACK"),
    Op.NOTIF_SENT: Look("notification", "h", PURPLE, 7, "notif"),
    Op.NOTIF_RECEIVED: Look("notification", "h", PURPLE, 7, "notif"),
    Op.PEER_ADDED: Look("peer info added", "^", WHITE, 7, "add"),
    Op.POLL_CHANGED: Look("poll changed", "d", YELLOW, 7, "polls"),
    Op.STATUS_WRITTEN: Look("status written, in its colour", "s", GREY, 9, ""),
    Op.PREFIX_ADDED: Look("prefix length", "1", BLACK, 10, ""),
    Op.PREFIX_POPPED: Look("prefix length", "1", BLACK, 10, ""),
    Op.XFER_FAILED: Look("transfer failed", "X", PURPLE, 3, "failed"),
}
OTHER: Final = Look("other row", ".", GREY, 10, "")

#: Rows that change nothing: tiny ticks, and the first to go where the picture is crowded.
READS: Final = frozenset({Op.STATUS_CHECKED, Op.PEER_CHECKED, Op.WORKER_WAITING, Op.CONTROL_WAITING})
#: Rows whose place is taken by a bar.
BARRED: Final = frozenset({Op.XFER_POSTED, Op.XFER_DONE})


def shade(state: int) -> Shade:
    """The fill of a state; a number that SGLang does not know gets a fill of its own."""
    return SHADES.get(state, UNKNOWN_SHADE)


def look(op: str) -> Look:
    """The mark of an operation; an adapter's own operation is a small dot."""
    return LOOKS.get(op, OTHER)


def face(event: Event) -> str:
    """A mark's fill: a write carries the state that it stored; a pop of nothing is hollow."""
    if event.op == Op.STATUS_WRITTEN and event.new is not None:
        return shade(event.new).face
    if event.op == Op.PEER_POPPED and event.attr("had") is False:
        return WHITE
    return look(event.op).face


def word(event: Event) -> str:
    """The few letters beside a mark."""
    text = look(event.op).word
    if event.op in (Op.STATUS_WRITTEN, Op.CONCLUDE_SET, Op.POLL_CHANGED):
        return f"{text} {state_label(event.new)}".strip() if event.new is not None else text
    if event.op == Op.STATUS_REFUSED:
        return f"{state_label(event.requested)} refused"
    if event.chunk is not None:
        return f"{text} c{event.chunk}" + (" (last)" if event.last else "")
    if event.op == Op.PEER_POPPED and event.attr("had") is False:
        return "pop: empty"
    return text
