from dataclasses import replace

import pytest

from tests.memory import HEALED, HEALTHY, PIN, Memory, trace
from tracekv.examine import examine
from tracekv.show.escape import escape
from tracekv.show.text import room_text, verdict_text
from tracekv.story import recording
from tracekv.verdict import analyze, judge


def text(line: str, **of_process: object) -> str:
    return verdict_text(analyze(trace(line, **of_process)), "my trace")


def test_it_opens_with_what_is_there_then_the_verdict() -> None:
    lines = text(PIN).splitlines()
    assert lines[0].startswith("my trace: 1 room, ")
    assert "0.5.14+fork" in lines[1]
    assert next(line for line in lines[2:] if line).startswith("VIOLATION: ")


def test_it_ends_with_the_next_command_for_the_pinned_room() -> None:
    last = text(f"@8 {HEALTHY} @7 {PIN}").splitlines()[-2:]
    assert last == ["next: tracekv show 'my trace' 7 -o room.png", "      tracekv replay 'my trace' --room 7"]


def test_the_pin_is_told_first_and_the_story_once() -> None:
    told = text(PIN)
    assert told.index("pinned (by proof)") < told.index("resurrection (by proof)")
    assert told.count("sees the transfer of chunk 0 done") == 1
    assert "num_prefill_inflight_queue_reqs" in told


def test_clean_says_what_it_rests_on() -> None:
    told = text(HEALTHY)
    assert "CLEAN: the room settled; I1, I2, I3, I7 hold" in told and "seams: " in told


def test_cannot_tell_says_why() -> None:
    assert "CANNOT TELL: 1 life is still open" in text("S:init")


def test_notes_are_printed() -> None:
    assert "the resurrection healed" in text(HEALED, build="0.5.14+fork+fix-b")


def test_many_findings_become_a_table_and_one_story() -> None:
    told = text(" ".join(f"@{room} {PIN}" for room in range(100, 140)))
    assert "40 findings of kind pinned; the first one is told below" in told
    assert told.count("pinned (by proof): room") == 1
    assert all(f"  {room} " in told for room in range(100, 140))
    assert len(told.splitlines()) < 200


@pytest.mark.parametrize("evil", ["\x1b[31mred", "a\rb", "bell\x07", "\u202eback", "\x9b2J", "line\nbreak"])
def test_nothing_from_a_trace_controls_the_terminal(evil: str) -> None:
    rows = [replace(row, thread=evil) if row.op == "xfer.posted" else row for row in recording(PIN)]
    rows = [replace(row, site=evil, reason=evil) for row in rows]
    seen = examine(Memory(rows))
    told = room_text(seen.chosen[0], judge(seen), evil)
    told += verdict_text(analyze(Memory(rows)), evil)
    assert all(char == "\n" or char.isprintable() for char in told)
    assert "break" not in told.splitlines()


def test_escape_keeps_readable_text() -> None:
    assert escape("größe 5 µs, ok") == "größe 5 µs, ok"
    assert escape("\x1b\n") == "\\x1b\\n"


def test_show_tells_a_healthy_room_too() -> None:
    seen = examine(trace(HEALTHY))
    told = room_text(seen.chosen[0], judge(seen), "t")
    assert "CLEAN: the room settled" in told
    assert "+0.000 ms" in told and "2025-06-15T15:06:40.000000Z" in told
    assert "replay" not in told


def test_show_names_site_queue_remedy_and_values() -> None:
    site = "transfer_worker:718"
    rows = [replace(row, site=site) if row.op == "xfer.posted" else row for row in recording(PIN)]
    seen = examine(Memory(rows))
    told = room_text(seen.chosen[0], judge(seen), "t")
    parts = (f"at {site}", "inflight queue", "remedy", "stores Transferring over Failed", "tracekv replay")
    for part in parts:
        assert part in told
