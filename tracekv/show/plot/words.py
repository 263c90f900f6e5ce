"""What is said in words: boxes over the picture, each with a leader to its row, and the legend.

One promise: a box covers nothing, and its number is the step's number in the written story.
"""

from __future__ import annotations

from typing import Any

from matplotlib.patches import FancyBboxPatch

from tracekv.show.plot.ink import BOXES, LEADERS, ONTOP, Ink
from tracekv.show.plot.layout import say_lines
from tracekv.show.plot.legend import COLUMN, HANDLE, PAD, legend_columns, legend_handles
from tracekv.show.plot.legible import LINE, SIZE, Flag
from tracekv.show.plot.palette import BLACK, GREY, VERMILLION, WHITE
from tracekv.show.plot.picture import Say


def draw_words(ink: Ink) -> None:
    """The boxes over the picture."""
    for say, flag in ink.plan.says:
        y = ink.plan.lanes[ink.picture.lane_of[say.at]][0]
        ink.line([(flag.x, y), (flag.x, flag.low)], color=BLACK, lw=0.9, zorder=LEADERS)
        if say.n is not None:
            _badge(ink, flag.x, y + 0.19 * ink.plan.scale, say.n)
        _say(ink, say, flag)


def _badge(ink: Ink, x: float, y: float, n: int) -> None:
    style: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold", "zorder": ONTOP}
    style["bbox"] = {"boxstyle": "circle,pad=0.15", "fc": WHITE, "ec": BLACK, "lw": 0.8}
    ink.text(x, y, str(n), f"step:{n}", **style)


def _say(ink: Ink, say: Say, flag: Flag) -> None:
    head, body = say_lines(say)
    strong = not say.gid.startswith("say:step")
    corner = "round,pad=0,rounding_size=0.05"
    box = FancyBboxPatch((flag.left, flag.low), flag.width, flag.height, boxstyle=corner)
    box.set(fc=WHITE, ec=VERMILLION if strong else GREY, lw=1.6 if strong else 0.8, zorder=BOXES)
    box.set_gid(ink.gid(f"box:{say.gid[4:]}"))
    ink.ax.add_artist(box)
    left, top = flag.left + 0.07, flag.low + flag.height - 0.04
    if say.n is not None:
        _badge(ink, left + 0.07, top - LINE / 2 - 0.01, say.n)
        left += 0.24
    _lines(ink, left, top, head, say.gid, weight="bold" if strong else "normal")
    _lines(ink, left, top - LINE * len(head), body, f"{say.gid}:body")


def _lines(ink: Ink, x: float, top: float, lines: list[str], gid: str, **style: Any) -> None:
    if lines:
        spacing = LINE * 72 / SIZE / 1.2
        ink.text(x, top, "\n".join(lines), gid, va="top", linespacing=spacing, zorder=ONTOP, **style)


def draw_legend(ink: Ink) -> None:
    """Every kind that occurs, in a few rows under the title."""
    handles = legend_handles(ink.picture)
    if not handles or not ink.plan.legend:
        return
    em = SIZE / 72  # the legend measures in font sizes
    style: dict[str, Any] = {
        "handlelength": HANDLE / em,
        "handletextpad": PAD / em,
        "columnspacing": COLUMN / em,
    }
    style |= {
        "fontsize": SIZE,
        "labelcolor": BLACK,
        "frameon": False,
        "borderaxespad": 0.2,
        "borderpad": 0,
        "labelspacing": 0.25,
    }
    columns = legend_columns(ink.picture, ink.plan.width)
    ink.ax.legend(handles=handles, loc="upper left", ncols=columns, **style).set_gid("legend")
