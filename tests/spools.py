"""Rows for tests, and the way into a spool: any event, through the lane of its thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tracekv.event import Event, Op, State
from tracekv.spool import SpoolWriter

I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

STATES = st.sampled_from([int(state) for state in State])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


EVENTS = st.builds(
    Event,
    seq=I64,
    op=st.sampled_from([Op.STATUS_WRITTEN, Op.PEER_POPPED, "x.mooncake.named"]),
    process=st.sampled_from(["4a5b-1", "ünï", "../../x"]),
    thread=st.sampled_from(["scheduler", "worker-0"]),
    tid=st.integers(0, 2**40),
    manager=maybe(st.integers(-(2**15), 2**15 - 1)),
    mono_ns=maybe(I64),
    wall_ns=maybe(I64),
    seq_before=maybe(I64),
    room=maybe(st.integers(0, 2**64 - 1) | st.sampled_from([2**53 + 1, 2**63, 2**64 - 1, 0])),
    rid=maybe(TEXT),
    generation=maybe(I64),
    site=maybe(TEXT),
    requested=maybe(STATES),
    old=maybe(STATES),
    new=maybe(STATES),
    chunk=maybe(st.integers(0, 2**31 - 1)),
    last=maybe(st.booleans()),
    peer=maybe(TEXT),
    handle=maybe(I64),
    bytes=maybe(I64),
    reason=maybe(TEXT),
    source=st.sampled_from(["hook", "log"]),
    precision_ns=maybe(I64),
    attrs=maybe(TEXT),
)
LISTS = st.lists(EVENTS, max_size=30, unique_by=lambda event: (event.process, event.seq))


def columns(event: Event) -> dict[str, Any]:
    names = [name for name in Event.__slots__ if name not in ("process", "thread", "tid")]
    return {name: getattr(event, name) for name in names}


def write(events: list[Event], folder: Path, *, close: bool = True, **options: int) -> None:
    """Every event through a lane of its process, thread and tid."""
    writers: dict[str, SpoolWriter] = {}
    lanes: dict[tuple[object, ...], Any] = {}
    for event in events:
        writer = writers.setdefault(event.process, SpoolWriter(folder, event.process, **options))
        key = (event.process, event.thread, event.tid)
        if key not in lanes:
            lanes[key] = writer.lane(event.thread or "", event.tid or 0)
        assert lanes[key].append(**columns(event))
    for writer in writers.values():
        if close:
            writer.close()


def some(n: int, **more: Any) -> list[Event]:
    return [
        Event(seq=i, op=Op.STATUS_WRITTEN, process="p", thread="worker-0", tid=7, mono_ns=i, wall_ns=i,
              room=2**63 + i, site=f"f:{i}", new=3, **more)
        for i in range(n)
    ]  # fmt: skip
