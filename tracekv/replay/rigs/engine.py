"""SGLang's own managers of both roles, alive in this process, over real NIXL and real sockets.

Nothing of ``sglang.srt.disaggregation`` is replaced: its manager, sender, receiver, threads and
bootstrap server are the installed ones, changed only by the patches that the build names.  What is
ours is around them: page memory in DRAM, the arguments of a server with one rank, stand-ins for the
model code (:mod:`tracekv.replay.rigs.stubs`).  One engine per process; it cannot be undone.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import inspect
import logging
import os
import socket
import sys
import time
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tracekv.errors import UsageError
from tracekv.record.recorder import Gate, Recorder
from tracekv.replay.rigs import stubs, transport
from tracekv.replay.rigs.build import Build
from tracekv.replay.rigs.patches import module_path, patched_sources

NEEDS: Final = ("zmq", "aiohttp", "requests", "orjson", "msgspec", "psutil")
AUX_SLOTS: Final = 64
AUX_BYTES: Final = 64
START_LIMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Memory:
    """KV pages of one role: ``layers`` arrays of ``pages`` x ``page_bytes`` uint8, and aux slots."""

    pages: int = 256
    page_bytes: int = 4096
    layers: int = 2
    aux: Any = None
    kv: tuple[Any, ...] = ()

    @classmethod
    def allocate(cls, pages: int, page_bytes: int, layers: int) -> Memory:
        """Zeroed memory."""
        kv = tuple(np.zeros((pages, page_bytes), dtype=np.uint8) for _ in range(layers))
        return cls(pages, page_bytes, layers, np.zeros((AUX_SLOTS, AUX_BYTES), dtype=np.uint8), kv)


class Patched(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Executes a module's changed text in place of its file."""

    def __init__(self, source: Path, texts: dict[str, str]) -> None:
        self.source = source
        self.texts = texts

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.texts:
            return None
        file = str(module_path(self.source, name))
        return importlib.machinery.ModuleSpec(name, self, origin=file)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        file = str(module_path(self.source, module.__name__))
        module.__file__ = file
        exec(compile(self.texts[module.__name__], file, "exec"), module.__dict__)


class Engine:
    """Managers of both roles of one build, and a factory for senders and receivers.

    ``prefill`` and ``decode`` are the live managers; ``source`` and ``target`` their memory.
    """

    def __init__(
        self,
        build: Build,
        source: Path,
        *,
        queues: int = 1,
        pages: int = 256,
        page_bytes: int = 4096,
        layers: int = 2,
    ) -> None:
        self.build = build
        check_packages()
        self._environment(queues)
        self.texts = patched_sources(source, build.patches)
        stubs.install(str(source))
        sys.meta_path.insert(0, Patched(source, self.texts))
        _alias_nixl()
        logging.getLogger("sglang").setLevel(logging.CRITICAL)
        self.source = Memory.allocate(pages, page_bytes, layers)
        self.target = Memory.allocate(pages, page_bytes, layers)

    def _environment(self, queues: int) -> None:
        os.environ.update(transport.ENVIRONMENT)
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"  # the bootstrap server is here
        os.environ["SGLANG_DISAGGREGATION_QUEUE_SIZE"] = str(queues)
        os.environ.pop("SGLANG_DISAGGREGATION_NIXL_BACKEND", None)  # UCX is what moves bytes in DRAM
        os.environ["HOST_IP"] = os.environ["SGLANG_HOST_IP"] = "127.0.0.1"

    def start(self) -> None:
        """Import the managers and start them: bootstrap server, prefill, decode.

        Call it after the recorder was started, so that every seam is taken at assignment.
        """
        self.common = importlib.import_module("sglang.srt.disaggregation.common.conn")
        self.nixl = importlib.import_module("sglang.srt.disaggregation.nixl.conn")
        self.logger_off()
        base = importlib.import_module("sglang.srt.disaggregation.base.conn")
        self.mode = importlib.import_module("sglang.srt.disaggregation.utils").DisaggregationMode
        self.poll_states = base.KVPoll
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.server = self.nixl.NixlKVBootstrapServer("127.0.0.1", port)
        _until(lambda: _listens(port), "the bootstrap server to listen")
        arguments = server_arguments(port)
        make = self.nixl.NixlKVManager
        self.prefill = make(kv_arguments(base.KVArgs, self.source), self.mode.PREFILL, arguments)
        self.decode = make(kv_arguments(base.KVArgs, self.target), self.mode.DECODE, arguments)
        _until(lambda: self.decode.try_ensure_parallel_info(self.address), "the prefill rank to register")

    def logger_off(self) -> None:
        """The managers log every expected failure with a traceback; a rig reports them itself."""
        for module in (self.common, self.nixl):
            module.logger.setLevel(logging.CRITICAL)
            if not hasattr(module.logger, "warning_once"):
                module.logger.warning_once = module.logger.warning

    def sender(self, room: int) -> Any:
        """A new sender, as the prefill scheduler makes it."""
        kind = self.nixl.NixlKVSender
        extra = ([0], 0) if "dest_tp_ranks" in inspect.signature(kind.__init__).parameters else ()
        return kind(self.prefill, self.address, room, *extra)

    def receiver(self, room: int) -> Any:
        """A new receiver, initialised, as the decode engine makes it."""
        receiver = self.nixl.NixlKVReceiver(self.decode, self.address, room)
        receiver.init(0)
        return receiver


def check_packages() -> None:
    """Raise UsageError naming the packages of the ``rig`` extra that are missing."""
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the sglang rig needs {', '.join(missing)}",
            hint="in a clone of tracekv: pip install -e '.[rig]'   (no torch needed)",
        )


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {START_LIMIT_S:g} s for {what}")
        time.sleep(0.02)


class _Arguments(types.SimpleNamespace):
    """Server arguments of one rank; a switch that a newer release asks for is off."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stubs.single_rank(name)


def server_arguments(port: int) -> Any:
    """What a manager asks of the server's command line."""
    return _Arguments(
        host="127.0.0.1", port=port + 1, disaggregation_bootstrap_port=port, dist_init_addr=None,
        kv_cache_dtype="auto", load_balance_method="follow_bootstrap_room", page_size=1,
        chunked_prefill_size=8192,
    )  # fmt: skip


def kv_arguments(kind: Any, memory: Memory) -> Any:
    """``KVArgs`` of one rank over ``memory``."""
    arguments = kind()
    facts: dict[str, Any] = {
        "engine_rank": 0,
        "kv_data_ptrs": [layer.ctypes.data for layer in memory.kv],
        "kv_data_lens": [layer.nbytes for layer in memory.kv],
        "kv_item_lens": [memory.page_bytes] * memory.layers,
        "kv_mem_kinds": ["DRAM"] * memory.layers,
        "kv_layer_ids": list(range(memory.layers)),
        "kv_cache_dtype_str": "auto",
        "aux_data_ptrs": [memory.aux.ctypes.data],
        "aux_data_lens": [memory.aux.nbytes],
        "aux_item_lens": [AUX_BYTES],
        "is_hybrid_mla_backend": False,
        "ib_device": "",
        "ib_traffic_class": "",
        "gpu_id": 0,
        "kv_head_num": 1,
        "total_kv_head_num": 1,
        "page_size": 1,
        "system_dp_rank": 0,
        "pp_rank": 0,
        "prefill_start_layer": 0,
        "prefill_end_layer": memory.layers,
        "mla_compression_ratios": None,
        "kv_buf_groups": 1,
        "total_kv_layers": memory.layers,
    }
    empty = (
        "state_types", "state_data_ptrs", "state_data_lens", "state_item_lens", "state_layer_ids",
        "state_dim_per_tensor", "state_slice_outer_counts", "state_conv_shard_groups", "state_mem_kinds",
    )  # fmt: skip
    for name, value in (facts | {name: [] for name in empty}).items():
        setattr(arguments, name, value)
    return arguments


def _alias_nixl() -> None:
    """``nixl._api`` with device memory mapped to DRAM and a progress thread that sleeps."""
    api = transport.load_nixl()
    package = types.ModuleType("nixl")
    package.__path__ = []
    bindings = importlib.import_module(api.__name__.replace("_api", "_bindings"))
    sys.modules.update({"nixl": package, "nixl._api": api, "nixl._bindings": bindings})
    api.nixl_agent = on_dram(api.nixl_agent)
    api.nixl_agent_config = one_thread(api.nixl_agent_config)
    transport.calm_progress_thread(api)


def on_dram(kind: Any) -> Any:
    """The agent's class with every ``VRAM`` argument read as DRAM of device 0."""

    class DramAgent(kind):  # type: ignore[misc]
        """The real agent; only the kind of memory is mapped."""

        def create_backend(self, backend: str, params: dict[str, str] | None = None) -> Any:
            return super().create_backend(backend, {**(params or {}), "num_threads": "1"})

        def register_memory(self, regions: Any, kind: str | None = None, **more: Any) -> Any:
            return super().register_memory(device_zero(regions), dram(kind), **more)

        def get_xfer_descs(self, descs: Any, kind: str | None = None, **more: Any) -> Any:
            return super().get_xfer_descs(device_zero(descs), dram(kind), **more)

        def prep_xfer_dlist(self, agent: str, descs: Any, kind: str | None = None, **more: Any) -> Any:
            return super().prep_xfer_dlist(agent, device_zero(descs), dram(kind), **more)

    return DramAgent


def one_thread(config: Any) -> Any:
    """The agent's configuration with at most one transfer thread: two cores are enough for a rig."""

    def configured(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("num_threads"):
            kwargs["num_threads"] = 1
        return config(*args, **kwargs)

    return configured


def dram(kind: str | None) -> str | None:
    """``DRAM`` for ``VRAM``, anything else unchanged."""
    return "DRAM" if kind == "VRAM" else kind


def device_zero(descs: Any) -> Any:
    """Descriptors (N x 3 array, or tuples of address, length, device, ...) on device 0."""
    if isinstance(descs, np.ndarray) and descs.ndim == 2:
        moved = descs.copy()
        moved[:, 2] = 0
        return moved
    if isinstance(descs, list):
        return [(*item[:2], 0, *item[3:]) if isinstance(item, tuple) else item for item in descs]
    return descs


def recorder_of(engine: Engine, folder: Path, *, detail: str, gate: Gate | None) -> Recorder:
    """A recorder that waits for the engine's import, through the door that a server would use.

    Call it before :meth:`Engine.start`.
    """
    from tracekv.record import install

    facts = {"engine": "sglang", "version": engine.build.base, "build": engine.build.label, "host": "rig"}
    return install.start(folder, detail=detail, gate=gate, facts=facts)
