"""Rows back to their line: the longest word that says exactly what the rows say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tracekv.event import Event, Op, State
from tracekv.story.letters import letter_of

_COMPOSITES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("info", (Op.META_RECEIVED, Op.PEER_ADDED, Op.PEER_ADDED, Op.STATUS_WRITTEN)),
    ("clear", (Op.STATUS_DROPPED, Op.PEER_POPPED, Op.ROOM_CLEARED)),
    ("clear", (Op.PEER_POPPED, Op.ROOM_CLEARED)),
    ("init", (Op.ROOM_OPENED, Op.STATUS_WRITTEN)),
)

_PLAIN: Final = {
    Op.ROOM_OPENED: "open",
    Op.ROOM_CLEARED: "cleared",
    Op.STATUS_DROPPED: "drop",
    Op.META_SENT: "info",
    Op.META_RECEIVED: "meta",
    Op.ABORT_SENT: "abort",
    Op.ABORT_RECEIVED: "abort",
    Op.ABORT_REQUESTED: "abort",
    Op.ACK_SENT: "ack",
    Op.ACK_RECEIVED: "ack",
    Op.FAILURE_RECORDED: "err",
    Op.NOTIF_RECEIVED: "notif",
    Op.CONTROL_WAITING: "ctl",
    Op.THREAD_DIED: "die",
    Op.HEARTBEAT: "beat",
}

_NUMBERED: Final = {
    Op.CHUNK_DEQUEUED: "deq",
    Op.CHUNK_SKIPPED: "skip",
    Op.XFER_POSTED: "post",
    Op.XFER_DONE: "done",
    Op.XFER_FAILED: "bad",
}


def tell(events: Iterable[Event], *, room: int = 7) -> str:
    """One line for these rows: the inverse of :func:`story` for every row that the language has a word for.

    Rows without a word (process, manager and seam rows, other threads) are left out, and so is time.
    """
    rows = [event for event in events if letter_of(event.thread) != "?"]
    return " ".join(_words(rows, room))


def _words(rows: Sequence[Event], room: int) -> Iterator[str]:
    states: dict[tuple[int | None, int | None], int] = {}
    at = 0
    while at < len(rows):
        here = rows[at].room
        if here is not None and here != room:
            room = here
            yield f"@{room}"
        name, length = _composite(rows, at, states)
        word = name or _word(rows[at], states)
        for event in rows[at : at + length]:
            _remember(event, states)
        if word:
            yield f"{letter_of(rows[at].thread)}:{word}"
        at += length


def _composite(
    rows: Sequence[Event], at: int, states: dict[tuple[int | None, int | None], int]
) -> tuple[str | None, int]:
    for name, ops in _COMPOSITES:
        group = rows[at : at + len(ops)]
        same = len({(event.thread, event.room) for event in group}) == 1
        if same and tuple(event.op for event in group) == ops and _is_plain(group, states):
            return name, len(ops)
    return None, 1


def _is_plain(group: Sequence[Event], states: dict[tuple[int | None, int | None], int]) -> bool:
    """Whether a group's status rows are those that its word stands for."""
    if group[-1].op == Op.ROOM_CLEARED:  # clear drops the status where there is one, and only there
        there = states.get((group[0].manager, group[0].room), State.ABSENT) != State.ABSENT
        return there == (group[0].op == Op.STATUS_DROPPED)
    for event in group:
        if event.op == Op.STATUS_WRITTEN:
            held = states.get((event.manager, event.room), State.ABSENT)
            opening = State.BOOTSTRAPPING if group[0].op == Op.ROOM_OPENED else State.WAITING
            if (event.requested, event.old, event.new) != (opening, held, max(held, opening)):
                return False
    return True


def _remember(event: Event, states: dict[tuple[int | None, int | None], int]) -> None:
    if event.op == Op.STATUS_WRITTEN and event.new is not None:
        states[(event.manager, event.room)] = event.new
    elif event.op == Op.STATUS_DROPPED:
        states.pop((event.manager, event.room), None)


def _word(event: Event, states: dict[tuple[int | None, int | None], int]) -> str | None:
    if event.op in _PLAIN:
        return _PLAIN[event.op]
    if event.op in _NUMBERED and event.chunk is not None:
        return f"{_NUMBERED[event.op]}{event.chunk}"
    if event.op == Op.STATUS_WRITTEN:
        return _set_word(event, states.get((event.manager, event.room), State.ABSENT))
    return _valued_word(event)


def _set_word(event: Event, held: int) -> str:
    asked = "?" if event.requested is None else str(int(event.requested))
    new = int(event.new) if event.new is not None else 0
    stored = "" if asked == str(new) else f"={new}"
    over = f"<{int(event.old)}" if event.old is not None and event.old != held else ""
    return f"set{asked}{stored}{over}"


def _valued_word(event: Event) -> str | None:
    if event.op == Op.STATUS_REFUSED:
        return f"refuse{event.requested}"
    if event.op == Op.STATUS_CHECKED:
        return "has" if event.attr("call") == "in" else "get"
    if event.op == Op.PEER_CHECKED:
        return "hasinfo" if event.attr("call") == "in" else "getinfo"
    if event.op == Op.PEER_ADDED:
        return "add" if event.peer is None else "peer"
    if event.op == Op.PEER_POPPED:
        return "pop" if event.attr("had", True) else "pop-"
    if event.op == Op.CHUNK_ENQUEUED:
        return f"enq{event.chunk}{'*' if event.last else ''}"
    return _counted_word(event)


def _counted_word(event: Event) -> str | None:
    if event.op == Op.WORKER_WAITING:
        length = event.attr("length", 0)
        return f"wait{length or ''}"
    if event.op == Op.POLL_CHANGED:
        return f"poll{event.new}"
    if event.op == Op.CONCLUDE_SET:
        return f"concl{event.new}"
    if event.op == Op.ROWS_LOST:
        return f"lost{event.attr('n', 0)}"
    return None
