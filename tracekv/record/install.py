"""The doors: how the recorder gets into a process, before the engine makes its first manager.

Recording is off unless ``TRACEKV_SPOOL`` names a folder.  The classes are taken when the engine
imports its common manager module, by a hook on that import, so a process that never does pays nothing.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tracekv.event import Op
from tracekv.record.order import ATOMIC
from tracekv.record.recorder import DETAILS, Gate, Recorder, new_process_id, to_json
from tracekv.record.wrap.sglang import take_manager_class, take_room_class
from tracekv.seams import SEAM_NAMES
from tracekv.spool import SpoolWriter

TARGET: Final = "sglang.srt.disaggregation.common.conn"
SPOOL_VARIABLE: Final = "TRACEKV_SPOOL"
DETAIL_VARIABLE: Final = "TRACEKV_DETAIL"
BUILD_VARIABLE: Final = "TRACEKV_BUILD"

CLASSES: Final = {
    "CommonKVManager": "manager",
    "CommonKVSender": "sender",
    "CommonKVReceiver": "receiver",
}

log = logging.getLogger("tracekv")


def plugin() -> None:
    """SGLang's plugin entry point (``sglang.srt.plugins``): record if the environment asks for it.

    Called again in the same process it does nothing.  Never raises.
    """
    folder = os.path.expanduser(os.environ.get(SPOOL_VARIABLE, "").strip())
    if not folder or _recording:
        return
    try:
        recorder = start(Path(folder), detail=os.environ.get(DETAIL_VARIABLE, "writes"))
    except Exception as error:
        log.warning("tracekv does not record: %s", error)
        return
    _recording.append(recorder)
    atexit.register(recorder.close)
    os.register_at_fork(after_in_child=partial(recorder.tell, recorder.forked))
    if recorder.spool.lost:
        log.warning("tracekv loses rows: no spool can be written in %s", folder)


_recording: Final[list[Recorder]] = []  # what plugin() started in this process


def start(
    folder: Path,
    *,
    detail: str = "writes",
    facts: dict[str, Any] | None = None,
    gate: Gate | None = None,
) -> Recorder:
    """Record this process into a spool under ``folder``; returns the recorder, already waiting.

    Call it before the engine makes a manager.  Raises OSError where the spool cannot be made, and
    RuntimeError on a free-threaded build, where the order of writes could not be told.
    """
    if not ATOMIC:
        raise RuntimeError("a free-threaded Python gives no order of writes; use a build with the GIL")
    if detail not in DETAILS:
        log.warning("tracekv knows no detail %r, it records %r", detail, DETAILS[0])
        detail = DETAILS[0]
    folder.mkdir(parents=True, exist_ok=True)
    spool = SpoolWriter(folder, new_process_id())
    recorder = Recorder(spool, detail=detail, facts=engine_facts() | (facts or {}), gate=gate)
    watch_thread_deaths(recorder)
    when_imported(TARGET, partial(take_module, recorder=recorder))
    return recorder


def engine_facts() -> dict[str, Any]:
    """Engine and version, from the installed package's metadata; the build from the environment."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found: str | None = version("sglang")
    except PackageNotFoundError:
        found = None
    return {"engine": "sglang", "version": found, "build": os.environ.get(BUILD_VARIABLE) or found}


def take_module(module: types.ModuleType, recorder: Recorder) -> None:
    """Take the manager, sender and receiver classes of SGLang's common module, as far as it has them."""
    for name, seam in CLASSES.items():
        base = getattr(module, name, None)
        if isinstance(base, type) and seam == "manager":
            take_manager_class(base, recorder)
        elif isinstance(base, type):
            take_room_class(base, seam, recorder)
        else:
            for lost in SEAM_NAMES if seam == "manager" else (seam,):
                absent = {"seam": lost, "state": "absent", "where": f"{module.__name__}.{name}"}
                recorder.emit(Op.SEAM_INSTALLED, attrs=to_json(absent))


def watch_thread_deaths(recorder: Recorder) -> None:
    """A row when a thread ends by an exception; whoever watched before is still told."""
    told_before = threading.excepthook

    def excepthook(args: Any) -> None:
        recorder.tell(_died, args, recorder)
        told_before(args)

    threading.excepthook = excepthook
    recorder.taken.add("threads")


def _died(args: Any, recorder: Recorder) -> None:
    """The hook runs on the dying thread, so what it did last is at hand."""
    did = recorder.here.did
    recorder.emit(
        Op.THREAD_DIED,
        reason=f"{args.exc_type.__name__}: {recorder.tell(str, args.exc_value)}",
        attrs=to_json({"last": did}) if did else None,
    )


def when_imported(name: str, then: Callable[[types.ModuleType], None]) -> None:
    """Call ``then`` with module ``name`` right after its import, or now if it is there already."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _ImportWatch(name, then))


class _ImportWatch(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the next finder do so and adds one call after the execution."""

    def __init__(self, name: str, then: Callable[[types.ModuleType], None]) -> None:
        self.name = name
        self.then = then
        self.asking = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name or getattr(self.asking, "others", False):
            return None
        self.asking.others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking.others = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    """The real loader, and one call after it has executed the module."""

    def __init__(self, real: Any, watch: _ImportWatch) -> None:
        self.real = real
        self.watch = watch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.real.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        self.real.exec_module(module)
        if self.watch in sys.meta_path:  # a search that led to no import leaves it there
            sys.meta_path.remove(self.watch)
        try:
            self.watch.then(module)
        except Exception as error:
            log.warning("tracekv does not record %s: %s", module.__name__, error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)
