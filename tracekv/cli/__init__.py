"""The command line: one verb, one file, loaded when it is called.

This module imports nothing but click and the error classes, so that ``--help`` is quick.  It is the
one place that turns an error into a message and an exit code; a traceback is never an answer.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final

import click

from tracekv.errors import EXIT_CANNOT_TELL, EXIT_USAGE, TracekvError

VERBS: Final = {
    "analyze": "Judge a trace: which rooms are pinned, since when, and how sure that is.",
    "rooms": "List the rooms of a trace.",
    "show": "Tell or draw one room.",
    "ingest": "Turn a spool or another source into a dataset.",
    "replay": "Execute a room's interleaving again, on a rig.",
}

EXIT_INTERRUPTED: Final = 130  # as a shell says it; click's own 1 would read as a violation
SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


class Verbs(click.Group):
    """A group whose commands are modules ``tracekv.cli.<verb>`` with an attribute of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        try:
            module = import_module(f"tracekv.cli.{cmd_name}")
        except ModuleNotFoundError as error:
            raise click.UsageError(f"the verb {cmd_name} needs the package {error.name}", ctx) from None
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TracekvError as error:
            _complain(str(error))
            ctx.exit(error.exit_code)
        except ModuleNotFoundError as error:
            _complain(f"this needs the package {error.name}\n  install it, or tracekv with all its extras")
            ctx.exit(EXIT_USAGE)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except KeyboardInterrupt:
            _complain("interrupted")
            ctx.exit(EXIT_INTERRUPTED)
        except Exception as error:
            # Python's own exit code for a crash is 1, which here means that something was found.
            if os.environ.get("TRACEKV_DEBUG"):
                raise
            _complain(f"{type(error).__name__}: {error}\n  TRACEKV_DEBUG=1 shows where; nothing was judged")
            ctx.exit(EXIT_CANNOT_TELL)


def _complain(message: str) -> None:
    """One message on stderr: the first line names us, its hints stand below."""
    from tracekv.show.escape import escape

    for number, line in enumerate(message.splitlines()):
        click.echo(escape(line) if number else f"tracekv: {escape(line)}", err=True)


def _version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from tracekv import __version__

        click.echo(f"tracekv {__version__}")
        ctx.exit()


@click.command(cls=Verbs, context_settings=SETTINGS)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Find out which KV-transfer room hangs, why, and make it hang again.

    Exit codes: 0 clean with evidence, 1 violation, 2 usage, 3 cannot tell, 4 unreadable input.
    """
    ctx.color = colour()


def colour() -> bool | None:
    """Whether to colour: ``NO_COLOR`` forbids it, ``FORCE_COLOR`` asks for it, else the terminal decides."""
    if os.environ.get("NO_COLOR") or os.environ.get("CLICOLOR") == "0":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def painter() -> Any:
    """The paint for ``show.text``: click removes the colours again where the output is no terminal."""
    styles = {"bold": {"bold": True}}
    return lambda text, style: click.style(text, **styles.get(style, {"fg": style, "bold": True}))


def say(text: str) -> None:
    """Data on stdout; a reader that went away is no error."""
    try:
        click.echo(text, nl=not text.endswith("\n"))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
