"""Stand-ins for what the KV managers import but a rig without a model does not need.

The code under test (``sglang.srt.disaggregation``) is always the real one.  What is replaced is
around it: torch, the model layers, the server's arguments.  A stand-in is *falsy*, so that every
``if is_cuda():`` takes the plain path; a decorator among them returns the function that it got; and
the few facts that the managers really ask for (sizes and ranks of a single process) are answered
from a table.

Python's import system finds these through one meta-path finder; nothing is written to disk.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any, Final

STUBBED: Final[tuple[str, ...]] = (
    "torch",
    "torchvision",
    "triton",
    "sglang.srt.configs",
    "sglang.srt.debug_utils",
    "sglang.srt.distributed",
    "sglang.srt.layers",
    "sglang.srt.mem_cache",
    "sglang.srt.observability",
    "sglang.srt.runtime_context",
    "sglang.srt.server_args",
)

#: Packages whose own ``__init__`` would pull in the whole server: an empty module with the real
#: path stands in for them, so that their real submodules are found.
HOLLOW: Final[tuple[str, ...]] = ("sglang", "sglang.srt", "sglang.srt.utils")


class Stub:
    """Falsy; every attribute and every call gives another one; as a decorator it is transparent."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...

    def __bool__(self) -> bool:
        return False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return Stub()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_exc: object) -> None: ...

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__


class SingleRank:
    """One process that is its own world: every size is 1, every rank 0, every switch off."""

    load_balance_method = "follow_bootstrap_room"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return single_rank(name)


def single_rank(name: str) -> Any:
    """What a server of one rank answers: 1 for a size, 0 for a rank, no for a switch, else nothing."""
    if name.endswith("_size") or name.startswith("num_"):
        return 1
    if name.endswith("_rank"):
        return 0
    if name.startswith(("enable_", "is_")):
        return False
    return None


def _ask(name: str) -> Any:
    """What ``from stubbed.module import name`` gives: a function for ``get_*``, a stub otherwise."""
    if name == "get_parallel":
        return SingleRank
    if name.startswith("get_") and name.endswith(("_size", "_rank", "_group")):
        value = single_rank(name)
        return lambda *args, **kwargs: value
    if name[:1].isupper():
        return type(name, (Stub,), {})
    return Stub()


class _StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _ask(name)
        setattr(self, name, value)
        return value


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a stub module for every name under :data:`STUBBED` and a hollow one for :data:`HOLLOW`."""

    def __init__(self, source: str, stubbed: Iterable[str] = STUBBED) -> None:
        self.source = source
        self.stubbed = tuple(stubbed)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in HOLLOW or any(name == stub or name.startswith(stub + ".") for stub in self.stubbed):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _StubModule(spec.name)
        hollow = spec.name in HOLLOW
        module.__path__ = [f"{self.source}/{spec.name.replace('.', '/')}"] if hollow else []
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


def install(source: str) -> None:
    """Put the stand-ins before every other finder; ``source`` is the folder that holds ``sglang/``."""
    sys.meta_path.insert(0, StubFinder(source))
