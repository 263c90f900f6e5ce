"""What there is to draw of one room, before anything is drawn: lanes, bands, bars, arrows, words.

One promise: every row becomes something to see or is a read that was dropped in a crowd, and nothing
is given an end that the trace does not show.  Pure data; ``plot`` puts the ink.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracekv.event import Event, Op, State, state_label
from tracekv.show.plot.fold import Fold, FoldedTime, Moment, folded_time, message_pairs
from tracekv.show.plot.palette import READS, word

if TYPE_CHECKING:
    from tracekv.finding import Finding
    from tracekv.rooms.life import Life, Room

#: From this many rows on a picture is crowded: reads are dropped, marks thin, few words stay.
CROWD: Final = 120

READ_WIDTH: Final = 0.35
SPOKEN_WIDTH: Final = 7.0  # in a crowd, rows with words stand apart

#: From top to bottom.  Prefill's state is above its threads and decode's below its own, and threads
#: that talk to each other are neighbours, so that arrows are short.
_LANE_ORDER: Final = {
    "prefill": ("scheduler", "worker", "bootstrap"),
    "decode": ("scheduler", "decode", "heartbeat"),
}

_FINAL: Final = (State.FAILED, State.SUCCESS)

Key = tuple[str, int]  # process, seq: one row
SectionKey = tuple[int, str, str, int]  # place of the role, role, process, manager
LaneKey = tuple[SectionKey, str]


@dataclass(frozen=True, slots=True)
class Band:
    """``request_status`` held ``state`` from x0 to x1; ``x1 is None``: until the trace ended."""

    state: int
    x0: float
    x1: float | None
    closed: bool  # the entry was taken out of the dictionary, or the room cleared, at x1


@dataclass(frozen=True, slots=True)
class Bar:
    """One transfer, from posted to settled; ``x1 is None``: never seen settled."""

    handle: int | None
    chunk: int | None
    bytes: int | None
    x0: float
    x1: float | None
    ns: int | None
    failed: bool
    row: int  # bars that overlap lie in different rows


@dataclass(frozen=True, slots=True)
class Lane:
    """One thread: its moments and its transfers."""

    key: LaneKey
    thread: str
    moments: tuple[Moment, ...]
    bars: tuple[Bar, ...]

    @property
    def bar_rows(self) -> int:
        return 1 + max((bar.row for bar in self.bars), default=-1)


@dataclass(frozen=True, slots=True)
class Section:
    """One manager: its role, its threads, and what its status dictionary held for the room."""

    key: SectionKey
    lanes: tuple[Lane, ...]
    bands: tuple[Band, ...]

    @property
    def role(self) -> str:
        return self.key[1]


@dataclass(frozen=True, slots=True)
class Arrow:
    """Something that one thread handed to another: ``meta``, ``abort``, ``ack``, ``notif``, ``chunk``."""

    kind: str
    sent: Event
    received: Event


@dataclass(frozen=True, slots=True)
class Say:
    """Words about one row.  ``n`` is the row's number in the story, where there is one."""

    gid: str
    at: Key
    head: str
    body: str
    n: int | None


@dataclass(frozen=True, slots=True)
class Picture:
    """All there is to draw; x is in units of the least distance."""

    sections: tuple[Section, ...]
    arrows: tuple[Arrow, ...]
    says: tuple[Say, ...]
    time: FoldedTime
    lane_of: dict[Key, LaneKey]
    life_of: dict[Key, int]
    x_of: dict[Key, float]
    crowded: bool
    dropped: int

    @property
    def folds(self) -> tuple[Fold, ...]:
        return self.time.folds

    @property
    def end(self) -> float:
        return self.time.moments[-1].x if self.time.moments else 0.0


def picture_of(room: Room, findings: Sequence[Finding] = ()) -> Picture:
    """Arrange a room.  Findings add words; what the rows alone prove is said without them too."""
    home = {(e.process, e.seq): _section_key(life) for life in room.lives for e in life.events + life.ghosts}
    rows = {(e.process, e.seq): e for life in room.lives for e in life.events + life.ghosts}
    kept, dropped = _thinned(rows)
    says = [say for say in _says(room, findings) if say.at in rows]
    spoken = {say.at for say in says}
    crowded = len(rows) > CROWD

    def width_of(event: Event) -> float:
        if event.op in READS:
            return READ_WIDTH
        return SPOKEN_WIDTH if crowded and (event.process, event.seq) in spoken else 1.0

    time = folded_time(kept, width_of)
    x_of = {(m.event.process, m.event.seq): m.x for m in time.moments}
    lane_of = {key: (home[key], thread_of(rows[key])) for key in x_of}
    return Picture(
        sections=_sections(time, lane_of),
        arrows=tuple(_arrows(time, room)),
        says=tuple(say for say in says if say.at in x_of),
        time=time,
        lane_of=lane_of,
        life_of={(e.process, e.seq): life.n for life in room.lives for e in life.events},
        x_of=x_of,
        crowded=crowded,
        dropped=dropped,
    )


def thread_of(event: Event) -> str:
    return event.thread or "unknown thread"


def _section_key(life: Life) -> SectionKey:
    role = life.role or "unknown role"
    return {"prefill": 0, "decode": 2}.get(role, 1), role, life.process, life.manager


def _thinned(rows: dict[Key, Event]) -> tuple[list[Event], int]:
    """The rows to draw, and how many reads were left out."""
    if len(rows) <= CROWD:
        return list(rows.values()), 0
    kept = [event for event in rows.values() if event.op not in READS]
    return kept, len(rows) - len(kept)


def _sections(time: FoldedTime, lane_of: dict[Key, LaneKey]) -> tuple[Section, ...]:
    by_section: dict[SectionKey, list[Moment]] = defaultdict(list)
    for moment in time.moments:
        by_section[lane_of[moment.event.process, moment.event.seq][0]].append(moment)
    return tuple(
        Section(key, _lanes(key, by_section[key]), _bands(by_section[key])) for key in sorted(by_section)
    )


def _lanes(key: SectionKey, moments: Iterable[Moment]) -> tuple[Lane, ...]:
    by_thread: dict[str, list[Moment]] = defaultdict(list)
    for moment in moments:
        by_thread[thread_of(moment.event)].append(moment)
    order = _LANE_ORDER.get(key[1], ())

    def place(thread: str) -> tuple[int, str]:
        return next((i for i, name in enumerate(order) if thread.startswith(name)), len(order)), thread

    return tuple(
        Lane((key, t), t, tuple(by_thread[t]), _bars(by_thread[t])) for t in sorted(by_thread, key=place)
    )


def _bands(moments: Sequence[Moment]) -> tuple[Band, ...]:
    """What the dictionary held, from its writes alone; before the first write, the value that it replaced."""
    bands: list[Band] = []
    state: int | None = None
    since = moments[0].x
    for moment in moments:
        event = moment.event
        if event.op not in (Op.STATUS_WRITTEN, Op.STATUS_DROPPED, Op.ROOM_CLEARED):
            continue
        held = event.old if state is None and event.op != Op.ROOM_CLEARED else state
        after = event.new if event.op == Op.STATUS_WRITTEN else int(State.ABSENT)
        if held == after:
            continue
        if held is not None and held != State.ABSENT:
            bands.append(Band(held, since, moment.x, closed=after == State.ABSENT))
        state, since = after, moment.x
    if state is not None and state != State.ABSENT:
        bands.append(Band(state, since, None, closed=False))
    return tuple(bands)


def _bars(moments: Sequence[Moment]) -> tuple[Bar, ...]:
    """Transfers that this thread posted, each with its end, where this thread saw one."""
    ends = [m for m in moments if m.event.op in (Op.XFER_DONE, Op.XFER_FAILED)]
    bars: list[Bar] = []
    free: list[float] = []  # where each row of bars is free again
    for moment in moments:
        if moment.event.op != Op.XFER_POSTED:
            continue
        end = next((m for m in ends if m.x > moment.x and m.event.handle == moment.event.handle), None)
        row = next((i for i, x in enumerate(free) if x <= moment.x), len(free))
        free[row : row + 1] = [end.x if end else float("inf")]
        bars.append(_bar(moment, end, row))
    return tuple(bars)


def _bar(posted: Moment, end: Moment | None, row: int) -> Bar:
    event = posted.event
    return Bar(
        handle=event.handle,
        chunk=event.chunk,
        bytes=event.bytes,
        x0=posted.x,
        x1=end.x if end else None,
        ns=end.at_ns - posted.at_ns if end else None,
        failed=end is not None and end.event.op == Op.XFER_FAILED,
        row=row,
    )


def _arrows(time: FoldedTime, room: Room) -> list[Arrow]:
    rows = [(m.at_ns, m.event) for m in time.moments]
    arrows = [Arrow(sent.op.split(".")[0], sent, received) for sent, received in message_pairs(rows)]
    for life in room.lives:
        waiting = [e for e in life.events if e.op == Op.CHUNK_ENQUEUED]
        for event in life.events:
            if event.op != Op.CHUNK_DEQUEUED:
                continue
            put = next((e for e in waiting if e.chunk == event.chunk and e.seq < event.seq), None)
            if put is not None:
                waiting.remove(put)
                arrows.append(Arrow("chunk", put, event))
    return arrows


def _says(room: Room, findings: Sequence[Finding]) -> list[Say]:
    """Words, most important first: the overwritten end, the findings, then the story's decisive steps."""
    lead = leading(findings)
    number = {(s.event.process, s.event.seq): s.n for s in lead.story} if lead else {}
    says: list[Say] = []
    for life in room.lives:
        says += [_overwritten(event, number) for event in overwritten_ends(life)]
    told = bool(says)
    says += [_found(finding, number) for finding in findings if finding.kind != "resurrection" or not told]
    said = {say.at for say in says}
    for say in (step for finding in findings for step in _steps(finding, room, number)):
        if say.at not in said:
            said.add(say.at)
            says.append(say)
    return says


def leading(findings: Sequence[Finding]) -> Finding | None:
    """The finding that the title names and whose story gives the numbers: the pin, where there is one."""
    return next((f for f in findings if f.kind == "pinned"), findings[0] if findings else None)


def _steps(finding: Finding, room: Room, number: dict[Key, int]) -> list[Say]:
    """The decisive steps in the story's words; before a story was written, in the marks' words."""
    if finding.story:
        decisive = [step for step in finding.story if step.decisive]
        return [_step((s.event.process, s.event.seq), s.text, number) for s in decisive]
    rows = {(e.process, e.seq): e for life in room.lives for e in life.events}
    found = [rows[finding.process, seq] for seq in finding.decisive if (finding.process, seq) in rows]
    return [_step((e.process, e.seq), f"{thread_of(e)}: {word(e) or e.op}", number) for e in found]


def _step(at: Key, text: str, number: dict[Key, int]) -> Say:
    return Say(f"say:step-{number.get(at, at[1])}", at, text, "", number.get(at))


def overwritten_ends(life: Life) -> list[Event]:
    """Rows that replaced this life's own terminal state by another one.

    A drop is no overwriting, nor is a new life that starts over what the last one left.
    """
    found, own = [], life.opened is None
    for event in life.events:
        if event.op != Op.STATUS_WRITTEN:
            continue
        if own and event.old in _FINAL and event.new not in (event.old, State.ABSENT):
            found.append(event)
        own = True
    return found


def _overwritten(event: Event, number: dict[Key, int]) -> Say:
    change = f"{state_label(event.old)} → {state_label(event.new)}"
    lifted = event.new not in _FINAL
    head = f"Resurrection: {change}" if lifted else f"Final state overwritten: {change}"
    at = (event.process, event.seq)
    return Say("say:resurrection", at, head, f"{thread_of(event)} writes over a final state", number.get(at))


def _found(finding: Finding, number: dict[Key, int]) -> Say:
    at = (finding.since.process, finding.since.seq)
    if finding.kind == "pinned":
        head = f"Pinned from here: {state_label(finding.state)}, by {finding.certainty}"
        queue = f"in the {finding.queue}, " if finding.queue else ""
        body = f"{queue}blocked on {finding.blocked_on}"
    else:
        head, body = finding.kind.replace("_", " ").capitalize(), finding.claim
    return Say(f"say:{finding.kind}", at, head, body, number.get(at))


def verdict_words(room: Room, findings: Sequence[Finding]) -> str:
    """The verdict in a few words.  Without findings only what the rows show: this module judges nothing."""
    first = leading(findings)
    if first:
        kinds = dict.fromkeys(f.kind.replace("_", " ") for f in findings if f.kind != first.kind)
        words = [
            f"{first.kind.replace('_', ' ')} at {state_label(first.state)}, by {first.certainty}",
            *kinds,
        ]
        return "; ".join(words)
    ended = bool(room.lives) and all(life.cleared is not None for life in room.lives)
    return "cleared" if ended else "not cleared when the trace ends"
