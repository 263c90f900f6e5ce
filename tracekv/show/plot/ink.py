"""The ink: lines, boxes and words on one Axes, each with an id that says what it stands for.

One promise: an artist's ``gid`` names it (``band:prefill:FAILED``, ``open:prefill``, ``xfer:3``,
``mark:abort.received``, ``say:pinned``) and is unique in its picture, so that a test, or a script
in an SVG, finds it; a second one of a name is ``name#2``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from tracekv.show.escape import escape
from tracekv.show.plot.layout import Plan
from tracekv.show.plot.legible import PLAIN
from tracekv.show.plot.palette import BLACK, WHITE
from tracekv.show.plot.picture import Lane, Picture

#: What lies over what.
LANES, FOLDS, BANDS, BARS, ARROWS, LEADERS, MARKS, LABELS, BOXES, ONTOP = range(1, 11)

Line = Sequence[tuple[float, float]]
_TEXT: Final[dict[str, Any]] = {**PLAIN, "clip_on": True}


class Ink:
    """Draws by one plan onto one Axes, whose data coordinates are inches."""

    def __init__(self, ax: Axes, picture: Picture, plan: Plan) -> None:
        self.ax = ax
        self.picture = picture
        self.plan = plan
        self._used: Counter[str] = Counter()

    def gid(self, name: str) -> str:
        name = escape(name)
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name}#{self._used[name]}"

    def x(self, units: float) -> float:
        return self.plan.x(units)

    @property
    def now(self) -> float:
        """The place of the last row: from here on nothing is known."""
        return self.x(self.picture.end)

    @property
    def left(self) -> float:
        """Where the lanes begin, right of their names."""
        return self.x(0) - 0.2

    def middle(self, lane: Lane) -> float:
        return self.plan.lanes[lane.key][0]

    def text(self, x: float, y: float, text: str, gid: str, *, halo: bool = False, **style: Any) -> None:
        """One piece of text, never markup; ``halo`` keeps it readable on lines and colours."""
        effects = [withStroke(linewidth=2.2, foreground=WHITE)] if halo else None
        style = {"color": BLACK, "zorder": LABELS, "path_effects": effects, **_TEXT, **style}
        self.ax.text(x, y, text, gid=self.gid(gid), **style)

    def box(self, x0: float, y0: float, x1: float, y1: float, gid: str | None = None, **style: Any) -> None:
        self.ax.add_artist(Rectangle((x0, y0), x1 - x0, y1 - y0, gid=gid and self.gid(gid), **style))

    def line(self, points: Line, gid: str | None = None, **style: Any) -> None:
        xs, ys = zip(*points, strict=True)
        self.ax.add_artist(Line2D(xs, ys, gid=gid and self.gid(gid), **style))

    def lines(self, lines: Sequence[Line], gid: str, **style: Any) -> None:
        if lines:
            self.ax.add_artist(LineCollection(list(lines), gid=self.gid(gid), **style))

    def fade(self, x0: float, y0: float, y1: float, colour: str, gid: str, zorder: int) -> None:
        """From x0 to the edge, thinning out to nothing: the trace ends here, not the thing.

        Vector backends merge images that are drawn one after another into one without an id: draw
        something else on the same ``zorder`` first.
        """
        pixels = np.ones((1, 64, 4))
        pixels[..., :3] = to_rgb(colour)
        pixels[..., 3] = np.linspace(0.9, 0.0, 64) ** 1.4
        extent = (x0, self.plan.width, y0, y1)
        image = AxesImage(self.ax, extent=extent, interpolation="bilinear", zorder=zorder, origin="lower")
        image.set_data(pixels)
        image.set_gid(self.gid(gid))
        image.set_clip_path(self.ax.patch)
        self.ax.add_image(image)
