"""``tracekv show``: one room, told or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekv.cli import painter, say
from tracekv.cli.arguments import ROOM, opened
from tracekv.errors import UsageError

if TYPE_CHECKING:
    from tracekv.finding import Finding
    from tracekv.rooms import Room

DRAWN = (".png", ".svg", ".pdf")


@click.command()
@click.argument("trace")
@click.argument("room", type=ROOM)
@click.option("-o", "--output", metavar="FILE", help="Draw the room into FILE (.png, .svg or .pdf).")
def show(trace: str, room: int, output: str | None) -> None:
    """Tell the story of ROOM (decimal or 0x hex) in the TRACE, healthy or not; with -o, draw it."""
    from tracekv.examine import build_of, examine
    from tracekv.show.text import room_text
    from tracekv.verdict import judge

    if output is not None and Path(output).suffix.lower() not in DRAWN:
        hint = f"give a name that ends in one of {', '.join(DRAWN)}"
        raise UsageError(f"cannot draw into {output}", hint=hint)
    seen = examine(opened(trace), room=room)
    found = seen.chosen[0]
    if output is not None:
        _draw(found, seen.findings, output, build_of(seen.trace, found))
        return
    say(room_text(found, judge(seen), trace, painter()))


def _draw(room: Room, findings: Sequence[Finding], output: str, build: str | None) -> None:
    from tracekv.show.plot import save

    try:
        save(room, findings, output, build=build)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"wrote {output}", err=True)
