"""Words in a picture: cleaned, cut, measured, and placed where they cover nothing.

One promise: text that comes from a trace is shown as it is, in a bounded place, and never as markup.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from matplotlib.font_manager import FontProperties, findfont, get_font

SIZE: Final = 8.0  # points; nothing is set smaller
LINE: Final = 0.145  # inches from one line to the next

#: For every ``Axes.text``: a dollar sign is a dollar sign.
PLAIN: Final = {"parse_math": False, "usetex": False, "fontsize": SIZE}


def plain(text: str, most: int) -> str:
    """One line without control characters, of at most ``most`` characters; a cut shows as ``…``."""
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= most else shown[: max(most - 1, 1)].rstrip() + "…"


def wrapped(text: str, width: int, lines: int) -> list[str]:
    """At most ``lines`` lines of at most ``width`` characters, evenly filled; a cut shows as ``…``."""
    cleaned = plain(text, 2000)
    whole = textwrap.wrap(cleaned, width)
    if len(whole) > lines:
        return textwrap.wrap(cleaned, width, max_lines=lines, placeholder=" …")
    narrow = (textwrap.wrap(cleaned, n) for n in range(max(width // 2, 8), width))
    return next((found for found in narrow if len(found) == len(whole)), whole)


def inches(text: str, *, bold: bool = False, size: float = SIZE) -> float:
    """A line's width from the font's own metrics: no renderer is needed to lay a picture out."""
    weight = "bold" if bold else "normal"
    return sum(_advance(char, weight) for char in text) * size / SIZE


@lru_cache(maxsize=4096)
def _advance(char: str, weight: str) -> float:
    font = get_font(findfont(FontProperties(weight=weight)))
    font.set_size(SIZE, 72)
    return font.load_char(ord(char)).linearHoriAdvance / 65536 / 72


@dataclass(frozen=True, slots=True)
class Flag:
    """A box of words: its left edge, its width and height, its lower edge, and the place it speaks of."""

    left: float
    low: float
    width: float
    height: float
    x: float


def flags(
    xs: Sequence[float], sizes: Sequence[tuple[float, float]], right: float, gap: float = 0.08
) -> list[Flag]:
    """Place boxes over their places without any overlap, as low as they can lie.

    Each box starts a little left of its place, so that the leaders of later places pass under it;
    where the page ends it is pushed back to the left.  Returned in the given order.
    """
    placed: dict[int, Flag] = {}
    for i in sorted(range(len(xs)), key=lambda i: (-xs[i], -i)):
        width, height = sizes[i]
        left = max(0.0, min(xs[i] - 0.12, right - width))
        low = _free_height(left, width, height, list(placed.values()), gap)
        placed[i] = Flag(left, low, width, height, xs[i])
    return [placed[i] for i in range(len(xs))]


def _free_height(left: float, width: float, height: float, placed: Sequence[Flag], gap: float) -> float:
    """The lowest height at which a box touches no other and lies over every leader that it would hide."""
    beside = [f for f in placed if f.left < left + width + gap and left < f.left + f.width + gap]
    under = [f.low + f.height + gap for f in placed if left <= f.x <= left + width]
    low = max(under, default=0.0)
    while True:
        hit = [f for f in beside if f.low < low + height + gap and low < f.low + f.height + gap]
        if not hit:
            return low
        low = max(f.low + f.height for f in hit) + gap


def claim(taken: list[tuple[float, float]], left: float, right: float) -> bool:
    """Whether a stretch of a line is free; if so it is taken from now on."""
    if any(left < b and a < right for a, b in taken):
        return False
    taken.append((left, right))
    return True
