"""NIXL on a machine without a GPU: which package it is in, and the environment that it must find.

The environment must be set before the import, since UCX reads it once.  TCP over loopback alone
(``UCX_TLS=tcp``) is what holds a transfer open until its target is stepped; the other values keep
libibverbs out and the logs off standard output.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any, Final

from tracekv.errors import UsageError

ENVIRONMENT: Final[dict[str, str]] = {
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "lo",
    "UCX_MODULES": "^ib",
    "UCX_MEM_MMAP_HOOK_MODE": "none",
    "UCX_LOG_LEVEL": "fatal",
    "NIXL_LOG_LEVEL": "FATAL",
}

MODULES: Final = ("nixl_cu12._api", "nixl_cu13._api", "nixl._api")
HINT: Final = "pip install --no-deps nixl-cu12==1.5.1   (without --no-deps it brings torch along)"
PROGRESS_DELAY_US: Final = 1000  # 0, the package's value, is a busy loop that eats a core


def load_nixl() -> Any:
    """NIXL's Python module, imported with :data:`ENVIRONMENT` in force.

    Raises UsageError where no wheel of NIXL can be imported.
    """
    os.environ.update(ENVIRONMENT)
    reasons = []
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            reasons.append(f"{name}: {error}")
            continue
        logging.getLogger("nixl").setLevel(logging.WARNING)
        return module
    raise UsageError("replay needs NIXL, which cannot be imported (" + "; ".join(reasons) + ")", hint=HINT)


def calm_progress_thread(api: Any) -> None:
    """Let the progress threads of agents made from now on sleep between polls."""
    real = api.nixlBind.nixlAgentConfig

    class Calm(real):  # type: ignore[misc,valid-type]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, PROGRESS_DELAY_US if name == "pthrDelay" else value)

    api.nixlBind.nixlAgentConfig = Calm
