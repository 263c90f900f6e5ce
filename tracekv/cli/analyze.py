"""``tracekv analyze``: judge a trace, live or at rest."""

from __future__ import annotations

import json

import click

from tracekv.cli import painter, say
from tracekv.cli.arguments import ROOM, opened, room_with_rid
from tracekv.errors import UsageError


@click.command()
@click.argument("trace")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--room", type=ROOM, help="Judge this room only (decimal or 0x hex).")
@click.option("--rid", help="Judge the room of this request id only.")
@click.option(
    "--stuck-after",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Suspect a room after this time without progress  [default: 10 x p99 of settled rooms, at least 30]",
)
@click.pass_context
def analyze(
    ctx: click.Context, trace: str, form: str, room: int | None, rid: str | None, stuck_after: float | None
) -> None:
    """Judge the TRACE: a spool folder (also while its server runs), a dataset folder or a Parquet file.

    Exit codes: 0 clean with evidence, 1 violation, 2 usage, 3 cannot tell, 4 unreadable.
    """
    from tracekv.verdict import analyze as judge

    if room is not None and rid is not None:
        raise UsageError("give --room or --rid, not both")
    source = opened(trace)
    chosen = room_with_rid(source, rid) if rid is not None else room
    verdict = judge(source, stuck_after_s=stuck_after, room=chosen)
    if form == "json":
        from tracekv.show.json import analysis

        say(json.dumps(analysis(verdict), indent=2))
    else:
        from tracekv.show.text import verdict_text

        say(verdict_text(verdict, trace, painter()))
    ctx.exit(verdict.exit_code)
