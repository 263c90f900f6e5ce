"""Where everything lies, in inches: lanes, bands, boxes of words, the legend's rows.

One promise: nothing covers anything else.  On an Axes that is lower than the picture wants, lanes are
flattened and words keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracekv.show.plot.legend import legend_rows
from tracekv.show.plot.legible import LINE, Flag, flags, inches, wrapped
from tracekv.show.plot.picture import LaneKey, Picture, Say, Section

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
LOW_SAYS: Final = 3  # on an Axes that is low
LEGIBLE: Final = 0.7  # below this scale, words on lanes would touch


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
    legend: bool

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
    """Lay out a picture in a width, and in a height where that is given; else as high as it wants.

    Where the height is too low, the steps' words go first, then the legend; what went wrong stays said.
    """
    strong = tuple(say for say in picture.says if not say.gid.startswith("say:step"))
    choices = (picture.says[:MAX_SAYS], True), (strong[:MAX_SAYS], True), (strong[:LOW_SAYS], False)
    for says, legend in choices:
        plan = _plan(picture, width, height, says, legend)
        if plan.scale >= LEGIBLE:
            break
    return plan


def _plan(picture: Picture, width: float, height: float | None, says: Sequence[Say], legend: bool) -> Plan:
    per_unit = min((width - GUTTER - 0.2 - TAIL) / max(picture.end, 1.0), 2.2 * PER_UNIT)
    per_unit = max(per_unit, 0.01)
    placed = _placed_says(picture, says, width, per_unit)
    words = max((flag.low + flag.height for _, flag in placed), default=0.0) + (0.2 if placed else 0.0)
    top = FOLD_ROW + words + (LINE * 1.25 * legend_rows(picture, width) if legend else 0.0) + 0.1
    natural = _body_height(picture.sections)
    scale = 1.0 if height is None else min(max((height - top) / max(natural, 0.1), 0.25), 1.6)
    roof = FOLD_ROW + natural * scale
    lanes, bands = _stacked(picture.sections, roof, scale)
    lifted = tuple((say, replace(flag, low=flag.low + roof + 0.16)) for say, flag in placed)
    return Plan(width, height or top + natural, per_unit, scale, lanes, bands, roof, lifted, legend)


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


def _placed_says(
    picture: Picture, says: Sequence[Say], width: float, per_unit: float
) -> list[tuple[Say, Flag]]:
    xs = [GUTTER + 0.2 + picture.x_of[say.at] * per_unit for say in says]
    sizes = []
    for say in says:
        head, body = say_lines(say)
        wide = max([inches(t, bold=True) for t in head] + [inches(t) for t in body])
        sizes.append((wide + 0.18 + (0.24 if say.n is not None else 0), LINE * len(head + body) + 0.1))
    return list(zip(says, flags(xs, sizes, width - 0.04), strict=True))


def say_lines(say: Say) -> tuple[list[str], list[str]]:
    """A box's bold lines and its plain ones."""
    return wrapped(say.head, 44, 2), wrapped(say.body, 44, 3)
