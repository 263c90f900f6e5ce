"""Events as a table in the dataset's schema, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from tracekv.event import COLUMNS, Event
from tracekv.trace.schema import SCHEMA

BATCH: Final = 1 << 13


def rows(table: pa.Table) -> Iterator[Event]:
    """The rows of a table in the dataset's schema as events, a batch at a time."""
    for batch in table.to_batches(max_chunksize=BATCH):
        # Most columns of most rows are null: what is null throughout is left to Event's defaults.
        names = [name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows]
        lists = [batch.column(name).to_pylist() for name in names]
        if "source" in names and batch.column("source").null_count:
            at = names.index("source")
            lists[at] = [value or "unknown" for value in lists[at]]
        for values in zip(*lists, strict=True):
            yield Event(**dict(zip(names, values, strict=True)))


def table_of(events: Iterable[Event]) -> pa.Table:
    """Events as a table in the dataset's schema.

    Raises
    ------
    ValueError
        (as pyarrow's ArrowInvalid, or OverflowError) where a value does not fit its column.
    """
    listed = events if isinstance(events, list) else list(events)
    columns = [
        pa.array([getattr(event, name) for event in listed], SCHEMA.field(name).type) for name in COLUMNS
    ]
    return pa.table(columns, schema=SCHEMA)
