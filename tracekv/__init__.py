"""tracekv: which KV-transfer room hangs, why, and the same interleaving again on a rig.

The names below are the whole surface for a notebook.  Importing this package imports none of the
libraries behind them: each name loads its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tracekv.event import Event as Event
    from tracekv.event import Op as Op
    from tracekv.event import State as State
    from tracekv.recording import Recording as Recording
    from tracekv.recording import open as open
    from tracekv.verdict import CannotTell as CannotTell
    from tracekv.verdict import Clean as Clean
    from tracekv.verdict import Finding as Finding
    from tracekv.verdict import Violation as Violation
    from tracekv.verdict import analyze as analyze

_HOMES = {
    "open": "tracekv.recording",
    "Recording": "tracekv.recording",
    "analyze": "tracekv.verdict",
    "Violation": "tracekv.verdict",
    "Clean": "tracekv.verdict",
    "CannotTell": "tracekv.verdict",
    "Finding": "tracekv.verdict",
    "Event": "tracekv.event",
    "State": "tracekv.event",
    "Op": "tracekv.event",
}

__all__ = [
    "CannotTell",
    "Clean",
    "Event",
    "Finding",
    "Op",
    "Recording",
    "State",
    "Violation",
    "__version__",
    "analyze",
    "open",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name == "replay":
        return import_module("tracekv.replay")  # a package that can be called
    if name not in _HOMES:
        raise AttributeError(f"module 'tracekv' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "replay"})
