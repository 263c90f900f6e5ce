"""The picture of a room, read back from its artists' ids and words."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

from tracekv.errors import UsageError
from tracekv.event import Event, Op, State
from tracekv.finding import Finding
from tracekv.rooms import Life, Room
from tracekv.show.plot import room_plot, save
from tracekv.show.plot.picture import picture_of

History = Callable[[str], Any]
Findings = Callable[[Any], list[Finding]]


def drawn(room: Room, findings: list[Finding] | None = None, size: tuple[float, float] = (16, 8)) -> Axes:
    return room_plot(room, findings or [], Figure(figsize=size).add_subplot())


def ids(ax: Axes) -> dict[str, Artist]:
    return {gid: artist for artist in ax.get_children() if (gid := artist.get_gid()) is not None}


def named(ax: Axes, name: str) -> list[Artist]:
    return [artist for gid, artist in ids(ax).items() if gid.split("#")[0] == name]


def said(ax: Axes) -> str:
    return "\n".join(text.get_text() for text in ax.findobj(Text) if isinstance(text, Text))


def span(artist: Artist) -> tuple[float, float]:
    box = artist.get_window_extent()
    return float(box.x0), float(box.x1)


def test_it_returns_the_axes_it_was_given(history: History) -> None:
    ax = Figure().add_subplot()
    assert room_plot(history("healthy").room(), ax=ax) is ax


def test_without_axes_a_new_pyplot_figure_is_made(history: History) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    ax = room_plot(history("short").room())
    assert len(pyplot.get_fignums()) == len(before) + 1
    pyplot.close(ax.get_figure(root=True))


def test_every_written_state_is_a_band(history: History) -> None:
    ax = drawn(history("pinned").room())
    for name, times in (("BOOTSTRAPPING", 1), ("WAITING", 1), ("TRANSFERRING", 2), ("FAILED", 1)):
        assert len(named(ax, f"band:prefill:{name}")) == times
    assert not named(ax, "band:prefill:SUCCESS")
    assert len(named(ax, "band:decode:FAILED")) == 1


def test_bands_join_without_a_gap(history: History) -> None:
    ax = drawn(history("pinned").room())
    spans = sorted(span(a) for gid, a in ids(ax).items() if gid.startswith("band:prefill:"))
    assert all(end == pytest.approx(start) for (_, end), (start, _) in pairwise(spans))


def test_an_open_room_fades_and_is_never_closed(history: History) -> None:
    ax = drawn(history("pinned").room())
    assert not named(ax, "close:prefill")
    (fade,) = named(ax, "open:prefill")
    assert isinstance(fade, AxesImage)
    alpha = fade.get_array()[0, :, 3]  # type: ignore[index]
    assert alpha[0] > 0.8 and alpha[-1] == 0 and (alpha[1:] <= alpha[:-1]).all()
    band = max(span(each)[1] for each in named(ax, "band:prefill:TRANSFERRING"))
    assert span(fade)[0] == pytest.approx(band, abs=1)


def test_a_cleared_room_has_a_firm_end(history: History) -> None:
    ax = drawn(history("healthy").room())
    assert named(ax, "close:prefill") and named(ax, "close:decode")
    assert not [gid for gid in ids(ax) if gid.startswith("open:")]


def test_a_write_after_the_clear_opens_the_band_again(history: History) -> None:
    pen = history("healthy")
    pen.write("worker-1", State.TRANSFERRING)
    ax = drawn(pen.room())
    assert named(ax, "close:prefill") and named(ax, "open:prefill")


def test_a_trace_that_begins_in_the_middle_shows_the_value_that_was_there(history: History) -> None:
    pen = history("pinned")
    first = next(row for row in pen.rows if row.op == Op.STATUS_WRITTEN and row.new == 3)
    pen.rows = [row for row in pen.rows if row.process == "p-0" and row.seq >= first.seq - 2]
    assert named(drawn(pen.room()), "band:prefill:WAITING")


def test_transfers_are_bars_and_an_unfinished_one_fades(history: History) -> None:
    ax = drawn(history("unfinished").room())
    assert not isinstance(named(ax, "xfer:0")[0], AxesImage)
    assert isinstance(named(ax, "xfer:1")[0], AxesImage)
    assert span(named(ax, "xfer:1")[0])[1] == pytest.approx(ax.get_window_extent().x1, abs=1)


def test_transfers_at_the_same_time_do_not_cover_each_other(history: History) -> None:
    pen = history("unfinished")
    pen("worker-1", Op.XFER_POSTED, chunk=1, handle=2)
    ax = drawn(pen.room())
    one, other = (named(ax, name)[0].get_window_extent() for name in ("xfer:1", "xfer:2"))
    assert one.y0 >= other.y1 - 1 or other.y0 >= one.y1 - 1


def test_messages_are_arrows(history: History) -> None:
    ax = drawn(history("pinned").room())
    assert len(named(ax, "arrow:meta")) == 1
    assert len(named(ax, "arrow:abort")) == 1
    assert len(named(ax, "arrow:chunk")) == 2


def test_every_other_row_is_a_mark(history: History) -> None:
    pen = history("pinned")
    gids = {gid.split("#")[0] for gid in ids(drawn(pen.room()))}
    reads = {Op.STATUS_CHECKED, Op.PEER_CHECKED, Op.WORKER_WAITING, Op.CONTROL_WAITING}
    shown = {row.op for row in pen.rows} - reads - {Op.XFER_POSTED, Op.XFER_DONE}
    assert {f"mark:{op}" for op in shown} <= gids
    assert "reads:prefill:worker-1" in gids


def test_the_resurrection_is_said_without_any_finding(history: History) -> None:
    ax = drawn(history("pinned").room())
    (say,) = named(ax, "say:resurrection")
    assert isinstance(say, Text) and say.get_text() == "Resurrection: Failed → Transferring"
    assert "Resurrection" not in said(drawn(history("aborted").room()))


def test_a_room_that_lives_again_is_no_resurrection(history: History) -> None:
    pen = history("aborted")
    pen.held["p"] = int(State.FAILED)  # the new life starts over what an uncleared one left
    pen("scheduler", Op.ROOM_OPENED)
    pen.write("scheduler", State.BOOTSTRAPPING)
    ax = drawn(pen.room())
    assert not named(ax, "say:resurrection")
    assert "open: life 1" in said(ax)


def test_findings_are_said_at_their_rows(history: History, findings: Findings) -> None:
    pen = history("pinned")
    ax = drawn(pen.room(), findings(pen), (18, 10))
    pinned, *_ = named(ax, "say:pinned")
    assert isinstance(pinned, Text) and pinned.get_text() == "Pinned from here: Transferring, by proof"
    assert "blocked on peer metadata" in said(ax).replace("\n", " ")
    assert len(named(ax, "say:resurrection")) == 1
    assert named(ax, "say:step-2") and named(ax, "say:step-3")
    assert not named(ax, "say:step-1"), "step 1 is not decisive"
    assert len(named(ax, "step:4")) == 2, "the number is in the box and at the mark"


def test_without_a_story_the_decisive_rows_are_said(history: History, findings: Findings) -> None:
    pen = history("pinned")
    ax = drawn(pen.room(), [replace(each, story=()) for each in findings(pen)], (18, 10))
    assert "bootstrap: pop" in said(ax)


def test_a_finding_of_another_room_is_not_said(history: History, findings: Findings) -> None:
    pen = history("pinned")
    ax = drawn(pen.room(), [replace(each, room=8) for each in findings(pen)])
    assert not named(ax, "say:pinned")
    assert "pinned" not in ax.get_title(loc="left")


def test_boxes_do_not_overlap(history: History, findings: Findings) -> None:
    pen = history("pinned")
    ax = drawn(pen.room(), findings(pen), (18, 10))
    boxes = [artist.get_window_extent() for gid, artist in ids(ax).items() if gid.startswith("box:")]
    assert len(boxes) == 4
    assert not [1 for i, one in enumerate(boxes) for other in boxes[:i] if one.overlaps(other)]


def test_a_low_axes_still_says_what_is_wrong(history: History, findings: Findings) -> None:
    pen = history("pinned")
    ax = drawn(pen.room(), findings(pen), (9, 5))
    assert named(ax, "say:pinned") and named(ax, "say:resurrection")
    assert not named(ax, "say:step-2")


def test_the_title_holds_room_build_and_verdict(history: History, findings: Findings) -> None:
    pen = history("pinned")
    ax = room_plot(pen.room(), findings(pen), Figure().add_subplot(), build="0.5.14+fork")
    title = ax.get_title(loc="left")
    assert "6917529027641081857" in title and "0.5.14+fork" in title
    assert "pinned at Transferring, by proof" in title
    assert "0x6000000000000001" in said(ax)


@pytest.mark.parametrize(
    ("name", "words"), [("healthy", "cleared"), ("unfinished", "not cleared when the trace ends")]
)
def test_without_findings_the_title_states_facts_only(history: History, name: str, words: str) -> None:
    title = drawn(history(name).room()).get_title(loc="left")
    assert title.endswith(words) and "clean" not in title


def test_the_axis_says_real_times_and_that_silence_is_folded(history: History) -> None:
    ax = drawn(history("pinned").room())
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels[0] == "0" and "+61.043132 s" in labels
    assert "folded" in ax.get_xlabel() and "2026-03-01 12:00:01.234571 UTC" in ax.get_xlabel()
    assert named(ax, "fold") and "≈ 61 s" in said(drawn(history("pinned").room(), size=(24, 8)))


def test_text_from_a_trace_is_never_markup_and_never_long(
    history: History, findings: Findings, tmp_path: Path
) -> None:
    pen = history("pinned")
    evil = r"$\frac{1}{0}$ \n _^{ <&> " + "long " * 100
    pen.rows = [
        replace(row, thread=f"worker-1 {evil}") if row.thread == "worker-1" else row for row in pen.rows
    ]
    found = [replace(each, blocked_on=evil, queue=evil) for each in findings(pen)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(pen.room(), found, tmp_path / "evil.svg", build=evil)
        ax = drawn(pen.room(), found)
    assert not [
        text
        for text in ax.findobj(Text)
        if isinstance(text, Text) and text.get_parse_math() and "$" in text.get_text()
    ]
    assert max(len(line) for line in said(ax).splitlines()) <= 240
    assert "…" in said(ax)


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_saves_by_suffix(history: History, tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"room.{suffix}"
    save(history("short").room(), [], path)
    assert path.read_bytes().startswith(magic)


def test_ids_in_an_svg_are_unique(history: History, tmp_path: Path) -> None:
    save(history("unfinished").room(), [], tmp_path / "room.svg")
    text = (tmp_path / "room.svg").read_text()
    found = re.findall(r' id="((?:band|open|close|xfer|mark|say|arrow):[^"]*)"', text)
    assert {"band:prefill:TRANSFERRING", "open:prefill", "open:decode", "xfer:0", "xfer:1"} <= set(found)
    assert len(found) == len(set(found))


def test_an_unknown_suffix_names_the_known_ones(history: History, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        save(history("short").room(), [], tmp_path / "room.gif")
    assert not list(tmp_path.iterdir())


def test_a_crowd_is_wide_within_limits_and_drops_reads(history: History) -> None:
    pen = history("long")
    ax = drawn(pen.room(), size=(20, 6))
    assert len(pen.rows) > 400
    assert not [gid for gid in ids(ax) if gid.startswith("reads:")]
    assert "reads not drawn" in ax.get_xlabel().replace("\n", " ")


def test_in_a_crowd_rows_with_words_stand_apart(history: History) -> None:
    pen = history("long")
    pen.write("worker-1", State.FAILED)
    pen.write("worker-1", State.TRANSFERRING)
    pen("worker-1", Op.FAILURE_RECORDED, 60 * 10**9)
    picture = picture_of(pen.room())
    assert picture.crowded and len(picture.says) == 1
    at = picture.x_of[picture.says[0].at]
    assert at - max(x for x in picture.x_of.values() if x < at) >= 5


@pytest.mark.parametrize(("name", "least", "most"), [("short", 9, 11), ("pinned", 12, 18), ("long", 18, 21)])
def test_the_width_follows_the_rows(
    history: History, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, least: float, most: float
) -> None:
    widths: list[float] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: widths.append(self.get_size_inches()[0]))
    save(history(name).room(), [], tmp_path / "x.png")
    assert least <= widths[0] <= most


def test_no_text_is_smaller_than_eight_points(history: History, findings: Findings) -> None:
    pen = history("pinned")
    ax = drawn(pen.room(), findings(pen))
    sizes = [
        t.get_fontsize() for t in ax.findobj(Text) if isinstance(t, Text) and t.get_text() and t.get_visible()
    ]
    assert min(map(float, sizes)) >= 8


def test_ranks_and_strange_rows_are_drawn_too() -> None:
    def row(seq: int, op: str, process: str, **columns: Any) -> Event:
        return Event(seq=seq, op=op, process=process, room=7, **columns)

    lives = tuple(
        Life(process, manager, role, 7, 0, rows)
        for process, manager, role, rows in (
            ("a", 0, "prefill", (row(1, Op.STATUS_WRITTEN, "a", old=-1, new=9), row(2, "x.engine.odd", "a"))),
            ("b", 1, "prefill", (row(1, Op.XFER_POSTED, "b", thread="worker-0"),)),
            ("c", 0, "", (row(1, Op.THREAD_DIED, "c", thread="bootstrap"),)),
        )
    )
    ax = drawn(Room(7, lives))
    assert named(ax, "band:prefill:9") and named(ax, "xfer:?") and named(ax, "mark:x.engine.odd")
    assert "unknown role" in said(ax) and "unknown thread" in said(ax)
    assert "prefill m0" in said(ax) and "prefill m1" in said(ax)


def test_a_room_without_rows_is_an_empty_picture(tmp_path: Path) -> None:
    save(Room(7, ()), [], tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 0


@pytest.mark.parametrize("module", ["tracekv", "tracekv.show", "tracekv.show.plot"])
def test_importing_brings_no_pyplot(module: str) -> None:
    code = f"import sys, {module}; assert 'matplotlib.pyplot' not in sys.modules"
    code += "" if module.endswith("plot") else "; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_saving_brings_no_pyplot(tmp_path: Path) -> None:
    code = "import sys; from tracekv.rooms import Room; from tracekv.show.plot import save;"
    code += "save(Room(7, ()), [], sys.argv[1]); assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.png")], check=True)
