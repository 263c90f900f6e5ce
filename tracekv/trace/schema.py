"""The dataset's columns, their types, and the versions of both.

The Parquet columns are the fields of :class:`tracekv.event.Event`, no more and no less.  The
promise: a file of every version that was ever published is read for ever, a column that is not
there reads as null, one that is not known is ignored, and one of the wrong type is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from tracekv import __version__
from tracekv.errors import UnreadableError
from tracekv.event import COLUMNS
from tracekv.trace.metadata import newer

VERSION: Final = 1

#: The oldest tracekv that reads this version: what an older one tells its user to install.
NEEDS: Final = "0.1"

TYPES: Final[Mapping[str, pa.DataType]] = {
    "seq": pa.int64(),
    "op": pa.string(),
    "process": pa.string(),
    "thread": pa.string(),
    "tid": pa.int64(),
    "manager": pa.int16(),
    "mono_ns": pa.int64(),
    "wall_ns": pa.int64(),
    "seq_before": pa.int64(),
    "room": pa.uint64(),
    "rid": pa.string(),
    "generation": pa.int64(),
    "site": pa.string(),
    "requested": pa.int8(),
    "old": pa.int8(),
    "new": pa.int8(),
    "chunk": pa.int32(),
    "last": pa.bool_(),
    "peer": pa.string(),
    "handle": pa.int64(),
    "bytes": pa.int64(),
    "reason": pa.string(),
    "source": pa.string(),
    "precision_ns": pa.int64(),
    "attrs": pa.string(),
}

SCHEMA: Final[pa.Schema] = pa.schema([pa.field(name, TYPES[name]) for name in COLUMNS])

#: Columns without which a row says nothing; all others may be missing, or null.
REQUIRED: Final = ("seq", "op", "process")

#: Rising numbers are stored as differences, everything else by dictionary.
DELTA: Final = ("seq", "mono_ns", "wall_ns", "seq_before", "handle")
DICTIONARY: Final = tuple(name for name in COLUMNS if name not in DELTA and name != "last")

#: version -> what makes a table of the next version out of one of this.
Upgrader = Callable[[pa.Table], pa.Table]
UPGRADERS: Final[dict[int, Upgrader]] = {}


def file_version(metadata: Mapping[bytes, bytes]) -> int:
    """The schema version that a file's key-value metadata declares; 1 where it declares none.

    Raises
    ------
    UnreadableError
        for a version that this tracekv does not know, with the one that is needed.
    """
    text = metadata.get(b"tracekv.schema", b"1").decode("utf-8", "replace")
    if not re.fullmatch("0*[1-9][0-9]{0,99}", text):
        raise UnreadableError(f"{text[:20]!r} is no schema version")
    found = int(text)
    if found > VERSION:
        needs = metadata.get(b"tracekv.needs", b"").decode("utf-8", "replace")[:20]
        raise UnreadableError(
            f"written in schema version {found}; this tracekv ({__version__}) reads up to {VERSION}",
            hint=f"install tracekv {needs} or newer" if newer(needs) else "install a newer tracekv",
        )
    return found


def check_columns(schema: pa.Schema, *, ours: bool = False) -> None:
    """Whether a file's columns can be those of a trace; all of them, where it says that it is ``ours``.

    A Parquet footer has no checksum: a flipped bit in a column's name would pass for a column that
    another writer left out.

    Raises
    ------
    UnreadableError
        naming the columns that are missing, or the first whose type cannot hold its values.
    """
    missing = [name for name in (COLUMNS if ours else REQUIRED) if name not in schema.names]
    if missing and ours:
        raise UnreadableError(f"damaged: its version has a column {missing[0]}, and it is not there")
    if missing:
        raise UnreadableError(
            f"not a tracekv trace: no column {', '.join(missing)}",
            hint=f"found {', '.join(schema.names[:8]) or 'no columns'}; `tracekv ingest` makes a trace",
        )
    for field in schema:
        if field.name in TYPES and not _fits(field.type, TYPES[field.name]):
            raise UnreadableError(f"column {field.name} is {field.type}, expected {TYPES[field.name]}")
    twice = [name for name in TYPES if schema.names.count(name) > 1]
    if twice:
        raise UnreadableError(f"column {twice[0]} is there twice")


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """The same kind of value, in whatever width or encoding another writer chose; never a float."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    if pa.types.is_boolean(wanted):
        return bool(pa.types.is_boolean(found))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found))
    return bool(
        pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    )


def canonical(table: pa.Table, found: int) -> pa.Table:
    """``table``, of version ``found``, in exactly :data:`SCHEMA`.

    Raises
    ------
    ValueError
        (as pyarrow's ArrowInvalid) where a value does not fit its column.
    """
    for step in range(found, VERSION):
        table = UPGRADERS[step](table)
    columns = [_column(table, name) for name in COLUMNS]
    return pa.table(columns, schema=SCHEMA)


def _column(table: pa.Table, name: str) -> Any:
    if name in table.schema.names:
        column = table.column(name)
        wanted = TYPES[name]
        return column if column.type == wanted else column.cast(wanted)
    if name == "source":
        return pa.array(["hook"] * table.num_rows, pa.string())
    return pa.nulls(table.num_rows, TYPES[name])
