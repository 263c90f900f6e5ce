"""The only exceptions that a verb prints: what happened, where, and what to do next.

Each carries the exit code of its kind, so that the command line has one place that turns a
failure into a code, and a caller of the library can tell the kinds apart by class.
"""

from __future__ import annotations

from typing import ClassVar, Final

EXIT_CLEAN: Final = 0
EXIT_VIOLATION: Final = 1
EXIT_USAGE: Final = 2
EXIT_CANNOT_TELL: Final = 3
EXIT_UNREADABLE: Final = 4


class TracekvError(Exception):
    """A failure that the user can act on."""

    exit_code: ClassVar[int] = EXIT_USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(TracekvError):
    """No such path or room, a package that is missing, a patch that does not match."""


class UnreadableError(TracekvError):
    """A file that is damaged, foreign, or of a format that this version cannot read."""

    exit_code = EXIT_UNREADABLE


class CannotTellError(TracekvError):
    """Nothing was wrong with the question, but there is no evidence to answer it from."""

    exit_code = EXIT_CANNOT_TELL
