"""A trace as a notebook holds it: ``tracekv.open(path)`` and the questions that one asks of it.

Everything is computed once, on the first question, and nothing is written anywhere.
"""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekv.event import parse_room
from tracekv.examine import Examined, build_of, examine, find_room
from tracekv.rooms import Room
from tracekv.show.table import rows
from tracekv.verdict import Verdict, judge

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


_COLUMNS = [
    "id",
    "kind",
    "certainty",
    "room",
    "incarnation",
    "role",
    "state",
    "queue",
    "blocked_on",
    "claim",
    "remedy",
]


class Recording:
    """A dataset or a spool with its rooms, its findings and its verdict."""

    def __init__(self, trace: Any, *, stuck_after_s: float | None = None) -> None:
        self.trace = trace
        self._stuck_after_s = stuck_after_s

    @cached_property
    def _examined(self) -> Examined:
        return examine(self.trace, stuck_after_s=self._stuck_after_s)

    @cached_property
    def verdict(self) -> Verdict:
        """Violation, Clean or CannotTell."""
        return judge(self._examined)

    def rooms(self) -> pandas.DataFrame:
        """One line a life; the columns are those of ``tracekv rooms``, the room a UInt64."""
        import pandas

        seen = self._examined
        frame: pandas.DataFrame = pandas.DataFrame(rows(seen.rooms, seen.findings, seen.notes))
        if not frame.empty:
            frame["room"] = pandas.array([int(room) for room in frame["room"]], dtype="UInt64")
        return frame

    def findings(self) -> pandas.DataFrame:
        """One line a finding, the room a UInt64; the stories are in ``verdict.findings``."""
        import pandas

        found = self.verdict.findings
        cells = [[getattr(each, name) for name in _COLUMNS] for each in found]
        frame: pandas.DataFrame = pandas.DataFrame(cells, columns=_COLUMNS)
        frame["room"] = pandas.array([each.room for each in found], dtype="UInt64")
        frame["state"] = [each.state.label for each in found]
        return frame

    def room(self, room: int | str) -> Room:
        """One room by its id, as an integer or as decimal or ``0x`` hex text.

        Raises
        ------
        UsageError
            when the trace does not hold it; the error names the nearest id.
        """
        return find_room(self._examined.rooms, parse_room(room) if isinstance(room, str) else room)

    def frame(self) -> pandas.DataFrame:
        """All rows, in nullable dtypes."""
        found: pandas.DataFrame = self.trace.frame()
        return found

    def plot(self, room: int | str, ax: Axes | None = None) -> Axes:
        """Draw the timeline of one room; returns the axes."""
        from tracekv.show.plot import room_plot

        chosen = self.room(room)
        about = [each for each in self.verdict.findings if each.room == chosen.room]
        return room_plot(chosen, about, ax=ax, build=build_of(self.trace, chosen))

    def __repr__(self) -> str:
        evidence = self.verdict.evidence
        return f"Recording({self.verdict.name}, {evidence.rooms} rooms, {evidence.rows} rows)"

    def _repr_html_(self) -> str:
        """The verdict and its findings, static."""
        told = (f"{each.kind}: room {each.room}, {each.claim}" for each in self.verdict.findings)
        lines = "".join(f"<li>{escape(line)}</li>" for line in told)
        return f"<p>{escape(repr(self))}</p><ul>{lines}</ul>"


def open(path: str | Path, *, stuck_after_s: float | None = None) -> Recording:
    """Open a dataset folder, a spool folder (also while its server runs) or a Parquet file."""
    from tracekv.trace.store import open_trace

    return Recording(open_trace(Path(path)), stuck_after_s=stuck_after_s)
