"""The detectors: one file a kind, each a small object with a claim, its evidence and one function."""

from typing import Final

from tracekv.detect import false_success, ghost_room, pinned, resurrection
from tracekv.detect.base import Detector, Found
from tracekv.detect.context import Context, Survey

DETECTORS: Final[tuple[Detector, ...]] = (
    resurrection.DETECTOR,
    pinned.DETECTOR,
    ghost_room.DETECTOR,
    false_success.DETECTOR,
)

__all__ = ["DETECTORS", "Context", "Detector", "Found", "Survey"]
