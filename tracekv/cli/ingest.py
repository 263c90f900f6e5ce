"""``tracekv ingest SPOOL -o TRACE``: what a server recorded becomes a trace that anything can read."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekv.cli.arguments import PATH
from tracekv.errors import EXIT_UNREADABLE
from tracekv.spool import shown

if TYPE_CHECKING:
    from tracekv.ingest.spool import Report

#: Below this many bytes of spool nobody waits long enough to want a bar.
LONG = 16 << 20


@click.command()
@click.argument("spool", type=PATH)
@click.option(
    "-o",
    "--output",
    "trace",
    required=True,
    metavar="TRACE",
    type=PATH,
    help="Folder of the trace; a trace that is there already is added to.",
)
@click.pass_context
def ingest(context: click.Context, spool: Path, trace: Path) -> None:
    """Turn a SPOOL folder into a trace in Parquet.

    The server may still be writing: ingest again later, into the same TRACE, to add what came since.
    Ends with 0, or with 4 where a part of the spool could not be read; the rest is written then, and
    the trace says that it is partial.
    """
    report = _run(spool, trace)
    for line in told(report):
        click.echo(line, err=True)
    click.echo(f"next: tracekv analyze {shown(shlex.quote(str(trace)))}", err=True)
    if report.damage:
        context.exit(EXIT_UNREADABLE)


def _run(spool: Path, trace: Path) -> Report:
    from tracekv.ingest.spool import ingest_spool

    if not sys.stderr.isatty() or not os.path.isdir(spool):
        return ingest_spool(spool, trace)
    segments = list(spool.rglob("*.seg"))
    names = {path.name.rsplit(".", 3)[0] for path in segments}
    if sum(path.stat().st_size for path in segments if path.is_file()) < LONG:
        return ingest_spool(spool, trace)
    with click.progressbar(length=len(names), label="processes", file=sys.stderr) as bar:
        return ingest_spool(spool, trace, lambda _process, _rows: bar.update(1))


def told(report: Report) -> list[str]:
    """The report as people read it, a line for each thing."""
    each = report.bytes_per_row
    size = f", {each:.1f} bytes a row" if each is not None else ""
    lines = [f"{report.rows:,} rows of {len(report.processes)} processes{size}"]
    if report.losses:
        why: Counter[str] = Counter()
        for loss in report.losses:
            why[loss.why] += loss.n
        lines += [f"lost: at least {n:,} rows: {reason}" for reason, n in why.most_common()]
    lines += [f"damaged: {item}" for item in report.damage]
    if report.losses or report.damage:
        lines.append("the trace is partial: no analysis of it will say clean")
    return lines
