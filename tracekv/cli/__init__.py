"""The command line: one verb, one file, loaded when it is called.

This module imports nothing but click and the error classes, so that ``--help`` is quick.  It is the
one place that turns an error into a message and an exit code; a traceback is never an answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

import click

from tracekv.errors import EXIT_CANNOT_TELL, EXIT_USAGE, TracekvError, UsageError

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

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:  # help that could not be written: click writes it before any verb is invoked
            _discard_stdout()
            _complain(f"could not write the answer: {error.strerror}")
            sys.exit(EXIT_USAGE)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = _wants_json(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TracekvError as error:
            _fail(ctx, error.message, error.hint, error.exit_code)
        except ModuleNotFoundError as error:
            hint = "install it, or tracekv with all its extras"
            _fail(ctx, f"this needs the package {error.name}", hint, EXIT_USAGE)
        except click.ClickException as error:
            _fail_in_json(ctx, error.format_message(), None, error.exit_code)
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            _complain("interrupted")
            ctx.exit(EXIT_INTERRUPTED)
        except Exception as error:
            # Python's own exit code for a crash is 1, which here means that something was found.
            if os.environ.get("TRACEKV_DEBUG"):
                raise
            hint = "TRACEKV_DEBUG=1 shows where; nothing was judged"
            _fail(ctx, f"{type(error).__name__}: {error}", hint, EXIT_CANNOT_TELL)


def _wants_json(args: Sequence[str]) -> bool:
    """Whether the command line asks for JSON, however wrong the rest of it may be."""
    asked = any(pair == ("--format", "json") for pair in pairwise(args))
    return asked or "--format=json" in args


def _fail(ctx: click.Context, message: str, hint: str | None, code: int) -> None:
    """The error for people on stderr, as JSON on stdout where that was asked for, and its exit code."""
    _complain(f"{message}\n  {hint}" if hint else message)
    _fail_in_json(ctx, message, hint, code)
    ctx.exit(code)


def _fail_in_json(ctx: click.Context, message: str, hint: str | None, code: int) -> None:
    if not ctx.obj:
        return
    said = {"schema": "tracekv.error/1", "error": message, "hint": hint, "exit_code": code}
    with suppress(TracekvError):  # stdout itself may be what failed
        say(json.dumps(said, indent=2))


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
    """Data on stdout; a reader that went away is no error.

    Raises
    ------
    UsageError
        when it cannot be written: an answer that nobody can read has no exit code of its own.
    """
    if sys.stdout is None:  # closed by the caller
        raise UsageError("could not write the answer: stdout is closed")
    try:
        click.echo(text, nl=not text.endswith("\n"))
    except BrokenPipeError:
        _discard_stdout()
    except OSError as error:
        _discard_stdout()
        raise UsageError(f"could not write the answer: {error.strerror}") from error


def _discard_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter does not fail over it at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
