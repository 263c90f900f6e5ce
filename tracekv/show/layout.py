"""Where everything lies, in inches: lanes, bands, boxes of words, the legend's rows.

One promise: nothing covers anything else.  On an Axes that is lower than the picture wants, lanes are
flattened and words keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracekv.show.legend import legend_rows
from tracekv.show.legible import LINE, Flag, flags, inches, wrapped
from tracekv.show.picture import LaneKey, Picture, Say, Section

GUTTER: Final = 1.42  # inches for the names of threads
TAIL: Final = 1.6  # inches in which what is open fades out
PER_UNIT: Final = 0.24  # inches of the least distance between two rows
WIDTHS: Final = (9.5, 20.0)
BAND: Final = 0.4
LANE: Final = 0.56
BAR: Final = 0.2
SPACE: Final = 0.16
FOLD_ROW: Final = 0.22
MAX_SAYS: Final = 9


@dataclass(frozen=True, slots=True)
class Plan:
    """Where everything lies, in inches from the Axes' lower left corner."""

    width: float
    height: float
    per_unit: float
    scale: float  # of the lanes' heights; 1 on a figure of the natural size
    lanes: dict[LaneKey, tuple[float, float]]  # middle and height
    bands: dict[int, float]  # lower edge, by number of the section
    top: float  # of the uppermost band
    says: tuple[tuple[Say, Flag], ...]

    def x(self, units: float) -> float:
        return GUTTER + 0.2 + units * self.per_unit


def _body_height(sections: Sequence[Section]) -> float:
    """The natural height of bands, lanes and the spaces between roles."""
    lanes = [lane for section in sections for lane in section.lanes]
    return (
        sum(LANE + BAR * lane.bar_rows for lane in lanes)
        + sum(BAND for section in sections if section.bands)
        + SPACE * (2 * len(sections))
    )


def plan_of(picture: Picture, width: float, height: float | None) -> Plan:
    """Lay out a picture in a width, and in a height where that is given; else as high as it wants."""
    per_unit = (width - GUTTER - 0.2 - TAIL) / max(picture.end, 1.0)
    per_unit = min(per_unit, 2.2 * PER_UNIT)
    says = _placed_says(picture, width, per_unit)
    words = max((flag.low + flag.height for _, flag in says), default=0.0) + (0.2 if says else 0.0)
    legend = LINE * 1.25 * legend_rows(picture, width) + 0.1
    natural = _body_height(picture.sections)
    if height is None:
        height = FOLD_ROW + natural + words + legend
    scale = max((height - FOLD_ROW - words - legend) / natural, 0.25)
    top = FOLD_ROW + natural * scale
    lanes, bands = _stacked(picture.sections, top, scale)
    lifted = tuple((say, Flag(f.left, f.low + top + 0.16, f.width, f.height, f.x)) for say, f in says)
    return Plan(width, height, per_unit, scale, lanes, bands, top, lifted)


def _stacked(
    sections: Sequence[Section], top: float, scale: float
) -> tuple[dict[LaneKey, tuple[float, float]], dict[int, float]]:
    """Prefill: the band, then its threads; decode: its threads, then the band."""
    lanes: dict[LaneKey, tuple[float, float]] = {}
    bands: dict[int, float] = {}
    y = top
    for i, section in enumerate(sections):
        above = section.role != "decode"
        if above and section.bands:
            y -= BAND * scale
            bands[i] = y
        y -= SPACE * scale if above else 0
        for lane in section.lanes:
            high = (LANE + BAR * lane.bar_rows) * scale
            y -= high
            lanes[lane.key] = (y + high - LANE * scale / 2, high)
        if not above and section.bands:
            y -= (SPACE / 2 + BAND) * scale
            bands[i] = y
        y -= SPACE * scale
    return lanes, bands


def _placed_says(picture: Picture, width: float, per_unit: float) -> list[tuple[Say, Flag]]:
    says = picture.says[:MAX_SAYS]
    xs = [GUTTER + 0.2 + picture.x_of[say.at] * per_unit for say in says]
    sizes = []
    for say in says:
        head, body = say_lines(say)
        wide = max([inches(t, bold=True) for t in head] + [inches(t) for t in body])
        sizes.append((wide + 0.14 + (0.24 if say.n is not None else 0), LINE * len(head + body) + 0.1))
    return list(zip(says, flags(xs, sizes, width), strict=True))


def say_lines(say: Say) -> tuple[list[str], list[str]]:
    """A box's bold lines and its plain ones."""
    return wrapped(say.head, 44, 2), wrapped(say.body, 44, 3)
