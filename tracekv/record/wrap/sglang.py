"""SGLang's managers, senders and receivers: every seam is taken where the engine assigns it.

A manager's attributes are replaced in ``__setattr__`` of the common base class, at assignment, since
its threads start before its constructor returns.  Methods are wrapped on every class that defines
them, and only the outermost call of a chain is recorded.  Nothing here knows a release: a seam is
taken if the object has what it needs, and is reported absent otherwise.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Final

from tracekv.event import Op, State
from tracekv.record.recorder import Recorder, as_room, site_of, to_json
from tracekv.record.wrap.chunks import ChunkCount, take_queues
from tracekv.record.wrap.control import take_receiving, take_sending
from tracekv.record.wrap.nixl import take_agent
from tracekv.record.wrap.tables import (
    FailureTap,
    PeersTap,
    PrefixTap,
    StatusTap,
    Tap,
    as_state,
    recording_dict,
)
from tracekv.seams import SEAM_NAMES

TABLES: Final[dict[str, tuple[str, type[Tap]]]] = {
    "request_status": ("status", StatusTap),
    "transfer_infos": ("peers", PeersTap),
    "req_to_decode_prefix_len": ("prefix", PrefixTap),
    "failure_records": ("failures", FailureTap),
}

#: Column of the ``managers`` table: attribute of a manager, over the releases.
RANKS: Final[dict[str, tuple[str, ...]]] = {
    "tp_size": ("attn_tp_size",),
    "tp_rank": ("attn_tp_rank",),
    "pp_size": ("pp_size",),
    "pp_rank": ("pp_rank",),
    "dp_size": ("attn_dp_size",),
    "dp_rank": ("attn_dp_rank",),
    "cp_size": ("attn_cp_size",),
    "cp_rank": ("attn_cp_rank",),
}

HEARTBEAT_NS: Final = 1_000_000_000


class ManagerTap:
    """What the recorder knows of one live manager."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.number = recorder.next_manager()
        self.count = ChunkCount()
        self.taken: set[str] = set()
        self.announced = False

    def take(self, manager: Any, name: str, value: Any) -> Any:
        """What to store as ``manager.<name>`` in place of ``value``."""
        if name in TABLES and isinstance(value, dict):
            seam, kind = TABLES[name]
            return self._took(seam, recording_dict(value, kind(self.recorder, self.number)), name)
        if name == "server_socket":
            role = "bootstrap" if role_of(manager) == "prefill" else "decode-listener"
            return self._took("control_in", take_receiving(value, self.recorder, self.number, role), name)
        if name == "transfer_queues":
            return self._took("chunks", take_queues(value, self.recorder, self.number, self.count), name)
        if name == "agent":
            return self._took("agent", take_agent(value, self.recorder, self.number), name)
        return value

    def _took(self, seam: str, value: Any, where: str) -> Any:
        self.installed(seam, f"manager.{where}")
        if seam == "peers":
            self.installed("peers_inner", f"manager.{where}[room]")
        return value

    def installed(self, seam: str, where: str) -> None:
        """Note a seam in the coverage manifest, once."""
        if seam not in self.taken:
            self.taken.add(seam)
            self._manifest(seam, "installed", where)

    def _manifest(self, seam: str, state: str, where: str | None) -> None:
        facts = {"seam": seam, "state": state, "where": where}
        self.recorder.emit(Op.SEAM_INSTALLED, manager=self.number, attrs=to_json(facts))

    def announce(self, manager: Any) -> None:
        """Say who this manager is, as soon as it knows its role."""
        if not self.announced:
            self.announced = True
            facts = {"role": role_of(manager), "backend": backend_of(manager)} | ranks_of(manager)
            self.recorder.emit(Op.MANAGER_STARTED, manager=self.number, attrs=to_json(facts))

    def finish(self) -> None:
        """The constructor returned: what was not taken by now is absent."""
        for seam in SEAM_NAMES:
            if seam not in self.taken:
                self._manifest(seam, "absent", None)


def role_of(manager: Any) -> str | None:
    """``prefill`` or ``decode``, from the engine's own mode."""
    mode = str(getattr(manager, "disaggregation_mode", "")).lower()
    return next((role for role in ("prefill", "decode") if role in mode), None)


def backend_of(manager: Any) -> str:
    """``nixl``, ``mooncake``, ... from the name of the manager's class."""
    return type(manager).__name__.removesuffix("KVManager").lower()


def ranks_of(manager: Any) -> dict[str, Any]:
    """Sizes and ranks of the manager, ``None`` where it does not tell."""
    facts: dict[str, Any] = {"engine_rank": getattr(getattr(manager, "kv_args", None), "engine_rank", None)}
    for column, names in RANKS.items():
        facts[column] = next((getattr(manager, name) for name in names if hasattr(manager, name)), None)
    return facts


def take_manager_class(base: Any, recorder: Recorder) -> None:
    """Take every seam of every manager that will be made from ``base`` or a class under it."""
    assign = base.__setattr__

    def __setattr__(self: Any, name: str, value: Any) -> None:
        tap = self.__dict__.get("_tracekv")
        if tap is None:
            tap = ManagerTap(recorder)
            object.__setattr__(self, "_tracekv", tap)
        try:
            if name == "request_status":
                tap.announce(self)
            value = tap.take(self, name, value)
        except Exception as error:
            recorder.trouble(f"manager.{name}: {error!r}")
        assign(self, name, value)

    base.__setattr__ = __setattr__  # type: ignore[method-assign,assignment]
    _take_methods(base, {"update_status": _recorded_update, "_connect": _recorded_connect}, recorder)
    _take_methods(base, {"__init__": _recorded_manager_init}, recorder)


def take_room_class(base: Any, seam: str, recorder: Recorder) -> None:
    """Take constructor, poll, abort, clear and ``conclude_state`` of senders or receivers."""
    base.conclude_state = _conclude_property(recorder)
    kinds: dict[str, Wrapper] = {
        "__init__": functools.partial(_recorded_open, seam=seam),
        "poll": _recorded_poll,
        "abort": _recorded_abort,
        "clear": _recorded_clear,
        "send_metadata": _recorded_call,
        "_connect": _recorded_class_connect,
    }
    _take_methods(base, kinds, recorder)


Wrapper = Callable[[Any, Recorder], Any]


def _take_methods(base: Any, wrappers: dict[str, Wrapper], recorder: Recorder) -> None:
    """Wrap the named methods on ``base``, on the classes under it, and on those still to come."""
    _wrap_own(base, wrappers, recorder)
    for known in base.__subclasses__():
        _take_subclass(known, wrappers, recorder)
    initialise = base.__init_subclass__

    def __init_subclass__(cls: Any, **kwargs: Any) -> None:
        initialise(**kwargs)
        _wrap_own(cls, wrappers, recorder)

    base.__init_subclass__ = classmethod(__init_subclass__)


def _take_subclass(cls: Any, wrappers: dict[str, Wrapper], recorder: Recorder) -> None:
    _wrap_own(cls, wrappers, recorder)
    for known in cls.__subclasses__():
        _take_subclass(known, wrappers, recorder)


def _wrap_own(cls: type, wrappers: dict[str, Wrapper], recorder: Recorder) -> None:
    for name, wrapper in wrappers.items():
        own = cls.__dict__.get(name)
        if own is not None and not hasattr(getattr(own, "__func__", own), "tracekv_seam"):
            wrapped = wrapper(own, recorder)
            plain: Any = getattr(wrapped, "__func__", wrapped)
            plain.tracekv_seam = name
            setattr(cls, name, wrapped)


def _recorded_manager_init(init: Any, recorder: Recorder) -> Any:
    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        with recorder.calling("manager", None) as outermost:
            init(self, *args, **kwargs)
        tap = self.__dict__.get("_tracekv")
        if outermost and tap is not None:
            tap.installed("status_call", "manager.update_status")
            tap.installed("sender" if role_of(self) == "prefill" else "receiver", "class")
            tap.installed("control_out", "sockets")
            tap.installed("threads", "threading.excepthook")
            tap.finish()

    return __init__


def _recorded_update(update: Any, recorder: Recorder) -> Any:
    @functools.wraps(update)
    def update_status(self: Any, room: Any, status: Any, *args: Any, **kwargs: Any) -> Any:
        here = recorder.here
        if here.in_write:  # a subclass calls its base: one write, recorded once
            return update(self, room, status, *args, **kwargs)
        here.in_write, here.stored = True, False
        here.requested, here.site = _number(status), site_of(1)
        try:
            result = update(self, room, status, *args, **kwargs)
            if not here.stored:
                _refused(self, room, recorder)
            return result
        finally:
            here.in_write, here.requested, here.site = False, None, None

    return update_status


def _refused(manager: Any, room: Any, recorder: Recorder) -> None:
    """Asked for and not stored: what is there is read with the row's number, not from the engine."""
    table = getattr(manager, "request_status", None)
    if not isinstance(table, dict):
        return
    found, seq, mono_ns, wall_ns = recorder.order.after(dict.get, table, room)
    here = recorder.here
    recorder.emit(
        Op.STATUS_REFUSED, stamp=(seq, mono_ns, wall_ns), manager=number_of(manager), room=as_room(room),
        requested=here.requested, old=as_state(found), site=here.site,
    )


def _recorded_open(init: Any, recorder: Recorder, *, seam: str) -> Any:
    @functools.wraps(init)
    def __init__(self: Any, mgr: Any, bootstrap_addr: Any, bootstrap_room: Any = None, *args: Any, **kw: Any) -> Any:
        number = number_of(mgr)
        with recorder.calling("open", number) as outermost:
            if outermost:
                tap = getattr(mgr, "__dict__", {}).get("_tracekv")
                if tap is not None and as_room(bootstrap_room) is not None:
                    tap.count.forget(bootstrap_room)
                recorder.emit(
                    Op.ROOM_OPENED, manager=number, room=as_room(bootstrap_room), site=site_of(1)
                )
            return init(self, mgr, bootstrap_addr, bootstrap_room, *args, **kw)

    return __init__


def _recorded_poll(poll: Any, recorder: Recorder) -> Any:
    @functools.wraps(poll)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = number_of(getattr(self, "kv_mgr", None))
        with recorder.calling("poll", number) as outermost:
            result = poll(self, *args, **kwargs)
        if outermost:
            _polled(self, number, result, recorder)
        return result

    return recorded


def _polled(room_object: Any, number: int | None, result: Any, recorder: Recorder) -> None:
    """A row when the answer changed; a heartbeat each second, which proves that somebody still asks."""
    facts = room_object.__dict__
    before, now = facts.get("_tracekv_polled"), _number(result)
    room = as_room(facts.get("bootstrap_room"))
    if before != now:
        facts["_tracekv_polled"] = now
        recorder.emit(Op.POLL_CHANGED, manager=number, room=room, old=before, new=now)
    here, clock = recorder.here, time.monotonic_ns()
    here.polls += 1
    if clock - here.beat >= HEARTBEAT_NS:
        recorder.emit(Op.HEARTBEAT, manager=number, attrs=to_json({"polls": here.polls}))
        here.beat, here.polls = clock, 0


def _recorded_abort(abort: Any, recorder: Recorder) -> Any:
    @functools.wraps(abort)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = number_of(getattr(self, "kv_mgr", None))
        with recorder.calling("abort", number) as outermost:
            if outermost:
                recorder.emit(Op.ABORT_REQUESTED, manager=number, room=_room_of(self), site=site_of(1))
            return abort(self, *args, **kwargs)

    return recorded


def _recorded_clear(clear: Any, recorder: Recorder) -> Any:
    @functools.wraps(clear)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = number_of(getattr(self, "kv_mgr", None))
        with recorder.calling("clear", number) as outermost:
            result = clear(self, *args, **kwargs)
        if outermost:
            recorder.emit(Op.ROOM_CLEARED, manager=number, room=_room_of(self))
        return result

    return recorded


def _recorded_call(call: Any, recorder: Recorder) -> Any:
    """No row of its own: lets the sockets below know whose manager is sending."""

    @functools.wraps(call)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        with recorder.calling(call.__name__, number_of(getattr(self, "kv_mgr", None))):
            return call(self, *args, **kwargs)

    return recorded


def _recorded_connect(connect: Any, recorder: Recorder) -> Any:
    @functools.wraps(connect)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _sending(connect(self, *args, **kwargs), recorder)

    return recorded


def _recorded_class_connect(connect: Any, recorder: Recorder) -> Any:
    plain = connect.__func__

    @functools.wraps(plain)
    def recorded(cls: type, *args: Any, **kwargs: Any) -> Any:
        return _sending(plain(cls, *args, **kwargs), recorder)

    return classmethod(recorded)


def _sending(connected: Any, recorder: Recorder) -> Any:
    """``_connect`` gives a socket, or a socket with its lock."""
    socket = connected[0] if isinstance(connected, tuple) else connected
    if hasattr(socket, "send_multipart"):
        take_sending(socket, recorder)
    return connected


def _conclude_property(recorder: Recorder) -> property:
    """``conclude_state`` stays an instance attribute; setting it is a row."""

    def read(self: Any) -> Any:
        try:
            return self.__dict__["conclude_state"]
        except KeyError:
            raise AttributeError("conclude_state") from None

    def write(self: Any, value: Any) -> None:
        self.__dict__["conclude_state"] = value
        if value is not None:
            number = number_of(getattr(self, "kv_mgr", None))
            recorder.emit(
                Op.CONCLUDE_SET, manager=number, room=_room_of(self), new=_number(value), site=site_of(1)
            )

    return property(read, write)


def number_of(manager: Any) -> int | None:
    """The recorder's number of a manager, ``None`` for one that it has not seen."""
    tap = getattr(manager, "__dict__", {}).get("_tracekv")
    return None if tap is None else tap.number


def _room_of(room_object: Any) -> int | None:
    return as_room(getattr(room_object, "bootstrap_room", None))


def _number(status: Any) -> int | None:
    return int(status) if isinstance(status, (int, State)) else None
