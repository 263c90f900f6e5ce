"""``tracekv replay``: execute a recorded room again, on a rig."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tracekv.cli import say
from tracekv.cli.arguments import ROOM, opened


@click.command()
@click.argument("trace")
@click.option("--room", type=ROOM, help="The room; without it the only one with findings.")
@click.option(
    "--rig",
    type=click.Choice(["nixl", "sglang"]),
    default="nixl",
    show_default=True,
    help="nixl: our model of the manager over real NIXL. sglang: the engine's own code.",
)
@click.option("--build", help="VERSION[+PATCH...], a wheel or a source tree  [default: the trace's]")
@click.option("--times", type=click.IntRange(1, 100_000), default=1, show_default=True)
@click.option(
    "--expect",
    type=click.Choice(["reproduced", "pinned", "failed", "success"]),
    default="reproduced",
    show_default=True,
    help="What must hold every time for exit code 0.",
)
@click.option(
    "--schedule",
    type=click.Choice(["strict", "anchored"]),
    help="The exact order, or one that carries across builds  [default: strict for the same code]",
)
@click.option("--fetch", is_flag=True, help="Download the build with pip if it is not here.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the replays' own spool.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def replay(
    ctx: click.Context,
    trace: str,
    room: int | None,
    rig: str,
    build: str | None,
    times: int,
    expect: str,
    schedule: str | None,
    fetch: bool,
    keep: Path | None,
    form: str,
) -> None:
    """Execute a room of TRACE again: the same interleaving, on real NIXL, N times.

    Each execution is recorded and judged by the analyzer that judges traces; that is the proof.

    Exit codes: 0 the expectation held N/N, 1 it did not, 2 usage, 3 a run diverged, 4 unreadable.
    """
    from tracekv.replay.run import replay as again
    from tracekv.show.replay import replay_json, replay_text

    with _ended_in_order(), _progress(times) as told:
        answer = again(
            opened(trace), room=room, rig=rig, build=build, times=times, expect=expect, kind=schedule,
            fetch=fetch, keep=keep, told=told,
        )  # fmt: skip
    say(json.dumps(replay_json(answer), indent=2) if form == "json" else replay_text(answer))
    ctx.exit(answer.exit_code)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end a replay as Ctrl-C does: the rig's process and its folder go along."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(times: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where somebody looks; called with the number of runs so far."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    with click.progressbar(length=times, label="replaying", file=sys.stderr) as bar:
        yield lambda done: bar.update(1)
