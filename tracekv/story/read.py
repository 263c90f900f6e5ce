"""A line to its rows: each word is a small function on what has been told so far."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tracekv.event import Event, Op, State, parse_room
from tracekv.story.letters import EPOCH_NS, STEP_NS, manager_of, thread_of

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
    lasts: dict[tuple[tuple[int, int], int], bool] = field(default_factory=dict)
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
    teller.lasts[teller.key(who), chunk] = last
    teller.row(who, Op.CHUNK_ENQUEUED, chunk=chunk, last=last, attrs={"pages": 4, "queue": 0})


def _chunk_verb(name: str, op: str) -> None:
    @_verb(name)
    def say(teller: _Teller, who: str, tail: str) -> None:
        chunk = int(tail)
        last = teller.lasts.get((teller.key(who), chunk))
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
