"""A dictionary of the engine that records what happens to it.

The recording dictionary replaces the plain one at assignment and stays a ``dict`` (or
``defaultdict``) in every respect.  All mutators are overridden, since C code never calls one through
another.  Each operation happens exactly as it would have, at one moment with its row's number
(:mod:`tracekv.record.order`); what the row says is the business of a :class:`Tap`.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from typing import Any, Final

from tracekv.event import Op, State
from tracekv.record.order import NOTHING, Stamp
from tracekv.record.recorder import Recorder, as_room, site_here, to_json

ABSENT: Final = int(State.ABSENT)
_CALLS: Final = {call: to_json({"call": call}) for call in ("in", "get", "poll")}
_HAD: Final = {had: to_json({"had": had}) for had in (False, True)}
_FOUND: Final = {
    (call, found): to_json({"call": call, "found": found})
    for call in ("in", "get")
    for found in (False, True)
}


class Tap:
    """What to record of one dictionary.  Subclasses name the operations and fill the columns."""

    stored_op: str = ""
    dropped_op: str = ""
    looked_op: str | None = None

    def __init__(self, recorder: Recorder, manager: int) -> None:
        self.recorder = recorder
        self.manager = manager

    def arrive(self, op: str, key: Any, table: Any) -> None:
        """Park before the effect; called only where there is a gate, on a rig."""
        gate = self.recorder.gate
        assert gate is not None
        polling = self.recorder.here.call == "poll"
        peek = (lambda: dict.get(table, key)) if polling else None
        gate.arrive(op, manager=self.manager, room=as_room(key), poll=peek)

    @property
    def looking(self) -> bool:
        """Whether reads are recorded right now."""
        return self.looked_op is not None and self.recorder.reads

    def stored(self, key: Any, old: Any, new: Any, stamp: Stamp) -> None:
        self.row(self.stored_op, key, stamp)

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None:
        self.row(self.dropped_op, key, stamp)

    def looked(self, key: Any, found: Any, stamp: Stamp, call: str) -> None:
        """``found``, like ``old`` above, is NOTHING where the key is absent."""

    def adopt(self, key: Any, value: Any) -> Any:
        """The value to store in place of ``value``."""
        return value

    def row(self, op: str, key: Any, stamp: Stamp, **columns: Any) -> None:
        self.recorder.emit(op, stamp=stamp, manager=self.manager, room=as_room(key), **columns)


class StatusTap(Tap):
    """``request_status``: the state of every room."""

    stored_op, dropped_op, looked_op = Op.STATUS_WRITTEN, Op.STATUS_DROPPED, Op.STATUS_CHECKED

    def stored(self, key: Any, old: Any, new: Any, stamp: Stamp) -> None:
        recorder = self.recorder
        here = recorder.here
        here.stored = True
        recorder.emit(
            Op.STATUS_WRITTEN, stamp=stamp, manager=self.manager, room=as_room(key),
            requested=here.requested, old=self.state(old), new=self.state(new),
            site=here.site or site_here(),
        )  # fmt: skip

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None:
        self.row(self.dropped_op, key, stamp, old=self.state(old), site=site_here())

    def looked(self, key: Any, found: Any, stamp: Stamp, call: str) -> None:
        here = self.recorder.here
        call = "poll" if here.call == "poll" else call
        site = here.site or site_here()
        self.row(Op.STATUS_CHECKED, key, stamp, old=self.state(found), site=site, attrs=_CALLS[call])

    def state(self, value: Any) -> int | None:
        """A value as a row keeps it; ``None``, unknown, for one that is no state."""
        state = as_state(value)
        if state is None:
            self.recorder.trouble(f"request_status holds a {type(value).__name__} that is no state")
        return state


class PeersTap(Tap):
    """``transfer_infos``: which decode peers a room will be sent to."""

    stored_op, dropped_op, looked_op = Op.PEER_ADDED, Op.PEER_POPPED, Op.PEER_CHECKED

    def stored(self, key: Any, old: Any, new: Any, stamp: Stamp) -> None:
        site = site_here()
        self.row(self.stored_op, key, stamp, site=site)
        if isinstance(new, dict):
            for peer in list(new):  # an entry that comes with its peers in it
                self.row(self.stored_op, key, self.recorder.order.now(), site=site, peer=str(peer))

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None:
        self.row(self.dropped_op, key, stamp, site=site_here(), attrs=_HAD[old is not NOTHING])

    def looked(self, key: Any, found: Any, stamp: Stamp, call: str) -> None:
        attrs = _FOUND[call, found is not NOTHING]
        self.row(Op.PEER_CHECKED, key, stamp, site=site_here(), attrs=attrs)

    def adopt(self, key: Any, value: Any) -> Any:
        if type(value) is not dict:
            return value
        return recording_dict(value, InnerPeersTap(self.recorder, self.manager, as_room(key)))


class InnerPeersTap(Tap):
    """``transfer_infos[room]``: the peers of one room."""

    stored_op = Op.PEER_ADDED

    def __init__(self, recorder: Recorder, manager: int, room: int | None) -> None:
        super().__init__(recorder, manager)
        self.room = room

    def arrive(self, op: str, key: Any, table: Any) -> None: ...

    def stored(self, key: Any, old: Any, new: Any, stamp: Stamp) -> None:
        self.recorder.emit(
            self.stored_op, stamp=stamp, manager=self.manager, room=self.room,
            peer=str(key), site=site_here(),
        )  # fmt: skip

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None: ...


class PrefixTap(Tap):
    """``req_to_decode_prefix_len``: how much of the prompt decode already has."""

    stored_op, dropped_op = Op.PREFIX_ADDED, Op.PREFIX_POPPED

    def arrive(self, op: str, key: Any, table: Any) -> None: ...

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None:
        if old is not NOTHING:
            super().dropped(key, old, stamp)


class FailureTap(Tap):
    """``failure_records``: why a room failed.  Read by nobody but the one who raises it."""

    stored_op = Op.FAILURE_RECORDED

    def arrive(self, op: str, key: Any, table: Any) -> None: ...

    def stored(self, key: Any, old: Any, new: Any, stamp: Stamp) -> None:
        self.row(self.stored_op, key, stamp, reason=str(new))

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None: ...


class _Recording:
    """The overridden operations, for any ``dict``.  Reads are recorded only where the tap asks."""

    __slots__ = ()
    tap: Tap

    def __setitem__(self, key: Any, value: Any) -> None:
        tap = self.tap
        if tap.recorder.gate is not None:
            tap.arrive(tap.stored_op, key, self)
        value = tap.adopt(key, value)
        old, _, stamp = tap.recorder.order.replacing(dict.__setitem__, self, key, value)
        tap.recorder.tell(tap.stored, key, old, value, stamp)

    def __delitem__(self, key: Any) -> None:
        tap = self.tap
        if tap.recorder.gate is not None:
            tap.arrive(tap.dropped_op, key, self)
        old, _, stamp = tap.recorder.order.replacing(dict.__delitem__, self, key)
        tap.recorder.tell(tap.dropped, key, old, stamp)

    def pop(self, key: Any, default: Any = NOTHING, /) -> Any:
        tap = self.tap
        if tap.recorder.gate is not None:
            tap.arrive(tap.dropped_op, key, self)
        taken, stamp = tap.recorder.order.after(dict.pop, self, key, NOTHING)
        tap.recorder.tell(tap.dropped, key, taken, stamp)
        if taken is not NOTHING:
            return taken
        if default is NOTHING:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[Any, Any]:
        tap = self.tap
        (key, old), stamp = tap.recorder.order.after(dict.popitem, self)
        tap.recorder.tell(tap.dropped, key, old, stamp)
        return key, old

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        tap = self.tap
        if tap.recorder.gate is not None:
            tap.arrive(tap.stored_op, key, self)
        default = tap.adopt(key, default)
        old, now, stamp = tap.recorder.order.replacing(dict.setdefault, self, key, default)
        if old is NOTHING:
            tap.recorder.tell(tap.stored, key, old, now, stamp)
        return now

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def clear(self) -> None:
        for key in list(self):  # type: ignore[call-overload]
            self.pop(key, None)

    def __contains__(self, key: Any) -> bool:
        return self._look(key, "in") is not NOTHING

    def get(self, key: Any, default: Any = None, /) -> Any:
        found = self._look(key, "get")
        return default if found is NOTHING else found

    def __getitem__(self, key: Any) -> Any:
        found = self._look(key, "get")
        return self.__missing__(key) if found is NOTHING else found

    def __missing__(self, key: Any) -> Any:
        raise KeyError(key)

    def _look(self, key: Any, call: str) -> Any:
        tap = self.tap
        if not tap.looking:
            return dict.get(self, key, NOTHING)  # type: ignore[call-overload]
        if tap.recorder.gate is not None:
            tap.arrive(tap.looked_op or "", key, self)
        found, stamp = tap.recorder.order.after(dict.get, self, key, NOTHING)
        tap.recorder.tell(tap.looked, key, found, stamp, call)
        return found

    #: A new dictionary that the engine derives from this one is its own business: a plain one.
    fromkeys: Any = staticmethod(dict.fromkeys)


class RecordingDict(_Recording, dict):  # type: ignore[type-arg]
    """A ``dict`` that records; its copies do not."""

    __slots__ = ("tap",)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class RecordingDefaultDict(_Recording, defaultdict):  # type: ignore[type-arg]
    """A ``defaultdict`` that records; its copies do not."""

    __slots__ = ("tap",)

    def __missing__(self, key: Any) -> Any:
        if self.default_factory is None:
            raise KeyError(key)
        value = self.tap.adopt(key, self.default_factory())
        self[key] = value
        return value

    def copy(self) -> Any:
        return defaultdict(self.default_factory, self)

    __copy__ = copy

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __reduce__(self) -> Any:
        return defaultdict, (self.default_factory, dict(self))


def recording_dict(table: dict[Any, Any], tap: Tap) -> dict[Any, Any]:
    """``table``'s entries in a dictionary that records; ``table`` itself where its kind is unknown."""
    if type(table) is dict:
        made: Any = RecordingDict(table)
    elif type(table) is defaultdict:
        made = RecordingDefaultDict(table.default_factory, table)
    else:
        return table
    made.tap = tap
    return made  # type: ignore[no-any-return]


def records(table: Any) -> bool:
    """Whether what happens to ``table`` is recorded."""
    return isinstance(table, _Recording)


def as_state(value: Any) -> int | None:
    """A value of ``request_status`` as a row keeps it; ``None`` where it is no small whole number."""
    if value is NOTHING:
        return ABSENT
    try:
        state = value if type(value) is int else operator.index(value)
    except TypeError:
        return None
    return state if -128 <= state <= 127 else None
