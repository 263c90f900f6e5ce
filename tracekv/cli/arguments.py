"""What several verbs take: a trace, a room id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracekv.errors import UsageError
from tracekv.event import parse_room


class RoomId(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A room id in decimal or ``0x`` hex; never through a float."""

    name = "room"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_room(value)
        except ValueError:
            self.fail(f"{value!r} is no room id: give it in decimal or as 0x hex, up to 64 bits", param, ctx)


ROOM = RoomId()


def opened(path: str) -> Any:
    """The trace at ``path``; an error that names the nearest path where there is none."""
    from tracekv.trace.store import open_trace

    if not Path(path).exists():
        raise UsageError(f"no such trace: {path}", hint=_nearest(Path(path)))
    return open_trace(Path(path))


def _nearest(path: Path) -> str:
    from difflib import get_close_matches

    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    names = [each.name for each in folder.iterdir()]
    near = get_close_matches(path.name, names, n=1)
    if near:
        return f"did you mean {folder / near[0]}?"
    return "give a spool folder, a dataset folder or a .parquet file"


def room_with_rid(trace: Any, rid: str) -> int:
    """The room of a request id."""
    for event in trace.events():
        if event.rid == rid and event.room is not None:
            found: int = event.room
            return found
    raise UsageError(f"no row of the trace has the request id {rid}", hint="give the room itself with --room")
