"""Paths that strangers named: opening them without waiting, saying them without harm.

The promise: nothing but a regular file is ever opened for reading, since a pipe waits for ever and a
device answers, and a path in a message is one short printable line.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

LINK: Final = "a symbolic link: not followed"
_LONGEST: Final = 300


def open_regular(path: Path) -> BinaryIO:
    """A regular file, open for reading.

    Raises
    ------
    OSError
        also for a symbolic link, which may lead anywhere, and for whatever else is no regular file.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(_what(path))
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = open(fd, "rb")  # noqa: SIM115  (the caller closes it)
    if not stat.S_ISREG(os.fstat(fd).st_mode):  # it was changed in between
        file.close()
        raise OSError("not a regular file")
    return file


def _what(path: Path) -> str:
    return LINK if path.is_symlink() else "not a regular file"


def shown(path: object) -> str:
    """A path for a message: control characters as escapes, the middle of a long one left out."""
    text = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(path))
    if len(text) <= _LONGEST:
        return text
    return f"{text[:100]}…{text[-100:]} ({len(text)} characters)"
