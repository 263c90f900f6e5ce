"""The replay lab: what to execute, in which order, on which rig, and whether it happened again.

``tracekv.replay(...)`` is :func:`tracekv.replay.run.replay`.  The package and that function share
their name on purpose, so the package can be called; it promises to load nothing until it is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, trace: Any, **options: Any) -> Any:
        """``tracekv.replay.run.replay``, also for the recording that ``tracekv.open`` gives."""
        return import_module("tracekv.replay.run").replay(getattr(trace, "trace", trace), **options)


sys.modules[__name__].__class__ = _CallablePackage
