"""Two real NIXL agents in this process, and the memory that they move pages between.

Its one promise: after :meth:`Agents.post` not a byte lands at decode before :meth:`Agents.settle`.
It holds because neither agent has a progress thread and all bytes go over TCP: the target makes
progress only when it is asked for notifications, and only ``settle`` asks.

One region a side is registered once and serves every room.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tracekv.replay.rigs.transport import load_nixl

PAGES: Final = 1024
PAGE_BYTES: Final = 4096
AUX_BYTES: Final = 64

Bytes = NDArray[np.uint8]


class TransferFailed(Exception):
    """The transport reported an error for a posted transfer."""


class TransferStuck(Exception):
    """A posted transfer was neither done nor failed at its deadline."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A posted transfer: NIXL's handle, the notification it carries, the bytes it moves."""

    handle: Any
    tag: bytes
    size: int


class _Side:
    """One agent with its registered pages and aux slot."""

    def __init__(self, api: ModuleType, role: str) -> None:
        self.name = f"tracekv-{role}-{uuid.uuid4().hex[:12]}"
        config = api.nixl_agent_config(backends=["UCX"], enable_prog_thread=False)
        self.agent: Any = api.nixl_agent(self.name, config)
        self.pages: Bytes = np.zeros((PAGES, PAGE_BYTES), np.uint8)
        self.aux: Bytes = np.zeros((1, AUX_BYTES), np.uint8)
        for region in (self.pages, self.aux):
            self.agent.register_memory([(region.ctypes.data, region.nbytes, 0, "")], "DRAM")


def _slots(region: Bytes) -> NDArray[np.uint64]:
    """Descriptors of every row of a region: address, length, device; shape ``(rows, 3)``."""
    rows, size = region.shape
    found = np.zeros((rows, 3), np.uint64)
    found[:, 0] = region.ctypes.data + np.arange(rows, dtype=np.uint64) * np.uint64(size)
    found[:, 1] = size
    return found


class Agents:
    """A prefill agent, a decode agent, and what lies between them.

    ``source`` and ``target`` are the pages of the two sides, shape ``(PAGES, PAGE_BYTES)``; a test
    may write to either.
    """

    def __init__(self) -> None:
        api = load_nixl()
        self._prefill, self._decode = _Side(api, "prefill"), _Side(api, "decode")
        self.source, self.target = self._prefill.pages, self._decode.pages
        self.source_aux, self.target_aux = self._prefill.aux, self._decode.aux
        self.prefill_name, self.decode_name = self._prefill.name, self._decode.name
        agent = self._prefill.agent
        agent.add_remote_agent(self._decode.agent.get_agent_metadata())
        self._page_lists = self._prepare(self.source, self.target)
        self._aux_lists = self._prepare(self.source_aux, self.target_aux)
        self._notified: set[bytes] = set()

    def _prepare(self, source: Bytes, target: Bytes) -> tuple[Any, Any]:
        agent = self._prefill.agent
        local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", _slots(source), "DRAM")
        return local, agent.prep_xfer_dlist(self.decode_name, _slots(target), "DRAM")

    def post(self, source: Sequence[int], target: Sequence[int], tag: bytes) -> Transfer:
        """Start to write the pages ``source`` into the pages ``target``; returns with none landed."""
        return self._post(self._page_lists, source, target, tag, len(source) * PAGE_BYTES)

    def post_aux(self, tag: bytes) -> Transfer:
        """Start to write the aux slot."""
        return self._post(self._aux_lists, (0,), (0,), tag, AUX_BYTES)

    def _post(
        self, lists: tuple[Any, Any], source: Sequence[int], target: Sequence[int], tag: bytes, size: int
    ) -> Transfer:
        agent, (local, remote) = self._prefill.agent, lists
        indices = np.asarray(source, np.int32), np.asarray(target, np.int32)
        handle = agent.make_prepped_xfer("WRITE", local, indices[0], remote, indices[1], tag)
        agent.transfer(handle)
        return Transfer(handle, tag, size)

    def settle(self, transfer: Transfer, deadline_s: float) -> None:
        """Drive both agents until the transfer is done and decode was notified of it.

        Raises
        ------
        TransferFailed
            where the transport reports an error.
        TransferStuck
            where neither happens within ``deadline_s`` seconds.
        """
        limit = time.monotonic() + deadline_s
        done = False
        while not (done and transfer.tag in self._notified):
            if time.monotonic() >= limit:
                raise TransferStuck(f"no end after {deadline_s:g} s; done at the sender: {done}")
            done = self._done(transfer)
            for tags in self._decode.agent.get_new_notifs().values():
                self._notified.update(tags)
        self._notified.discard(transfer.tag)
        self._prefill.agent.release_xfer_handle(transfer.handle)

    def _done(self, transfer: Transfer) -> bool:
        try:
            state = self._prefill.agent.check_xfer_state(transfer.handle)
        except Exception as error:  # every error status of NIXL arrives as an exception of its own
            raise TransferFailed(f"{type(error).__name__}: {error}") from error
        if state not in ("DONE", "PROC"):
            raise TransferFailed(f"transfer state {state}")
        return bool(state == "DONE")

    def cut(self) -> None:
        """Make the prefill agent forget its peer: transfers in flight then fail at the sender."""
        self._prefill.agent.remove_remote_agent(self.decode_name)


@lru_cache(maxsize=1)
def shared_agents() -> Agents:
    """The pair of this process; an agent costs a tenth of a second and serves every room."""
    return Agents()
