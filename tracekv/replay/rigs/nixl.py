"""The embedded default rig: our model of the manager over two real NIXL agents.

The model says what each actor does; wherever it posts or settles a transfer, this rig really does,
and what then lies in decode's memory is compared byte by byte.  A room costs no new agent, no new
registration and no new process.
"""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from tracekv.errors import UsageError
from tracekv.event import Event, Op
from tracekv.machine import POLICIES, Action, RoomState, Row, enabled, opening, parked, perform
from tracekv.replay.rigs import THREADS, End, Pending, Scenario, Stalled
from tracekv.replay.rigs.agents import Agents, Transfer, TransferFailed, TransferStuck, shared_agents
from tracekv.replay.rigs.cargo import Cargo
from tracekv.replay.rigs.receiver import Receiver
from tracekv.seams import SEAM_NAMES

DEADLINE_S: Final = 5.0
PREFILL: Final = 0
DECODE: Final = 1

_MANAGER: Final = {
    "backend": "nixl",
    "engine_rank": 0,
    **{f"{axis}_{what}": int(what == "size") for axis in ("tp", "pp", "dp") for what in ("size", "rank")},
    "cp_size": 1,
    "bootstrap_timeout_s": 300,
}
_ABOUT_NO_ROOM: Final = frozenset({Op.WORKER_WAITING, Op.CONTROL_WAITING, Op.THREAD_DIED})


class Recorder(Protocol):
    """Where the rig leaves its rows."""

    def emit(
        self,
        op: str,
        *,
        manager: int | None = None,
        room: int | None = None,
        thread: str | None = None,
        **columns: Any,
    ) -> Event:
        """Append one row; ``columns`` are those of :class:`~tracekv.event.Event`, ``attrs`` as JSON."""


class _Room:
    """One room while it runs: its state, its pages, its decode side, its open transfers."""

    def __init__(self, cargo: Cargo, scenario: Scenario, receiver: Receiver) -> None:
        self.state = opening(chunks=len(scenario.pages), aborts=scenario.abort)
        self.cargo, self.scenario, self.receiver = cargo, scenario, receiver
        self.open: dict[str, tuple[int, Transfer]] = {}  # part -> own handle number and the transfer
        self.checked = self.wrong = 0


class NixlRig:
    """The rig of one build.

    Parameters
    ----------
    build
        a key of :data:`tracekv.machine.POLICIES`.
    recorder
        gets a row for every event, gated or not.
    seed
        makes the room ids repeatable; they are drawn by the system otherwise.
    agents
        a pair of one's own; the process's shared pair otherwise.
    deadline_s
        seconds after which a transfer that has not settled raises :class:`Stalled`.

    Raises
    ------
    UsageError
        for a build that the model does not know, or without NIXL.
    """

    manager = "model"

    def __init__(
        self,
        build: str,
        recorder: Recorder,
        *,
        seed: int | None = None,
        agents: Agents | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        if build not in POLICIES:
            raise UsageError(f"the model knows no build {build!r}", hint="one of: " + ", ".join(POLICIES))
        self.build = build
        self.policy = POLICIES[build]
        self.agents = agents or shared_agents()
        self._recorder = recorder
        self._deadline_s = deadline_s
        self._rng: random.Random = random.SystemRandom() if seed is None else random.Random(seed)
        self._handles = 0
        self._reusable = True
        self._room: _Room | None = None
        self._introduce()

    # -- the interface of a rig

    def begin(self, scenario: Scenario) -> int:
        """As :meth:`tracekv.replay.rigs.Rig.begin`; stamps the pages and poisons decode's."""
        if self._room is not None:
            self.end()
        if not self._reusable:
            raise UsageError("a thread of this rig died or a transfer is stuck", hint="make a new rig")
        room = self._rng.randrange(2**62, 2**63)  # 63 bits, and never a small number
        cargo = Cargo(room, scenario.pages, self.agents)
        cargo.load()
        self._room = _Room(cargo, scenario, self._receiver(room, len(scenario.pages)))
        return room

    def parked(self) -> Mapping[str, Pending]:
        """As :meth:`tracekv.replay.rigs.Rig.parked`."""
        if self._room is None:
            return {}
        return {
            letter: Pending(letter, each.action.gate, each.action.chunk, each.ready, each.waits)
            for letter, each in parked(self._room.state).items()
        }

    def grant(self, actor: str) -> Event | None:
        """As :meth:`tracekv.replay.rigs.Rig.grant`; :class:`ValueError` for an actor that cannot go on."""
        room = self._running()
        action = next((each for each in enabled(room.state, self.policy) if each.actor == actor), None)
        if action is None:
            raise ValueError(f"{actor} is not enabled; enabled: {enabled(room.state, self.policy)}")
        reason = self._settle(room, action) if action.gate == "xfer.settled" else None
        if reason is not None:
            action = Action(action.actor, action.gate, action.chunk, cause="error")
        done = perform(room.state, action, self.policy)
        room.state = done.state
        events = [self._leave(room, row, reason) for row in done.rows]
        return None if done.gated is None else events[done.gated]

    def end(self) -> End:
        """As :meth:`tracekv.replay.rigs.Rig.end`; what is still in flight lands now, unrecorded."""
        room = self._running()
        ended = _end_of(room, moves=bool(enabled(room.state, self.policy)))
        self._room = None
        self._reusable = self._drain(room) and not ended.died
        return ended

    def reusable(self) -> bool:
        """As :meth:`tracekv.replay.rigs.Rig.reusable`."""
        return self._reusable

    def close(self) -> None:
        """Let what is in flight land.  The agents stay: they belong to the process."""
        if self._room is not None:
            self.end()

    # -- what the tests may look at

    def landed(self, chunk: int) -> int:
        """How many pages of a chunk have begun to land at decode."""
        return self._running().cargo.landed(chunk)

    @property
    def state(self) -> RoomState:
        """The model's room."""
        return self._running().state

    # -- rows

    def _introduce(self) -> None:
        """What a process says of itself before its first room: managers, seams, idle threads."""
        for manager, role in ((PREFILL, "prefill"), (DECODE, "decode")):
            self._emit(Op.MANAGER_STARTED, None, manager=manager, attrs={"role": role, **_MANAGER})
            for seam in SEAM_NAMES:
                attrs = {"seam": seam, "state": "installed", "where": "model"}
                self._emit(Op.SEAM_INSTALLED, None, manager=manager, attrs=attrs)
        for row in (Row("W", Op.WORKER_WAITING, attrs={"length": 0}), Row("B", Op.CONTROL_WAITING)):
            self._emit(row.op, THREADS[row.actor], manager=PREFILL, attrs=_attrs(row, ()))

    def _emit(self, op: str, thread: str | None, *, attrs: Mapping[str, Any], **columns: Any) -> Event:
        packed = json.dumps(attrs, separators=(",", ":")) if attrs else None
        return self._recorder.emit(op, thread=thread, attrs=packed, **columns)

    def _receiver(self, room: int, chunks: int) -> Receiver:
        def emit(op: str, *, attrs: Mapping[str, Any] | None = None, **columns: Any) -> Event:
            return self._emit(op, THREADS["D"], manager=DECODE, room=room, attrs=attrs or {}, **columns)

        return Receiver(emit, awaited=chunks + 1)

    def _leave(self, room: _Room, row: Row, reason: str | None) -> Event:
        """Do what a row of the model stands for on the real agents, then record it."""
        columns: dict[str, Any] = {"reason": reason} if row.op == Op.XFER_FAILED else {}
        if row.op == Op.XFER_POSTED:
            columns |= self._post(room, row)
        elif row.op in (Op.XFER_DONE, Op.XFER_FAILED):
            columns |= self._settled(room, row)
        elif row.op == Op.PEER_ADDED and row.columns["peer"] is not None:
            columns |= {"peer": self.agents.decode_name}
        _before(room, row)
        event = self._emit(
            row.op,
            THREADS[row.actor],
            manager=DECODE if row.actor == "D" else PREFILL,
            room=None if row.op in _ABOUT_NO_ROOM else room.cargo.room,
            attrs=_attrs(row, room.scenario.pages),
            **{**row.columns, **columns},
        )
        self._afterwards(room, row)
        return event

    def _afterwards(self, room: _Room, row: Row) -> None:
        """What decode does on its own once the row has happened."""
        if row.op == Op.ABORT_SENT:
            room.receiver.gave_up()
        elif row.op == Op.META_SENT and not room.scenario.abort:
            room.receiver.waits()
        elif row.op == Op.XFER_DONE and not room.scenario.abort:
            columns = {name: row.columns[name] for name in ("chunk", "last")}
            room.receiver.notified(peer=self.agents.prefill_name, attrs=row.attrs, **columns)

    # -- transfers

    def _post(self, room: _Room, row: Row) -> dict[str, int]:
        part, cargo = row.attrs["part"], room.cargo
        transfer = cargo.post(row.columns["chunk"]) if part == "kv" else cargo.post_aux()
        self._handles += 1
        room.open[part] = self._handles, transfer
        return {"handle": self._handles, "bytes": transfer.size}

    def _settle(self, room: _Room, action: Action) -> str | None:
        """Drive the transfer that the worker waits for to its end; the transport's error, if any."""
        transfer = room.open[room.state.worker.at.removeprefix("worker.settle_")][1]
        try:
            self.agents.settle(transfer, self._deadline_s)
        except TransferFailed as error:
            self._reusable = False
            return str(error)
        except TransferStuck as stuck:
            self._reusable = False
            stack = "".join(traceback.format_stack(limit=6))
            raise Stalled(f"W at {action.gate} of chunk {action.chunk}: {stuck}\n{stack}") from stuck
        return None

    def _settled(self, room: _Room, row: Row) -> dict[str, int]:
        """Take a transfer off the open ones; compare what it moved where it was seen done."""
        handle, transfer = room.open.pop(row.attrs["part"])
        if row.op == Op.XFER_DONE:
            kv = row.attrs["part"] == "kv"
            room.checked += transfer.size
            room.wrong += room.cargo.wrong(row.columns["chunk"]) if kv else room.cargo.wrong_aux()
        return {"handle": handle, "bytes": transfer.size}

    def _drain(self, room: _Room) -> bool:
        """Let every open transfer of an ended room land; whether this rig can go on."""
        try:
            for _, transfer in room.open.values():
                self.agents.settle(transfer, self._deadline_s)
        except (TransferFailed, TransferStuck):
            return False
        return self._reusable

    def _running(self) -> _Room:
        if self._room is None:
            raise ValueError("no room has begun")
        return self._room


def _before(room: _Room, row: Row) -> None:
    """What decode does on its own just before the row happens."""
    if row.op == Op.META_SENT:
        room.receiver.opens()
    elif row.op == Op.ABORT_SENT:
        room.receiver.gives_up()


def _attrs(row: Row, pages: tuple[int, ...]) -> dict[str, Any]:
    """The row's attrs with what only the rig knows: the pages of a chunk, the worker's queue."""
    if row.op in (Op.CHUNK_ENQUEUED, Op.CHUNK_DEQUEUED, Op.CHUNK_SKIPPED):
        return {**row.attrs, "pages": pages[row.columns["chunk"]], "queue": 0}
    return {**row.attrs, "queue": 0} if row.op == Op.WORKER_WAITING else dict(row.attrs)


def _end_of(room: _Room, *, moves: bool) -> End:
    state = room.state
    waits = not state.concluded and "S" not in state.died
    return End(
        state=state.status,
        polled=state.polled,
        pinned=waits and not moves,
        peers=state.peers,
        left=state.left,
        bytes_checked=room.checked,
        bytes_wrong=room.wrong,
        died=state.died,
    )


def recorded_rig(build: str, folder: Path) -> NixlRig:
    """A rig that records itself into a spool under ``folder``, for its whole process."""
    from tracekv.record.recorder import Recorder as ProcessRecorder
    from tracekv.record.recorder import new_process_id
    from tracekv.spool import SpoolWriter

    folder.mkdir(parents=True, exist_ok=True)
    facts = {"engine": "tracekv-model", "version": build, "build": build, "host": "rig"}
    recorder = ProcessRecorder(
        SpoolWriter(folder, new_process_id()), detail="gates", facts=facts, listener=lambda row: None
    )
    return NixlRig(build, recorder)
