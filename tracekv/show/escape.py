"""Text from a trace on its way to a terminal: control characters become visible escapes."""

from __future__ import annotations

import unicodedata


def escape(text: object) -> str:
    """``text`` with every control, format and surrogate character written as an escape."""
    plain = str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(_visible(char) for char in plain)


def _visible(char: str) -> str:
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"):
        return char.encode("unicode_escape", "surrogatepass").decode("ascii")
    return char
