"""The reading half: rows out of segments, and an honest account of what could not be read.

Reads while the writer is still at work, without disturbing it.  The promise: on any bytes
whatsoever it raises nothing, invents no row, and takes no more memory than one segment may have;
after the first record that does not check out it stops in that segment and says at which byte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from zlib import crc32

from tracekv.errors import UsageError
from tracekv.event import Event, Op, State
from tracekv.spool.account import Damage, Loss, losses_of
from tracekv.spool.files import open_regular, shown
from tracekv.spool.layout import (
    CLOSED,
    CLOSED_AT,
    FORMAT,
    FRAME,
    HEAD,
    HEADER_BYTES,
    KIND_ROW,
    KIND_SHORT,
    KIND_TEXT,
    LOSS,
    LOSS_AT,
    MAGIC,
    MAX_SEGMENT,
    MAX_TEXT,
    PRESENCE,
    ROW,
    SHORT,
    SHORT_PRESENCE,
    SUFFIX,
    TEXT,
    WHYS,
    WORD,
    segment_name,
)


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """One segment: whose it is, its rows in the order of writing, and where reading ended.

    ``lanes`` is ``None`` while it is written; at its end the lanes of the process so far, or 0 where
    another segment of its lane follows.
    """

    process: str
    thread: str
    tid: int
    lane: int
    number: int
    events: list[Event] = field(default_factory=list, repr=False)
    end: int = HEADER_BYTES
    lanes: int | None = None
    losses: tuple[Loss, ...] = ()
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class SpoolRead:
    """A whole spool: rows by (process, seq), rows known to be missing, bytes that made no sense."""

    events: list[Event] = field(repr=False)
    losses: list[Loss]
    damage: list[Damage]


_STATES: Final = frozenset({None, *State})
STATE_OUTSIDE: Final = f"with a state outside {min(State):d} to {max(State):d}"


class _Torn(Exception):
    """A record that does not check out; the text says why."""


def segment_files(folder: Path) -> list[Path]:
    """The segments of a spool folder, by name; other files are not ours to judge.

    Raises
    ------
    UsageError
        where there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"{shown(folder)}: no such spool folder")
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.name[0] != ".")


def read_spool(folder: Path) -> SpoolRead:
    """Every row of a spool folder, live or not.

    Raises
    ------
    UsageError
        where there is no such folder; nothing else, on any content.
    """
    events: list[Event] = []
    losses: list[Loss] = []
    damage: list[Damage] = []
    heads: list[SegmentRead] = []
    for path in segment_files(folder):
        found = read_segment(path)
        if isinstance(found, Damage):
            damage.append(found)
            continue
        if any(same(found, head) for head in heads):
            damage.append(Damage(path.name, "header", "the same segment a second time; not read"))
            continue
        heads.append(replace(found, events=[]))
        events += found.events
        losses += found.losses
        damage += found.damage
    damage += missing_segments(heads, folder)
    losses += losses_of(events)
    events.sort(key=lambda event: (event.process, event.seq))
    return SpoolRead(events, losses, damage)


def same(one: SegmentRead, other: SegmentRead) -> bool:
    """Whether two files hold the same segment: a copy must not double its rows."""
    return (one.process, one.lane, one.number) == (other.process, other.lane, other.number)


def missing_segments(heads: Iterable[SegmentRead], *folders: Path) -> list[Damage]:
    """Lanes of a process and segments of a lane are numbered from 0: a gap is a file that was taken away.

    So is what should follow: a closed segment says whether its lane goes on, and how many lanes there are.
    """
    lanes: dict[str, dict[int, list[SegmentRead]]] = {}
    for head in heads:
        lanes.setdefault(head.process, {}).setdefault(head.lane, []).append(head)
    gone: list[Damage] = []
    for process, of_process in sorted(lanes.items()):
        told = max(head.lanes or 0 for of_lane in of_process.values() for head in of_lane)
        first, missing = _gap(set(of_process), told)
        if missing:
            name = segment_name(process, first, 0)
            gone.append(Damage(name, f"lane {first} of {process}", f"missing ({missing} of its lanes)"))
        for lane, of_lane in sorted(of_process.items()):
            top = max(of_lane, key=lambda head: head.number)
            first, missing = _gap({head.number for head in of_lane}, top.number + 1 + (top.lanes == 0))
            if missing:
                name = segment_name(process, lane, first)
                gone.append(Damage(name, f"lane {lane} of {process}", f"missing ({missing} of its segments)"))
    # Where it exists it is damaged, and told, or was made while the folder was listed.
    return [each for each in gone if not any((folder / each.file).exists() for folder in folders)]


def _gap(found: set[int], total: int) -> tuple[int, int]:
    """The first number that is missing below the highest found or ``total``, and how many are."""
    # Numbers are as hostile as any other bytes: never count up to one.
    first = next(n for n in range(len(found) + 1) if n not in found)
    return first, max(total, max(found) + 1) - len(found)


def read_segment(path: Path, limit: int | None = None) -> SegmentRead | Damage:
    """One segment file; ``limit`` stops at a byte, so that a live one reads the same twice.

    Returns
    -------
    SegmentRead | Damage
        the damage where not even the header can be believed.
    """
    found = _attempt(path, limit)
    # A live segment may have been closed and cut while it was being read: look again before blaming it.
    if isinstance(found, Damage) or found.damage:
        found = _attempt(path, limit)
    return found


def _attempt(path: Path, limit: int | None) -> SegmentRead | Damage:
    try:
        data = _load(path)
    except (OSError, _Torn) as error:
        return Damage(path.name, "file", getattr(error, "strerror", None) or str(error))
    head = _header(data, path.name)
    return head if isinstance(head, Damage) else _body(data, head, path.name, limit)


def _load(path: Path) -> bytes:
    """The file's bytes, which are never more than a segment may have.

    Raises
    ------
    OSError
        also where it is no regular file.
    _Torn
        where it is too large for a segment.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_SEGMENT:
            raise _Torn(f"{size} bytes: larger than any segment")
        return file.read(size)


def _header(data: bytes, name: str) -> SegmentRead | Damage:
    if not data:
        return Damage(name, "byte 0", "empty file")
    if len(data) < HEADER_BYTES:
        return Damage(name, f"byte {len(data)}", "cut inside its header")
    magic, version, _, lane, number, _size, tid, who, role, process, thread = HEAD.unpack_from(data)
    if magic != MAGIC:
        return Damage(name, "byte 0", "not a spool segment")
    if version != FORMAT:
        return Damage(name, "byte 8", f"spool format {version}; this tracekv reads format {FORMAT}")
    if WORD.unpack_from(data, HEAD.size)[0] != crc32(data[: HEAD.size]):
        return Damage(name, "header", "checksum does not match")
    return SegmentRead(
        process[:who].decode("utf-8", "replace"), thread[:role].decode("utf-8", "replace"), tid, lane, number
    )


def _body(data: bytes, head: SegmentRead, name: str, limit: int | None) -> SegmentRead:
    size = HEAD.unpack_from(data)[5]
    used, lanes = _closed(data)
    expected = size if used is None else used
    reach = min(len(data), expected, len(data) if limit is None else limit)
    events, end, why = _records(data, head, reach)
    if why is None and used is not None and end < reach:
        why = "the commit word of a finished record is zero"
    if why is None and used is None and _rows_beyond(data, end, reach):
        why = "a zero commit word, and bytes of later records after it"
    if why is None and len(data) < expected:
        why = f"the file is cut: {len(data)} bytes of {expected}"
        end = max(end, len(data))
    damage = [] if why is None else [Damage(name, f"byte {end}", why)]
    last = events[-1].mono_ns if events else None
    losses = (
        [] if why is None else [Loss(head.process, head.thread, 1, last, None, f"{name}, byte {end}: {why}")]
    )
    if strange := [event for event in events if not _states_known(event)]:
        events = list(filter(_states_known, events))
        n, first, final = len(strange), strange[0].mono_ns, strange[-1].mono_ns
        damage.append(Damage(name, f"seq {strange[0].seq}", f"{n} rows {STATE_OUTSIDE}"))
        losses.append(Loss(head.process, head.thread, n, first, final, STATE_OUTSIDE))
    told = _loss_row(data, head)
    if isinstance(told, Event):
        events.append(told)
    elif told is not None:
        damage.append(Damage(name, "header", told))
    return replace(head, events=events, end=end, lanes=lanes, losses=tuple(losses), damage=tuple(damage))


def _states_known(event: Event) -> bool:
    return event.old in _STATES and event.new in _STATES and event.requested in _STATES


def _closed(data: bytes) -> tuple[int, int] | tuple[None, None]:
    """Used bytes and lanes, where the segment was closed."""
    used, lanes, crc = CLOSED.unpack_from(data, CLOSED_AT)
    whole = used and crc == crc32(data[CLOSED_AT : CLOSED_AT + CLOSED.size - WORD.size])
    return (used, lanes) if whole else (None, None)


def _rows_beyond(data: bytes, end: int, reach: int) -> bool:
    """Behind the last record of an open segment there is at most one unfinished row with its texts."""
    rest = data[end + ROW.size + 16 + 8 * (MAX_TEXT + 24) : reach]
    if rest.count(0) != len(rest):
        return True
    first = _next_record(data, end, reach)
    return first is not None


def _next_record(data: bytes, end: int, reach: int) -> int | None:
    """A whole record a few steps behind a zero commit word: then that word was once another."""
    stop = min(reach, end + ROW.size + 16 + MAX_TEXT)
    for at in range(end + 8, stop - 8, 8):
        frame = FRAME.unpack_from(data, at)[0]
        length = frame & 0xFFFFFFFF
        if length and at + 8 + length <= reach and crc32(data[at + 8 : at + 8 + length]) == frame >> 32:
            return at
    return None


def _records(data: bytes, head: SegmentRead, reach: int) -> tuple[list[Event], int, str | None]:
    """Rows up to ``reach``, the byte where reading ended, and why it ended there if not at the end."""
    events: list[Event] = []
    texts: list[str | None] = [None]
    at = HEADER_BYTES
    while at + 8 <= reach:
        frame = FRAME.unpack_from(data, at)[0]
        length = frame & 0xFFFFFFFF
        if not length:
            return events, at, None
        body = at + 8
        if body + length > reach:
            return events, at, f"torn record: {length} bytes, and {max(reach - body, 0)} are left"
        payload = data[body : body + length]
        if crc32(payload) != frame >> 32:
            return events, at, "torn record: checksum does not match"
        try:
            event = _record(payload, texts, head)
        except _Torn as error:
            return events, at, f"torn record: {error}"
        if event is not None:
            events.append(event)
        at = (body + length + 7) & ~7
    # The padding of the last record may be cut off together with what followed it.
    return events, at, f"torn record: {reach - at} bytes of its frame" if at < reach else None


def _record(payload: bytes, texts: list[str | None], head: SegmentRead) -> Event | None:
    """A row, or ``None`` for a text, which joins ``texts``.

    Raises
    ------
    _Torn
        where the bytes are whole but mean nothing.
    """
    kind = payload[0]
    if kind == KIND_ROW and len(payload) == ROW.size:
        return _row(payload, texts, head)
    if kind == KIND_SHORT and len(payload) == SHORT.size:
        return _short_row(payload, texts, head)
    if kind != KIND_TEXT or len(payload) < TEXT.size:
        raise _Torn(f"kind {kind} with {len(payload)} bytes")
    if TEXT.unpack_from(payload)[1] != len(texts):
        raise _Torn("a text out of its order")
    texts.append(payload[TEXT.size :].decode("utf-8", "replace"))
    return None


def _row(payload: bytes, texts: list[str | None], head: SegmentRead) -> Event:
    (_, last, requested, old, new, manager, bits, chunk, op, source, site, peer, reason, rid, attrs, _,
     seq, mono, wall, before, room, generation, handle, size, precision) = ROW.unpack(payload)  # fmt: skip
    if not (0 < op < len(texts) and max(source, site, peer, reason, rid, attrs) < len(texts)):
        raise _Torn("a row that refers to a text which is not there")
    values = (
        mono, wall, before, room, generation, handle, size, precision,
        manager, requested, old, new, chunk, last != 0,
    )  # fmt: skip
    present = {name: values[bit] for bit, name in enumerate(PRESENCE) if bits >> bit & 1}
    return Event(
        seq=seq,
        op=texts[op] or "",
        process=head.process,
        thread=head.thread,
        tid=head.tid,
        source=texts[source] or "hook",
        site=texts[site],
        peer=texts[peer],
        reason=texts[reason],
        rid=texts[rid],
        attrs=texts[attrs],
        **present,
    )


def _short_row(payload: bytes, texts: list[str | None], head: SegmentRead) -> Event:
    _, bits, requested, old, new, manager, op, site, seq, mono, wall, room = SHORT.unpack(payload)
    if not (0 < op < len(texts) and site < len(texts)):
        raise _Torn("a row that refers to a text which is not there")
    values = (manager, requested, old, new, room)
    present = {name: values[bit] for bit, name in enumerate(SHORT_PRESENCE) if bits >> bit & 1}
    return Event(
        seq=seq, op=texts[op] or "", process=head.process, thread=head.thread, tid=head.tid,
        mono_ns=mono, wall_ns=wall, site=texts[site], **present,
    )  # fmt: skip


def _loss_row(data: bytes, head: SegmentRead) -> Event | str | None:
    """The ``rows.lost`` row that a segment's header holds, or why it cannot be told."""
    best: tuple[int, ...] | None = None
    broken = False
    for at in LOSS_AT:
        slot = data[at : at + LOSS.size]
        if not any(data[at : at + LOSS.size + 4]):
            continue
        if WORD.unpack_from(data, at + LOSS.size)[0] != crc32(slot):
            broken = True
        elif best is None or LOSS.unpack(slot)[0] > best[0]:
            best = LOSS.unpack(slot)
    if best is None:
        return "rows were lost, and their count is torn" if broken else None
    n, seq, start, stop, wall, why = best
    reason = WHYS[why] if why < len(WHYS) else WHYS[0]
    attrs = json.dumps({"n": n, "from_ns": start, "to_ns": stop, "why": reason})
    return Event(
        seq=seq, op=Op.ROWS_LOST, process=head.process, thread=head.thread, tid=head.tid,
        mono_ns=start, wall_ns=wall, attrs=attrs,
    )  # fmt: skip
