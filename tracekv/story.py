"""The mini language: one line is one history, read to rows and printed back.

A word is ``THREAD:what``.  The threads are the four that share a room: ``S`` the scheduler, ``B`` the
bootstrap thread, ``W`` the first transfer worker (``W1`` the second), ``D`` the decode engine.  The
promise: the rows say exactly what the line says, and ``tell(story(line))`` is the line again.

==================  ==========================================================================
``init``            the constructor: ``room.opened``, then Bootstrapping is stored over what is there
``open``            ``room.opened`` alone
``info``            ``B``: metadata arrives, both peer entries are added, WaitingForInput is stored
                    (``D``: the metadata is sent)
``meta``            the metadata frame alone
``add`` ``peer``    the room's entry in ``transfer_infos``; a peer inside of it
``pop`` ``pop-``    the entry is popped; a pop that found nothing
``set3``            State 3 is stored over what is there; ``set1=4``: 1 was asked for, 4 was stored;
                    ``set?=3``: not through ``update_status``; ``set3<0``: over 0, whatever was told before
``refuse3``         3 was asked for and nothing was stored
``drop``            the status entry is removed
``get`` ``has``     the status is read; its key is tested
``hasinfo``         the peer entry's key is tested (``getinfo``: it is read)
``enq0`` ``enq1*``  a chunk is enqueued; ``*`` marks the last one
``deq0`` ``skip0``  a chunk is dequeued; skipped
``wait``            the worker is back at its queue (``wait2``: with two chunks in it)
``post0`` ``done0`` a transfer is posted, is seen done (``bad0``: has failed)
``abort``           ``B``: the frame is received; ``D``: is sent; ``S``: is asked for locally
``ack``             the acknowledgement is sent (``D``: is received)
``err``             a failure is recorded
``poll3``           the poll's result changed to 3
``concl4``          ``conclude_state`` is set to 4
``clear``           the scheduler clears: both entries are removed, then ``room.cleared``
``cleared``         ``room.cleared`` alone
``notif``           a notification is received
``ctl``             the control thread is back at its socket
``die``             the thread died
``beat``            a heartbeat
``lost5``           five rows were lost
==================  ==========================================================================

Two words have no thread: ``@8`` goes on with room 8 (decimal or hex), ``+30s`` (``ms``, ``us``) lets time
pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tracekv.event import Event, Op, State, parse_room
from tracekv.seams import SEAM_NAMES

THREADS: Final = {"S": "scheduler", "B": "bootstrap", "W": "worker-0", "D": "decode"}
STEP_NS: Final = 1_000_000
EPOCH_NS: Final = 1_750_000_000_000_000_000
DECODE_MANAGER: Final = 1

_WORD = re.compile(r"^(?P<letter>[SBD]|W\d*):(?P<verb>[a-z]+-?)(?P<tail>[\d?=<*-]*)$")
_PASS = re.compile(r"^\+(\d+)(s|ms|us)$")
_UNITS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000}


class StoryError(ValueError):
    """A word that the mini language does not know."""


@dataclass
class _Teller:
    """What has been told so far: the clock, the room, and what each dictionary holds."""

    process: str
    room: int
    seq: int
    now: int = 0
    rows: list[Event] = field(default_factory=list)
    states: dict[tuple[int, int], int] = field(default_factory=dict)
    infos: set[tuple[int, int]] = field(default_factory=set)
    lasts: dict[tuple[int, int, int], bool] = field(default_factory=dict)
    polled: dict[tuple[int, int], int] = field(default_factory=dict)

    def row(self, letter: str, op: str, *, room: bool = True, attrs: Any = None, **columns: Any) -> None:
        """Append one row of ``letter``'s thread."""
        self.rows.append(
            Event(
                seq=self.seq,
                op=op,
                process=self.process,
                thread=thread_of(letter),
                tid=100 + "SBWD".index(letter[0]),
                manager=manager_of(letter),
                mono_ns=self.now,
                wall_ns=EPOCH_NS + self.now,
                room=self.room if room else None,
                attrs=json.dumps(attrs) if attrs is not None else None,
                **columns,
            )
        )
        self.seq += 1
        self.now += STEP_NS

    def key(self, letter: str) -> tuple[int, int]:
        return manager_of(letter), self.room

    def held(self, letter: str) -> int:
        return self.states.get(self.key(letter), State.ABSENT)

    def store(self, letter: str, requested: int | None, new: int, old: int | None = None) -> None:
        found = self.held(letter) if old is None else old
        asked = None if requested is None else int(requested)
        self.row(letter, Op.STATUS_WRITTEN, requested=asked, old=int(found), new=int(new))
        self.states[self.key(letter)] = int(new)

    def drop(self, letter: str) -> None:
        self.row(letter, Op.STATUS_DROPPED, old=int(self.held(letter)))
        self.states.pop(self.key(letter), None)

    def add(self, letter: str, peer: str | None) -> None:
        self.row(letter, Op.PEER_ADDED, peer=peer)
        self.infos.add(self.key(letter))

    def pop(self, letter: str, had: bool) -> None:
        self.row(letter, Op.PEER_POPPED, attrs={"had": had})
        self.infos.discard(self.key(letter))


def thread_of(letter: str) -> str:
    """The role of a thread from its letter: ``W1`` is ``worker-1``."""
    return f"worker-{letter[1:]}" if len(letter) > 1 else THREADS[letter]


def letter_of(thread: str | None) -> str:
    """The letter of a thread's role; ``?`` where the language has none."""
    if thread and thread.startswith("worker-"):
        number = thread[len("worker-") :]
        return "W" if number == "0" else f"W{number}"
    return {role: letter for letter, role in THREADS.items()}.get(thread or "", "?")


def manager_of(letter: str) -> int:
    """``D`` is the decode manager of the process, everybody else works for its prefill manager."""
    return DECODE_MANAGER if letter == "D" else 0


# ---------------------------------------------------------------------------------- reading a line


def story(line: str, *, room: int = 7, process: str = "p", seq: int = 0) -> list[Event]:
    """The rows of one history; sequence numbers count from ``seq``, the clock one ms a row.

    Raises
    ------
    StoryError
        for a word that is not in the language.
    """
    teller = _Teller(process=process, room=room, seq=seq)
    for word in line.split():
        _say(teller, word)
    return teller.rows


def _say(teller: _Teller, word: str) -> None:
    if word.startswith("@"):
        teller.room = parse_room(word[1:])
        return
    passed = _PASS.match(word)
    if passed:
        teller.now += int(passed[1]) * _UNITS[passed[2]]
        return
    match = _WORD.match(word)
    verb = match["verb"] if match else ""
    if match is None or verb not in _VERBS:
        raise StoryError(f"unknown word {word!r} in a story")
    try:
        _VERBS[verb](teller, match["letter"], match["tail"])
    except ValueError as error:
        raise StoryError(f"word {word!r} in a story: {error}") from None


_Verb = Callable[[_Teller, str, str], None]
_VERBS: dict[str, _Verb] = {}


def _verb(name: str) -> Callable[[_Verb], _Verb]:
    def keep(function: _Verb) -> _Verb:
        _VERBS[name] = function
        return function

    return keep


@_verb("init")
def _init(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.ROOM_OPENED)
    teller.store(who, State.BOOTSTRAPPING, max(teller.held(who), State.BOOTSTRAPPING))


@_verb("info")
def _info(teller: _Teller, who: str, tail: str) -> None:
    if who == "D":
        teller.row(who, Op.META_SENT)
        return
    teller.row(who, Op.META_RECEIVED)
    teller.add(who, None)
    teller.add(who, "d0")
    teller.store(who, State.WAITING, max(teller.held(who), State.WAITING))


@_verb("meta")
def _meta(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.META_SENT if who == "D" else Op.META_RECEIVED)


@_verb("set")
def _set(teller: _Teller, who: str, tail: str) -> None:
    asked_stored, _, old = tail.partition("<")
    asked, _, stored = asked_stored.partition("=")
    requested = None if asked == "?" else int(asked)
    teller.store(who, requested, int(stored or asked), int(old) if old else None)


@_verb("refuse")
def _refuse(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.STATUS_REFUSED, requested=int(tail), old=int(teller.held(who)))


@_verb("clear")
def _clear(teller: _Teller, who: str, tail: str) -> None:
    if teller.held(who) != State.ABSENT:
        teller.drop(who)
    teller.pop(who, teller.key(who) in teller.infos)
    teller.row(who, Op.ROOM_CLEARED)


@_verb("enq")
def _enq(teller: _Teller, who: str, tail: str) -> None:
    chunk, last = int(tail.rstrip("*")), tail.endswith("*")
    teller.lasts[(*teller.key(who), chunk)] = last
    teller.row(who, Op.CHUNK_ENQUEUED, chunk=chunk, last=last, attrs={"pages": 4, "queue": 0})


def _chunk_verb(name: str, op: str) -> None:
    @_verb(name)
    def say(teller: _Teller, who: str, tail: str) -> None:
        chunk = int(tail)
        last = teller.lasts.get((*teller.key(who), chunk))
        teller.row(who, op, chunk=chunk, last=last)


def _transfer_verb(name: str, op: str) -> None:
    @_verb(name)
    def say(teller: _Teller, who: str, tail: str) -> None:
        reason = "REMOTE_DISCONNECT" if op == Op.XFER_FAILED else None
        teller.row(who, op, chunk=int(tail), handle=int(tail) + 1, bytes=4096, reason=reason)


def _plain_verb(name: str, op: str, **columns: Any) -> None:
    @_verb(name)
    def say(teller: _Teller, who: str, tail: str) -> None:
        teller.row(who, op, **columns)


@_verb("wait")
def _wait(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.WORKER_WAITING, room=False, attrs={"queue": 0, "length": int(tail or 0)})


@_verb("abort")
def _abort(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, {"B": Op.ABORT_RECEIVED, "D": Op.ABORT_SENT}.get(who, Op.ABORT_REQUESTED))


@_verb("ack")
def _ack(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.ACK_RECEIVED if who == "D" else Op.ACK_SENT)


@_verb("poll")
def _poll(teller: _Teller, who: str, tail: str) -> None:
    old = teller.polled.get(teller.key(who))
    teller.polled[teller.key(who)] = int(tail)
    teller.row(who, Op.POLL_CHANGED, old=old, new=int(tail))


@_verb("get")
def _get(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.STATUS_CHECKED, old=int(teller.held(who)), attrs={"call": "get"})


@_verb("has")
def _has(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.STATUS_CHECKED, old=int(teller.held(who)), attrs={"call": "in"})


def _lookup_verb(name: str, call: str) -> None:
    @_verb(name)
    def say(teller: _Teller, who: str, tail: str) -> None:
        found = teller.key(who) in teller.infos
        teller.row(who, Op.PEER_CHECKED, attrs={"call": call, "found": found})


@_verb("concl")
def _concl(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.CONCLUDE_SET, new=int(tail))


@_verb("lost")
def _lost(teller: _Teller, who: str, tail: str) -> None:
    span = {"n": int(tail), "from_ns": teller.now, "to_ns": teller.now, "why": "queue full"}
    teller.row(who, Op.ROWS_LOST, room=False, attrs=span)


@_verb("die")
def _die(teller: _Teller, who: str, tail: str) -> None:
    teller.row(who, Op.THREAD_DIED, room=False, reason="AssertionError: unexpected frame")


_VERBS["add"] = lambda teller, who, tail: teller.add(who, None)
_VERBS["peer"] = lambda teller, who, tail: teller.add(who, f"d{tail or 0}")
_VERBS["drop"] = lambda teller, who, tail: teller.drop(who)
_VERBS["pop"] = lambda teller, who, tail: teller.pop(who, True)
_VERBS["pop-"] = lambda teller, who, tail: teller.pop(who, False)
_lookup_verb("hasinfo", "in")
_lookup_verb("getinfo", "get")
_chunk_verb("deq", Op.CHUNK_DEQUEUED)
_chunk_verb("skip", Op.CHUNK_SKIPPED)
_transfer_verb("post", Op.XFER_POSTED)
_transfer_verb("done", Op.XFER_DONE)
_transfer_verb("bad", Op.XFER_FAILED)
_plain_verb("open", Op.ROOM_OPENED)
_plain_verb("cleared", Op.ROOM_CLEARED)
_plain_verb("err", Op.FAILURE_RECORDED, reason="aborted")
_plain_verb("notif", Op.NOTIF_RECEIVED, peer="p0")
_plain_verb("ctl", Op.CONTROL_WAITING, room=False)
_plain_verb("beat", Op.HEARTBEAT, room=False)


# -------------------------------------------------------------------------------- printing it back

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
    """Whether a group's status write is the one that its word stands for."""
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


# ------------------------------------------------------------------------------- the rows before it


def recording(line: str, *, room: int = 7, process: str = "p", **of_process: Any) -> list[Event]:
    """A whole process: the rows of :func:`preamble`, then those of the story."""
    opening = preamble(process=process, **of_process)
    return opening + story(line, room=room, process=process, seq=len(opening))


def preamble(
    *,
    build: str | None = "0.5.14+fork",
    process: str = "p",
    seams: Iterable[str] = SEAM_NAMES,
    roles: Sequence[str] = ("prefill", "decode"),
    detail: str = "gates",
    **ranks: int,
) -> list[Event]:
    """The rows that a process writes before its first room.

    ``roles`` are the roles of managers 0, 1, ...; ``ranks`` overrides ``tp_size``, ``tp_rank`` and the like.
    """
    started: dict[str, Any] = {"host": "h0", "pid": 42, "engine": "sglang", "version": "0.5.14"}
    started |= {"build": build, "detail": detail, "python": "3.11.7", "argv_digest": "0", "schema": 1}
    rows: list[tuple[str, int | None, dict[str, Any]]] = [(Op.PROCESS_STARTED, None, started)]
    for number, role in enumerate(roles):
        rows.append((Op.MANAGER_STARTED, number, _manager(role) | ranks))
    for name in seams:
        rows.append((Op.SEAM_INSTALLED, 0, {"seam": name, "state": "installed", "where": name}))
    return [_opening_row(process, number, *row) for number, row in enumerate(rows)]


def _opening_row(process: str, seq: int, op: str, manager: int | None, attrs: dict[str, Any]) -> Event:
    return Event(
        seq=seq,
        op=op,
        process=process,
        thread="scheduler",
        tid=100,
        manager=manager,
        mono_ns=0,
        wall_ns=EPOCH_NS,
        attrs=json.dumps(attrs),
    )


def _manager(role: str) -> dict[str, Any]:
    axes = ("tp", "pp", "dp", "cp")
    sizes = {f"{axis}_{what}": int(what == "size") for axis in axes for what in ("size", "rank")}
    return {"role": role, "backend": "nixl", "engine_rank": 0, **sizes, "bootstrap_timeout_s": 300}
