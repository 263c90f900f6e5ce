"""One live manager of SGLang: which of its attributes are seams, and what the manifest says of them.

Nothing here knows a release: a seam is taken if the object has what it needs, and is reported absent
otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from tracekv.event import Op
from tracekv.record.recorder import Recorder, to_json
from tracekv.record.wrap.chunks import ChunkCount, take_queues
from tracekv.record.wrap.control import take_receiving
from tracekv.record.wrap.nixl import take_agent
from tracekv.record.wrap.tables import (
    FailureTap,
    PeersTap,
    PrefixTap,
    StatusTap,
    Tap,
    recording_dict,
    records,
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

#: Seams on classes and on the process: taken once, told of every manager that they concern.
PROCESS_SEAMS: Final[dict[str, str]] = {
    "status_call": "manager.update_status",
    "control_out": "_connect",
    "sender": "CommonKVSender",
    "receiver": "CommonKVReceiver",
    "threads": "threading.excepthook",
}


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
            table = recording_dict(value, kind(self.recorder, self.number))
            return self._took(seam, table, name) if records(table) else self._lost(seam, value, name)
        if name == "server_socket":
            role = "bootstrap" if role_of(manager) == "prefill" else "decode-listener"
            return self._took("control_in", take_receiving(value, self.recorder, self.number, role), name)
        if name == "transfer_queues":
            taken = take_queues(value, self.recorder, self.number, self.count, self._posts)
            return self._took("chunks", taken, name)
        if name == "agent":
            return self._took("agent", take_agent(value, self.recorder, self.number), name)
        return value

    def _took(self, seam: str, value: Any, where: str) -> Any:
        self.installed(seam, f"manager.{where}")
        if seam == "peers":
            self.installed("peers_inner", f"manager.{where}[room]")
        return value

    def _lost(self, seam: str, value: Any, where: str) -> Any:
        """A table of a kind that we cannot take; where it replaces one that we had, that is news."""
        self.taken.add(seam)
        self._manifest(seam, "absent", f"manager.{where} is a {type(value).__name__}")
        return value

    def _posts(self) -> bool:
        """Whether it would be seen if a worker posted a transfer."""
        return "agent" in self.taken

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

    def finish(self, manager: Any) -> None:
        """The constructor returned: what was not taken by now is absent."""
        side = "sender" if role_of(manager) == "prefill" else "receiver"
        for seam, where in PROCESS_SEAMS.items():
            if seam in self.recorder.taken and seam in (side, "status_call", "control_out", "threads"):
                self.installed(seam, where)
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


def tap_of(manager: Any, recorder: Recorder) -> ManagerTap:
    """What the recorder knows of a manager; begins to know it."""
    tap = manager.__dict__.get("_tracekv")
    if tap is None:
        tap = manager.__dict__["_tracekv"] = ManagerTap(recorder)
    return tap  # type: ignore[no-any-return]


def number_of(manager: Any) -> int | None:
    """The recorder's number of a manager, ``None`` for one that it has not seen."""
    tap = getattr(manager, "__dict__", {}).get("_tracekv")
    return None if tap is None else tap.number
