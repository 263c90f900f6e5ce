"""The bytes of a spool: the one place that both ends take them from.

A segment is a header of :data:`HEADER_BYTES` and then records, each at a multiple of eight: the
commit word (length of the payload), the payload's crc, the payload.  A commit word of zero is the
end.  Promise: whatever changes these bytes changes :data:`FORMAT`.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from typing import Final
from zlib import crc32

MAGIC: Final = b"tkvspool"
FORMAT: Final = 1
SUFFIX: Final = ".seg"
HEADER_BYTES: Final = 512
MIN_SEGMENT: Final = 4096
MAX_SEGMENT: Final = 1 << 26
MAX_TEXT: Final = 4096

HEAD: Final = struct.Struct("<8sHHIIQqHH160s96s")  # then its crc
#: Used bytes; lanes of the process so far, 0 where another segment of the lane follows; crc.  Written once.
CLOSED: Final = struct.Struct("<QII")
#: n, first seq, first and last mono_ns, first wall_ns, why; then its crc.
LOSS: Final = struct.Struct("<QqqqqI")
WORD: Final = struct.Struct("<I")
FRAME: Final = struct.Struct("<Q")  # crc << 32 | length of the payload: stored in one go
ROW: Final = struct.Struct("<BBbbbxhIi8I4qQ4q")
SHORT: Final = struct.Struct("<BBbbbxhIIqqqQ")
ROW_STEP: Final = (8 + ROW.size + 7) & ~7  # with its frame and padding
TEXT: Final = struct.Struct("<B3xI")  # kind, id; then the text

CLOSED_AT: Final = 384
LOSS_AT: Final = (400, 448)
KIND_ROW: Final = 1
KIND_TEXT: Final = 2
KIND_SHORT: Final = 3

#: The nullable numbers of a row, in the order of their bits in its presence bitmap.
PRESENCE: Final = (
    "mono_ns", "wall_ns", "seq_before", "room", "generation", "handle", "bytes", "precision_ns",
    "manager", "requested", "old", "new", "chunk", "last",
)  # fmt: skip

#: The same of a short row, which has both clocks and nothing else that is not a required column.
SHORT_PRESENCE: Final = ("manager", "requested", "old", "new", "room")

WHYS: Final = (
    "unknown",
    "no segment could be opened",
    "the spool reached its size limit",
    "a value does not fit its column",
    "the row is larger than a segment",
    "the lane is closed",
    "the process was forked",
)
NO_SEGMENT, LIMIT, VALUE, TOO_BIG, CLOSED_LANE, FORKED = range(1, len(WHYS))


def safe_name(text: str) -> str:
    """``text`` where it can be a file name as it is, otherwise a slug of it with a digest.

    Names in a trace come from other machines: none may lead out of the folder that is written to.
    """
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", text) and ".." not in text:
        return text
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:40].strip("-") or "x"
    return f"{slug}-{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:12]}"


def segment_name(process: str, lane: int, number: int) -> str:
    """File name of a segment; the header, not the name, says whose it is."""
    return f"{safe_name(process)}.{lane}.{number}{SUFFIX}"


def cut_text(text: str) -> bytes:
    """At most :data:`MAX_TEXT` bytes of UTF-8; what was cut says so, and JSON stays JSON."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_TEXT:
        return data
    if text.startswith("{"):
        return json.dumps({"cut_bytes": len(data), "head": text[:512]}).encode()
    mark = f"…[cut, {len(data)} bytes]".encode()
    return data[: MAX_TEXT - len(mark)].decode("utf-8", "ignore").encode() + mark


def pack_head(process: str, lane: int, number: int, thread: str, tid: int, size: int) -> bytes:
    """The fixed part of a header, with its crc."""
    who, role = _short(process, 160), _short(thread, 96)
    head = HEAD.pack(MAGIC, FORMAT, HEADER_BYTES, lane, number, size, tid, len(who), len(role), who, role)
    return head + WORD.pack(crc32(head))


def _short(text: str, size: int) -> bytes:
    return str(text).encode("utf-8", "backslashreplace")[:size].decode("utf-8", "ignore").encode()
