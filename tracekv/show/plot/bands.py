"""What lasts: threads, states, transfers, silences.

One promise: a stretch has an end only where a row ended it; what the trace left open fades out.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracekv.event import State, state_label
from tracekv.show.plot.fold import duration
from tracekv.show.plot.ink import BANDS, BARS, FOLDS, LABELS, LANES, Ink
from tracekv.show.plot.layout import BAND, BAR, LANE
from tracekv.show.plot.legible import inches, plain
from tracekv.show.plot.palette import BLACK, GREY, PALE, PURPLE, WHITE, shade
from tracekv.show.plot.picture import Band, Bar, Lane, Section


def draw_lanes(ink: Ink) -> None:
    """A strip and a name for every thread, a heading for every manager."""
    alone = Counter(section.role for section in ink.picture.sections)
    for i, section in enumerate(ink.picture.sections):
        for k, lane in enumerate(section.lanes):
            _lane(ink, lane, section.role, PALE if k % 2 == 0 else WHITE)
        name = section.role if alone[section.role] == 1 else f"{section.role} m{section.key[3]}"
        _heading(ink, section, plain(name, 18), ink.plan.bands.get(i))


def _lane(ink: Ink, lane: Lane, role: str, fill: str) -> None:
    middle, high = ink.plan.lanes[lane.key]
    top = middle + LANE / 2 * ink.plan.scale
    ink.box(ink.left, top - high, ink.plan.width, top, fc=fill, lw=0, zorder=LANES)
    ink.line([(ink.left, middle), (ink.now, middle)], color="#CCCCCC", lw=0.7, zorder=LANES)
    name = plain(lane.thread, 16)
    ink.text(ink.left - 0.08, middle, name, f"lane:{role}:{plain(lane.thread, 64)}", ha="right", va="center")


def _heading(ink: Ink, section: Section, name: str, band: float | None) -> None:
    if band is None:
        y = ink.middle(section.lanes[0]) + 0.17 * ink.plan.scale
        ink.text(ink.left - 0.08, y, name, f"role:{name}", ha="right", va="center", weight="bold")
        return
    y = band + BAND / 2 * ink.plan.scale
    ink.text(ink.left - 0.08, y + 0.075, name, f"role:{name}", ha="right", va="center", weight="bold")
    ink.text(
        ink.left - 0.08, y - 0.075, "request_status", f"name:{name}", ha="right", va="center", color=GREY
    )


def draw_folds(ink: Ink) -> None:
    """Where a silence is drawn shorter than it was: a pale stretch, its real length below."""
    for fold in ink.picture.folds:
        x0, x1 = ink.x(fold.x0), ink.x(fold.x1)
        pad = (x1 - x0) * 0.32
        ink.box(x0 + pad, 0, x1 - pad, ink.plan.top, "fold", fc="#E2E2E2", alpha=0.5, lw=0, zorder=FOLDS)
        full = f"≈ {duration(fold.ns)}"
        text = full if inches(full) < x1 - x0 + 0.05 else "≈"
        ink.text((x0 + x1) / 2, 0.1, text, "fold-length", ha="center", va="center")


def draw_bands(ink: Ink) -> None:
    """What ``request_status`` held, in words."""
    for i, section in enumerate(ink.picture.sections):
        for band in section.bands:
            _band(ink, band, section.role, ink.plan.bands[i])


def _band(ink: Ink, band: Band, role: str, y: float) -> None:
    top = y + BAND * ink.plan.scale
    x0, x1 = ink.x(band.x0), ink.now if band.x1 is None else ink.x(band.x1)
    fill = shade(band.state)
    name = State(band.state).name if band.state in set(State) else str(band.state)
    ink.box(x0, y, x1, top, f"band:{role}:{name}", fc=fill.face, lw=0, zorder=BANDS)
    ink.box(x0, y, x1, top, fc="none", hatch=fill.hatch, ec=(0, 0, 0, 0.22), lw=0, zorder=BANDS)
    ink.line([(x0, y), (x0, top)], color=BLACK, lw=1.0, zorder=BANDS)
    named = _band_words(ink, band, x0, x1, (y + top) / 2)
    if band.x1 is None:
        ink.fade(x1, y, top, fill.face, f"open:{role}", BANDS)
        words = "not closed\nin this trace" if named else f"{state_label(band.state)},\nnot closed"
        ink.text(x1 + 0.12, (y + top) / 2, words, "open-words", va="center", linespacing=1.0, halo=True)
    elif band.closed:
        style: dict[str, Any] = {"color": BLACK, "lw": 3.2, "zorder": LABELS, "solid_capstyle": "butt"}
        ink.line([(x1, y - 0.04), (x1, top + 0.04)], f"close:{role}", **style)


def _band_words(ink: Ink, band: Band, x0: float, x1: float, y: float) -> bool:
    """The state's name, short or upright where the band is narrow; false where it has no room at all."""
    fill = shade(band.state)
    full = state_label(band.state)
    text = next((t for t in (full, fill.short) if inches(t, bold=True) + 0.1 <= x1 - x0), None)
    if text is None and x1 - x0 < 0.16:
        return False
    style: dict[str, Any] = {"ha": "center", "va": "center", "color": fill.ink, "weight": "bold"}
    style["bbox"] = {"fc": fill.face, "ec": "none", "boxstyle": "square,pad=0.1"}
    x = _off_leaders(ink, x0, x1, y, inches(text, bold=True) / 2 + 0.08) if text else (x0 + x1) / 2
    ink.text(x, y, text or fill.short, "band-words", rotation=0 if text else 90, **style)
    return True


def _off_leaders(ink: Ink, x0: float, x1: float, y: float, half: float) -> float:
    """The place nearest to the band's middle at which no leader runs through its words."""
    ends = ((flag.x, ink.plan.lanes[ink.picture.lane_of[say.at]][0]) for say, flag in ink.plan.says)
    leaders = [at for at, end in ends if end < y]
    middle = (x0 + x1) / 2
    free = [
        x
        for x in [middle, *(at + side * half for at in leaders for side in (-1, 1))]
        if x0 + half <= x <= x1 - half and all(abs(x - at) >= half - 1e-9 for at in leaders)
    ]
    return min(free, key=lambda x: abs(x - middle), default=middle)


def draw_bars(ink: Ink) -> None:
    """Transfers below their thread's line, from posted to settled."""
    for section in ink.picture.sections:
        for lane in section.lanes:
            for bar in lane.bars:
                _bar(ink, lane, bar)


def _bar(ink: Ink, lane: Lane, bar: Bar) -> None:
    scale = ink.plan.scale
    y = ink.middle(lane) - (LANE / 2 + BAR * (bar.row + 1)) * scale + 0.02
    top = y + BAR * scale - 0.03
    x0, x1 = ink.x(bar.x0), ink.plan.width if bar.x1 is None else ink.x(bar.x1)
    gid = f"xfer:{'?' if bar.handle is None else bar.handle}"
    if bar.x1 is None:
        ink.line([(x0, y), (x0, top)], color=BLACK, lw=1.0, zorder=BARS)
        ink.fade(x0, y, top, PURPLE, gid, BARS)
    else:
        ink.box(x0, y, x1, top, gid, fc=PURPLE, ec=BLACK, lw=0.8, zorder=BARS)
        hatch = "xxx" if bar.failed else ""
        ink.box(x0, y, x1, top, fc="none", ec=(0, 0, 0, 0.4), hatch=hatch, lw=0, zorder=BARS)
    text = next((t for t in bar_words(bar) if inches(t) <= x1 - x0 - 0.08), None)
    if text and scale > 0.6:
        ink.text(x0 + 0.05, (y + top) / 2 - 0.005, text, "xfer-words", va="center", bbox=_back(bar))


def _back(bar: Bar) -> dict[str, Any] | None:
    return {"fc": PURPLE, "ec": "none", "boxstyle": "square,pad=0.05"} if bar.failed else None


def bar_words(bar: Bar) -> list[str]:
    """What a bar says, longest first."""
    chunk = f"c{bar.chunk}" if bar.chunk is not None else "transfer"
    size = f", {_size(bar.bytes)}" if bar.bytes else ""
    if bar.ns is None:
        return [f"{chunk}{size}, never seen done", f"{chunk}, not seen done", f"{chunk}: open", chunk]
    how = "failed after" if bar.failed else "took"
    return [f"{chunk}{size}, {how} {duration(bar.ns)}", f"{chunk}, {duration(bar.ns)}", chunk]


def _size(size: int) -> str:
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= one:
            return f"{size / one:.3g} {unit}"
    return f"{size} B"
