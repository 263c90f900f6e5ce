"""Reading one Parquet file of a dataset, without trusting it.

A file is surveyed once: its footer, then every page against its checksum.  The promise: after the
survey the readable row groups are known, everything else is named as damage, and reading them
again holds one batch in memory at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracekv.errors import UnreadableError
from tracekv.event import Event
from tracekv.spool import Damage, Loss
from tracekv.trace.groups import Group, GroupSurvey, open_parquet, reason
from tracekv.trace.metadata import check_coverage, check_needs, damage_said, losses_said
from tracekv.trace.pieces import Numbered
from tracekv.trace.schema import VERSION, check_columns, file_version


@dataclass(frozen=True, slots=True)
class Shard:
    """One readable file: its good row groups, and whose rows are in them."""

    groups: tuple[Group, ...]
    processes: frozenset[str]
    pieces: tuple[Numbered, ...] = field(repr=False)
    describing: tuple[Event, ...] = field(repr=False)
    losses: tuple[Loss, ...]
    damage: tuple[Damage, ...]


def survey(path: Path, name: str) -> Shard:
    """Reads a file once, to learn what of it can be read.

    Raises
    ------
    UnreadableError
        where nothing of it can: foreign, truncated, too new; also where it has row groups, and
        none of them is whole.
    """
    with open_parquet(path, name) as file:
        metadata = file.schema_arrow.metadata or {}
        metadata = {**metadata, **(file.metadata.metadata or {})}
        try:
            version = file_version(metadata)
            check_columns(file.schema_arrow, ours=b"tracekv.writer" in metadata and version == VERSION)
        except UnreadableError as error:
            raise UnreadableError(f"{name}: {error.message}", hint=error.hint) from None
        looked = _Looked()
        for group in range(file.num_row_groups):
            looked.at(Group(path, name, version, group), file)
    if looked.bad and not looked.good:
        raise UnreadableError(f"{name}: no row group can be read", hint=str(looked.damage[0]))
    said, wrong = damage_said(metadata, name)
    lost, unsaid = losses_said(metadata, name)
    damage = [*said, *wrong, *unsaid, *check_needs(metadata, name), *looked.damage]
    if not looked.damage:
        damage += check_coverage(metadata, looked.ops, name)
    return Shard(
        tuple(looked.good),
        frozenset(piece.process for piece, _ in looked.pieces),
        tuple(looked.pieces),
        tuple(looked.describing),
        (*lost, *looked.losses),
        tuple(damage),
    )


def is_process_table(path: Path) -> bool:
    """Whether a file is the table of a process that lies beside its events: derived, nobody reads it."""
    if path.parent.name != "processes":
        return False
    try:
        with open_parquet(path, path.name) as file:
            return not {"seq", "op"} & set(file.schema_arrow.names)
    except UnreadableError:
        return False


class _Looked:
    """What the survey of one file has found so far."""

    def __init__(self) -> None:
        self.good: list[Group] = []
        self.bad = 0
        self.pieces: list[Numbered] = []
        self.ops: Counter[str] = Counter()
        self.describing: list[Event] = []
        self.losses: list[Loss] = []
        self.damage: list[Damage] = []

    def at(self, group: Group, file: Any) -> None:
        found = GroupSurvey()
        try:
            for table in group.raw(file):
                found.take(table)
        except (pa.ArrowException, OSError, ValueError) as error:
            self.bad += 1
            self.damage.append(Damage(group.name, f"row group {group.number}", reason(error)))
            return
        self.good.append(group)
        self.pieces += found.pieces(group)
        self.ops += found.ops
        self.describing += found.describing
        self.losses += found.losses()
        self.damage += found.damage(group)


def tables(shard: Shard) -> Iterator[pa.Table]:
    """The sound rows of a file, a batch at a time, each in exactly the dataset's schema."""
    return (table for group in shard.groups for table in group.batches())
