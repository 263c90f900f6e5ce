"""What several verbs take: a trace, a path, a room id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tracekv.errors import UsageError
from tracekv.event import parse_room
from tracekv.spool import shown


class RoomId(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A room id in decimal or ``0x`` hex; never through a float."""

    name = "room"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_room(value)
        except ValueError:
            self.fail(
                f"{shown(value)!r} is no room id: give it in decimal or as 0x hex, up to 64 bits", param, ctx
            )


class AnyPath(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A path.  An empty one, of a shell variable that is not set, would be the folder we happen to be in."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail("the path is empty", param, ctx)
        return Path(value)


ROOM = RoomId()
PATH = AnyPath()


def opened(path: str) -> Any:
    """The trace at ``path``; an error that names the nearest path where there is none."""
    from tracekv.trace.store import open_trace

    if not path:
        raise UsageError(
            "the path of the trace is empty", hint="name a spool folder, a trace folder or a file"
        )
    if not os.path.exists(path):
        raise UsageError(f"no such trace: {shown(path)}", hint=_nearest(path))
    return open_trace(Path(path))


def _nearest(path: str) -> str:
    from difflib import get_close_matches

    if "://" in path:
        return f"give the path itself: {shown(path.partition('://')[2])}"
    folder, name = os.path.split(path)
    if not os.path.isdir(folder or "."):
        return f"there is no folder {shown(folder)} either"
    try:
        near = get_close_matches(name, os.listdir(folder or "."), n=1)
    except OSError:
        near = []
    if near:
        return f"did you mean {shown(os.path.join(folder, near[0]))}?"
    return "give a spool folder, a dataset folder or a .parquet file"


def room_with_rid(trace: Any, rid: str) -> int:
    """The room of a request id."""
    for event in trace.events():
        if event.rid == rid and event.room is not None:
            found: int = event.room
            return found
    raise UsageError(
        f"no row of the trace has the request id {shown(rid)}", hint="give the room itself with --room"
    )
