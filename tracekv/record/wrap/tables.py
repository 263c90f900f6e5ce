"""A dictionary of the engine that records what happens to it.

The recording dictionary replaces the plain one at assignment and stays a ``dict`` (or
``defaultdict``) in every respect.  All mutators are overridden, since C code never calls one through
another.  Each operation happens exactly as it would have, at one moment with its row's number
(:mod:`tracekv.record.order`); what the row says is the business of a :class:`Tap`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tracekv.event import Op, State
from tracekv.record.order import Stamp
from tracekv.record.recorder import Recorder, as_room, site_of, to_json

_SITE = 3  # from a tap's method: tell(), the table's method, then the engine
_LOOK_SITE = _SITE + 1  # ... and _look()


class Tap:
    """What to record of one dictionary.  Subclasses name the operations and fill the columns."""

    stored_op: str = ""
    dropped_op: str = ""
    looked_op: str | None = None

    def __init__(self, recorder: Recorder, manager: int) -> None:
        self.recorder = recorder
        self.manager = manager

    def arrive(self, op: str, key: Any, table: Any) -> None:
        """Park before the effect, on a rig.  Nothing in production."""
        gate = self.recorder.gate
        if gate is not None:
            polling = self.recorder.here.call == "poll"
            peek = (lambda: dict.get(table, key)) if polling else None
            gate.arrive(op, manager=self.manager, room=as_room(key), poll=peek)

    def tell(self, what: Callable[..., None], *args: Any) -> None:
        """Let ``what`` record; a fault of ours is remembered and does not reach the engine."""
        try:
            what(*args)
        except Exception as error:
            self.recorder.trouble(f"{type(self).__name__}: {error!r}")

    @property
    def looking(self) -> bool:
        """Whether reads are recorded right now."""
        return self.looked_op is not None and self.recorder.reads

    def stored(self, key: Any, old: Any, new: Any, stamp: Stamp) -> None:
        self.row(self.stored_op, key, stamp)

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None:
        self.row(self.dropped_op, key, stamp)

    def looked(self, key: Any, found: Any, stamp: Stamp, call: str) -> None:
        """``found`` is the value, or ``None`` where the key is absent."""

    def adopt(self, key: Any, value: Any) -> Any:
        """The value to store in place of ``value``."""
        return value

    def row(self, op: str, key: Any, stamp: Stamp, **columns: Any) -> None:
        self.recorder.emit(op, stamp=stamp, manager=self.manager, room=as_room(key), **columns)


class StatusTap(Tap):
    """``request_status``: the state of every room."""

    stored_op, dropped_op, looked_op = Op.STATUS_WRITTEN, Op.STATUS_DROPPED, Op.STATUS_CHECKED

    def stored(self, key: Any, old: Any, new: Any, stamp: Stamp) -> None:
        here = self.recorder.here
        here.stored = True
        self.row(
            self.stored_op, key, stamp,
            requested=here.requested, old=as_state(old), new=as_state(new),
            site=here.site or site_of(_SITE),
        )

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None:
        self.row(self.dropped_op, key, stamp, old=as_state(old), site=site_of(_SITE))

    def looked(self, key: Any, found: Any, stamp: Stamp, call: str) -> None:
        here = self.recorder.here
        call = "poll" if here.call == "poll" else call
        self.row(
            Op.STATUS_CHECKED, key, stamp,
            old=as_state(found), site=here.site or site_of(_LOOK_SITE), attrs=to_json({"call": call}),
        )


class PeersTap(Tap):
    """``transfer_infos``: which decode peers a room will be sent to."""

    stored_op, dropped_op, looked_op = Op.PEER_ADDED, Op.PEER_POPPED, Op.PEER_CHECKED

    def stored(self, key: Any, old: Any, new: Any, stamp: Stamp) -> None:
        self.row(self.stored_op, key, stamp, site=site_of(_SITE))

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None:
        had = to_json({"had": old is not None})
        self.row(self.dropped_op, key, stamp, site=site_of(_SITE), attrs=had)

    def looked(self, key: Any, found: Any, stamp: Stamp, call: str) -> None:
        seen = to_json({"call": call, "found": found is not None})
        self.row(Op.PEER_CHECKED, key, stamp, site=site_of(_LOOK_SITE), attrs=seen)

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
            peer=str(key), site=site_of(_SITE),
        )

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None: ...


class PrefixTap(Tap):
    """``req_to_decode_prefix_len``: how much of the prompt decode already has."""

    stored_op, dropped_op = Op.PREFIX_ADDED, Op.PREFIX_POPPED

    def arrive(self, op: str, key: Any, table: Any) -> None: ...

    def dropped(self, key: Any, old: Any, stamp: Stamp) -> None:
        if old is not None:
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
        tap.arrive(tap.stored_op, key, self)
        value = tap.adopt(key, value)
        old, _, *stamp = tap.recorder.order.replacing(dict.get, dict.__setitem__, self, key, value)
        tap.tell(tap.stored, key, old, value, tuple(stamp))

    def __delitem__(self, key: Any) -> None:
        tap = self.tap
        tap.arrive(tap.dropped_op, key, self)
        old, _, *stamp = tap.recorder.order.replacing(dict.get, dict.__delitem__, self, key)
        tap.tell(tap.dropped, key, old, tuple(stamp))

    def pop(self, key: Any, *default: Any) -> Any:
        tap = self.tap
        tap.arrive(tap.dropped_op, key, self)
        taken, *stamp = tap.recorder.order.after(dict.pop, self, key, _NOTHING)
        tap.tell(tap.dropped, key, None if taken is _NOTHING else taken, tuple(stamp))
        if taken is not _NOTHING:
            return taken
        if default:
            return default[0]
        raise KeyError(key)

    def popitem(self) -> tuple[Any, Any]:
        tap = self.tap
        (key, old), *stamp = tap.recorder.order.after(dict.popitem, self)
        tap.tell(tap.dropped, key, old, tuple(stamp))
        return key, old

    def setdefault(self, key: Any, default: Any = None) -> Any:
        tap = self.tap
        tap.arrive(tap.stored_op, key, self)
        default = tap.adopt(key, default)
        old, now, *stamp = tap.recorder.order.replacing(dict.get, dict.setdefault, self, key, default)
        if now is default and old is not default:
            tap.tell(tap.stored, key, old, now, tuple(stamp))
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
        return self._look(key, "in") is not _NOTHING

    def get(self, key: Any, default: Any = None) -> Any:
        found = self._look(key, "get")
        return default if found is _NOTHING else found

    def __getitem__(self, key: Any) -> Any:
        found = self._look(key, "get")
        if found is not _NOTHING:
            return found
        missing: Callable[[Any], Any] | None = getattr(self, "__missing__", None)
        if missing is None:
            raise KeyError(key)
        return missing(key)

    def _look(self, key: Any, call: str) -> Any:
        tap = self.tap
        if not tap.looking:
            return dict.get(self, key, _NOTHING)  # type: ignore[call-overload]
        tap.arrive(tap.looked_op or "", key, self)
        found, *stamp = tap.recorder.order.after(dict.get, self, key, _NOTHING)
        tap.tell(tap.looked, key, None if found is _NOTHING else found, tuple(stamp), call)
        return found


class RecordingDict(_Recording, dict):  # type: ignore[type-arg]
    """A ``dict`` that records."""

    __slots__ = ("tap",)


class RecordingDefaultDict(_Recording, defaultdict):  # type: ignore[type-arg]
    """A ``defaultdict`` that records."""

    __slots__ = ("tap",)


_NOTHING = object()


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


def as_state(value: Any) -> int:
    """A value of ``request_status`` as a row keeps it."""
    return int(State.ABSENT) if value is None else int(value)
