"""What a trace says about itself: processes, managers, coverage and losses, out of its own rows.

Both kinds of trace carry these facts as rows, so that a copied file needs no companion.  The
promise: a fact that no row states is ``None``, never a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tracekv.event import Event, Op
from tracekv.spool import Damage, Loss, json_object, losses_of, number_of, text_of

__all__ = ["DESCRIBING", "Damage", "Description", "Loss", "Manager", "Process", "describe"]

#: The operations that say something about the recording rather than about a room.
DESCRIBING: Final = (
    Op.PROCESS_STARTED,
    Op.PROCESS_ENDED,
    Op.MANAGER_STARTED,
    Op.SEAM_INSTALLED,
    Op.ROWS_LOST,
)


@dataclass(frozen=True, slots=True)
class Process:
    """One run of a serving process.  ``seams`` is its coverage: seam name to ``installed`` or ``absent``."""

    uuid: str
    host: str | None = None
    pid: int | None = None
    engine: str | None = None
    version: str | None = None
    build: str | None = None
    detail: str | None = None
    started_ns: int | None = None
    ended: bool = False
    seams: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manager:
    """One KV manager of a process: its role and where it stands among the ranks."""

    process: str
    manager: int
    role: str | None = None
    backend: str | None = None
    engine_rank: int | None = None
    tp_size: int | None = None
    tp_rank: int | None = None
    pp_size: int | None = None
    pp_rank: int | None = None
    dp_size: int | None = None
    dp_rank: int | None = None
    cp_size: int | None = None
    cp_rank: int | None = None
    bootstrap_timeout_s: float | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    seams: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Description:
    """The three tables that a trace carries in its rows."""

    processes: dict[str, Process]
    managers: dict[tuple[str, int], Manager]
    losses: list[Loss]


_RANKS: Final = (
    "engine_rank", "tp_size", "tp_rank", "pp_size", "pp_rank", "dp_size", "dp_rank", "cp_size", "cp_rank",
)  # fmt: skip


def describe(events: Iterable[Event], processes: Iterable[str] = ()) -> Description:
    """The tables out of the describing rows among ``events``, which are in (process, seq) order.

    ``processes`` are uuids that have rows but may have no ``process.started``: they are listed too.
    """
    tables = Description({uuid: Process(uuid) for uuid in processes}, {}, [])
    for event in events:
        tables.processes.setdefault(event.process, Process(event.process))
        learn = _LEARN.get(event.op)
        if learn is not None:
            learn(tables, event)
    return tables


def _process_started(tables: Description, event: Event) -> None:
    said = json_object(event.attrs)
    tables.processes[event.process] = replace(
        tables.processes[event.process],
        host=text_of(said.get("host")),
        pid=number_of(said.get("pid")),
        engine=text_of(said.get("engine")),
        version=text_of(said.get("version")),
        build=text_of(said.get("build")),
        detail=text_of(said.get("detail")),
        started_ns=event.wall_ns,
    )


def _process_ended(tables: Description, event: Event) -> None:
    tables.processes[event.process] = replace(tables.processes[event.process], ended=True)


def _manager_started(tables: Description, event: Event) -> None:
    if event.manager is None:
        return
    said = json_object(event.attrs)
    timeout = said.get("bootstrap_timeout_s")
    tables.managers[event.process, event.manager] = Manager(
        event.process,
        event.manager,
        role=text_of(said.get("role")),
        backend=text_of(said.get("backend")),
        bootstrap_timeout_s=timeout if isinstance(timeout, (int, float)) else None,
        attrs=said,
        **{name: number_of(said.get(name)) for name in _RANKS},  # type: ignore[arg-type]
    )


def _seam_installed(tables: Description, event: Event) -> None:
    said = json_object(event.attrs)
    name, state = text_of(said.get("seam")), text_of(said.get("state"))
    if name is None or state is None:
        return
    key = (event.process, -1 if event.manager is None else event.manager)
    if key in tables.managers:
        manager = tables.managers[key]
        tables.managers[key] = replace(manager, seams={**manager.seams, name: state})
    known = tables.processes[event.process]
    # With several managers a seam is only covered where it is covered on each of them.
    worst = "absent" if "absent" in (state, known.seams.get(name)) else state
    tables.processes[event.process] = replace(known, seams={**known.seams, name: worst})


def _rows_lost(tables: Description, event: Event) -> None:
    tables.losses.extend(losses_of([event]))


_LEARN: Final = {
    Op.PROCESS_STARTED: _process_started,
    Op.PROCESS_ENDED: _process_ended,
    Op.MANAGER_STARTED: _manager_started,
    Op.SEAM_INSTALLED: _seam_installed,
    Op.ROWS_LOST: _rows_lost,
}
