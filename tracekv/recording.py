"""A trace as a notebook holds it: ``tracekv.open(path)`` and the questions that one asks of it.

Everything is computed once, on the first question, and nothing is written anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekv.examine import Examined, build_of, examine, find_room
from tracekv.rooms import Room
from tracekv.show.table import COLUMNS, rows
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
        seen = self._examined
        lives = rows(seen.rooms, seen.findings, seen.notes)
        return _frame([each | {"room": int(each["room"])} for each in lives], COLUMNS)

    def findings(self) -> pandas.DataFrame:
        """One line a finding, the room a UInt64; the stories are in ``verdict.findings``."""
        found = [{name: getattr(each, name) for name in _COLUMNS} for each in self.verdict.findings]
        return _frame([each | {"state": each["state"].label} for each in found], _COLUMNS)

    def room(self, room: int | str) -> Room:
        """One room by its id, as an integer or as decimal or ``0x`` hex text.

        Raises
        ------
        UsageError
            when it is no room id, or the trace does not hold it; the error names the nearest id.
        """
        return find_room(self._examined.rooms, room)

    def frame(self) -> pandas.DataFrame:
        """All rows, in nullable dtypes."""
        found: pandas.DataFrame = self.trace.frame()
        return found

    def plot(self, room: int | str, ax: Axes | None = None) -> Axes:
        """Draw the timeline of one room; returns the axes.  Errors are those of :meth:`room`."""
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


_DTYPES = {"room": "UInt64", "incarnation": "int64", "chunks": "int64", "age_s": "float64"}


def _frame(lines: list[dict[str, Any]], columns: Sequence[str]) -> pandas.DataFrame:
    """Lines as a frame whose dtypes do not depend on what is in it, or on whether anything is."""
    import pandas

    cells = {
        name: pandas.Series([line[name] for line in lines], dtype=_DTYPES.get(name, "object"))
        for name in columns
    }
    frame: pandas.DataFrame = pandas.DataFrame(cells)
    return frame


def open(path: str | Path, *, stuck_after_s: float | None = None) -> Recording:
    """Open a dataset folder, a spool folder (also while its server runs) or a Parquet file."""
    from tracekv.trace.store import open_trace

    return Recording(open_trace(Path(path)), stuck_after_s=stuck_after_s)
