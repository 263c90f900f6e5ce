"""``tracekv show``: one room, told or drawn."""

from __future__ import annotations

from pathlib import Path

import click

from tracekv.cli import painter, say
from tracekv.cli.arguments import ROOM, opened
from tracekv.errors import UsageError

DRAWN = (".png", ".svg", ".pdf")


@click.command()
@click.argument("trace")
@click.argument("room", type=ROOM)
@click.option("-o", "--output", metavar="FILE", help="Draw the room into FILE (.png, .svg or .pdf).")
def show(trace: str, room: int, output: str | None) -> None:
    """Tell the story of ROOM (decimal or 0x hex) in the TRACE, healthy or not; with -o, draw it."""
    from tracekv.show.text import room_text
    from tracekv.verdict import survey

    if output is not None and Path(output).suffix.lower() not in DRAWN:
        raise UsageError(f"cannot draw into {output}", hint=f"give a name that ends in one of {', '.join(DRAWN)}")
    seen = survey(opened(trace))
    found = seen.room(room)
    findings, notes = seen.about(room)
    if output is not None:
        from tracekv.show.plot import save

        save(found, findings, output)
        click.echo(f"wrote {output}", err=True)
        return
    say(room_text(found, findings, notes, seen.context, trace, painter()))
