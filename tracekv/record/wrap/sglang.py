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
from typing import Any, Final, cast

from tracekv.event import Op
from tracekv.record.order import NOTHING
from tracekv.record.recorder import Recorder, as_room, site_here, to_json
from tracekv.record.wrap.control import take_sending
from tracekv.record.wrap.managers import number_of, tap_of
from tracekv.record.wrap.tables import as_state

HEARTBEAT_NS: Final = 1_000_000_000


def take_manager_class(base: Any, recorder: Recorder) -> None:
    """Take every seam of every manager that will be made from ``base`` or a class under it."""
    assign = base.__setattr__

    def __setattr__(self: Any, name: str, value: Any) -> None:
        try:
            value = tap_of(self, recorder).take(self, name, value)
        except Exception as error:
            recorder.trouble(f"manager.{name}: {error!r}")
        assign(self, name, value)

    base.__setattr__ = __setattr__
    methods: dict[str, Wrapper] = {
        "update_status": _recorded_update,
        "_connect": _recorded_connect,
        "__init__": _recorded_manager_init,
    }
    _take_methods(base, methods, recorder)
    if hasattr(base, "update_status"):
        recorder.taken.add("status_call")


def take_room_class(base: Any, seam: str, recorder: Recorder) -> None:
    """Take constructor, poll, abort, clear and ``conclude_state`` of senders or receivers."""
    base.conclude_state = _conclude_property(recorder, getattr(base, "conclude_state", NOTHING))
    methods: dict[str, Wrapper] = {
        "__init__": _recorded_open,
        "poll": _recorded_poll,
        "abort": _recorded_abort,
        "clear": _recorded_clear,
        "send_metadata": _recorded_call,
        "_connect": _recorded_connect,
    }
    _take_methods(base, methods, recorder)
    recorder.taken.add(seam)
    if hasattr(base, "_connect"):
        recorder.taken.add("control_out")


Wrapper = Callable[[Any, Recorder], Any]


def _take_methods(base: Any, wrappers: dict[str, Wrapper], recorder: Recorder) -> None:
    """Wrap the named methods on ``base``, on the classes under it, and on those still to come."""
    _wrap_own(base, wrappers, recorder)
    for known in base.__subclasses__():
        _take_subclass(known, wrappers, recorder)
    own = base.__dict__.get("__init_subclass__")

    def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:
        if own is None:
            super(base, cls).__init_subclass__(**kwargs)
        else:
            own.__get__(None, cls)(**kwargs)
        recorder.tell(_wrap_own, cls, wrappers, recorder)

    base.__init_subclass__ = classmethod(__init_subclass__)


def _take_subclass(cls: Any, wrappers: dict[str, Wrapper], recorder: Recorder) -> None:
    _wrap_own(cls, wrappers, recorder)
    for known in cls.__subclasses__():
        _take_subclass(known, wrappers, recorder)


def _wrap_own(cls: type, wrappers: dict[str, Wrapper], recorder: Recorder) -> None:
    for name, wrapper in wrappers.items():
        own = cls.__dict__.get(name)
        plain = getattr(own, "__func__", own)  # of a class method or a static one
        if plain is None or hasattr(plain, "tracekv_seam"):
            continue
        wrapped = wrapper(plain, recorder)
        wrapped.tracekv_seam = name
        setattr(cls, name, wrapped if plain is own else cast(Any, type(own))(wrapped))


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], at: int, name: str) -> Any:
    """An argument of the engine's call, however it was given; ``None`` where it was not."""
    return args[at] if len(args) > at else kwargs.get(name)


def _recorded_manager_init(init: Any, recorder: Recorder) -> Any:
    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        with recorder.calling("manager", None) as outermost:
            init(self, *args, **kwargs)
        if outermost:
            tap = tap_of(self, recorder)
            recorder.tell(tap.announce, self)
            recorder.tell(tap.finish, self)

    return __init__


def _recorded_update(update: Any, recorder: Recorder) -> Any:
    @functools.wraps(update)
    def update_status(self: Any, *args: Any, **kwargs: Any) -> Any:
        here = recorder.here
        if here.in_write:  # a subclass calls its base: one write, recorded once
            return update(self, *args, **kwargs)
        here.in_write, here.stored = True, False
        here.requested = recorder.tell(_number, _argument(args, kwargs, 1, "status"))
        here.site = recorder.tell(site_here)
        try:
            result = update(self, *args, **kwargs)
            if not here.stored:
                recorder.tell(_refused, self, _argument(args, kwargs, 0, "bootstrap_room"), recorder)
            return result
        finally:
            here.in_write, here.requested, here.site = False, None, None

    return update_status


def _refused(manager: Any, room: Any, recorder: Recorder) -> None:
    """Asked for and not stored: what is there is read with the row's number, not from the engine."""
    table = getattr(manager, "request_status", None)
    if not isinstance(table, dict):
        return
    found, stamp = recorder.order.after(dict.get, table, room, NOTHING)
    here = recorder.here
    recorder.emit(
        Op.STATUS_REFUSED, stamp=stamp, manager=number_of(manager), room=as_room(room),
        requested=here.requested, old=as_state(found), site=here.site,
    )  # fmt: skip


def _recorded_open(init: Any, recorder: Recorder) -> Any:
    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> Any:
        manager = _argument(args, kwargs, 0, "mgr")
        with recorder.calling("open", number_of(manager)) as outermost:
            if outermost:
                recorder.tell(_opened, manager, _argument(args, kwargs, 2, "bootstrap_room"), recorder)
            return init(self, *args, **kwargs)

    return __init__


def _opened(manager: Any, key: Any, recorder: Recorder) -> None:
    room = as_room(key)
    _forget_chunks(manager, room)
    recorder.emit(Op.ROOM_OPENED, manager=number_of(manager), room=room, site=site_here())


def _forget_chunks(manager: Any, room: int | None) -> None:
    tap = getattr(manager, "__dict__", {}).get("_tracekv")
    if tap is not None and room is not None:
        tap.count.forget(room)


def _recorded_poll(poll: Any, recorder: Recorder) -> Any:
    @functools.wraps(poll)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = number_of(getattr(self, "kv_mgr", None))
        with recorder.calling("poll", number) as outermost:
            result = poll(self, *args, **kwargs)
        if outermost:
            recorder.tell(_polled, self, number, result, recorder)
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
                recorder.emit(Op.ABORT_REQUESTED, manager=number, room=_room_of(self), site=site_here())
            return abort(self, *args, **kwargs)

    return recorded


def _recorded_clear(clear: Any, recorder: Recorder) -> Any:
    @functools.wraps(clear)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = number_of(getattr(self, "kv_mgr", None))
        with recorder.calling("clear", number) as outermost:
            result = clear(self, *args, **kwargs)
        if outermost:
            _forget_chunks(getattr(self, "kv_mgr", None), _room_of(self))
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
    def recorded(*args: Any, **kwargs: Any) -> Any:
        connected = connect(*args, **kwargs)
        recorder.tell(_sending, connected, recorder)
        return connected

    return recorded


def _sending(connected: Any, recorder: Recorder) -> None:
    """``_connect`` gives a socket, or a socket with its lock."""
    socket = connected[0] if isinstance(connected, tuple) else connected
    if hasattr(socket, "send_multipart"):
        take_sending(socket, recorder)


def _conclude_property(recorder: Recorder, default: Any) -> property:
    """``conclude_state`` stays an instance attribute; setting it is a row."""

    def read(self: Any) -> Any:
        found = self.__dict__.get("conclude_state", default)
        if found is NOTHING:
            raise AttributeError("conclude_state")
        return found

    def write(self: Any, value: Any) -> None:
        self.__dict__["conclude_state"] = value
        if value is not None:
            recorder.tell(_concluded, self, value, recorder)

    return property(read, write)


def _concluded(room_object: Any, value: Any, recorder: Recorder) -> None:
    recorder.emit(
        Op.CONCLUDE_SET, manager=number_of(getattr(room_object, "kv_mgr", None)),
        room=_room_of(room_object), new=_number(value), site=site_here(),
    )  # fmt: skip


def _room_of(room_object: Any) -> int | None:
    return as_room(getattr(room_object, "bootstrap_room", None))


def _number(status: Any) -> int | None:
    return None if status is None else as_state(status)
