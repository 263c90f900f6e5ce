"""``tracekv rooms``: the table of rooms."""

from __future__ import annotations

import json

import click

from tracekv.cli import say
from tracekv.cli.arguments import opened


@click.command()
@click.argument("trace")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
)
def rooms(trace: str, form: str) -> None:
    """List the rooms of the TRACE, one line for each life of a room on each side."""
    from tracekv.examine import examine
    from tracekv.show import table
    from tracekv.show.json import rooms_json

    seen = examine(opened(trace))
    rows = table.rows(seen.rooms, seen.findings, seen.notes)
    if form == "json":
        say(json.dumps(rooms_json(seen.rooms, rows), indent=2))
    else:
        say(table.as_csv(rows) if form == "csv" else table.as_text(rows))
