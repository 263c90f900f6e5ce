"""What a file says about itself in its key-value metadata, held against what is in it.

The promise: metadata that makes no sense is damage, since it may have said that rows are missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, TypeVar

from tracekv import __version__
from tracekv.spool import Damage, Loss

_Said = TypeVar("_Said", Damage, Loss)

_DAMAGE: Final = {"file": (str,), "where": (str,), "why": (str,)}
_LOSS: Final = {
    "process": (str,),
    "thread": (str, NoneType),
    "n": (int,),
    "from_ns": (int, NoneType),
    "to_ns": (int, NoneType),
    "why": (str,),
}


def damage_said(metadata: Mapping[bytes, bytes], name: str) -> tuple[list[Damage], list[Damage]]:
    """What the ingest that wrote this file could not read, and what is wrong with saying so."""
    return _listed(metadata, "tracekv.damage", Damage, _DAMAGE, name)


def losses_said(metadata: Mapping[bytes, bytes], name: str) -> tuple[list[Loss], list[Damage]]:
    """The rows that it found missing, and what is wrong with saying so."""
    return _listed(metadata, "tracekv.losses", Loss, _LOSS, name)


def _listed(
    metadata: Mapping[bytes, bytes],
    key: str,
    kind: type[_Said],
    shape: Mapping[str, tuple[type, ...]],
    name: str,
) -> tuple[list[_Said], list[Damage]]:
    try:
        found = _json(metadata.get(key.encode(), b"[]"))
        if not isinstance(found, list) or not all(_has_shape(item, shape) for item in found):
            raise ValueError
    except (ValueError, RecursionError):
        wanted = ", ".join(shape)
        return [], [Damage(name, f"metadata {key}", f"cannot be read: not a JSON list of {wanted}")]
    return [kind(**item) for item in found], []


def _has_shape(item: Any, shape: Mapping[str, tuple[type, ...]]) -> bool:
    return (
        isinstance(item, dict)
        and item.keys() == shape.keys()
        and all(isinstance(item[key], kinds) for key, kinds in shape.items())
    )


def check_coverage(metadata: Mapping[bytes, bytes], ops: Mapping[str, int], name: str) -> list[Damage]:
    """Operations of which the file says that it holds more rows than it does."""
    if b"tracekv.coverage" not in metadata:
        ours = b"tracekv.writer" in metadata
        return [Damage(name, "metadata tracekv.coverage", "missing")] if ours else []
    try:
        said = _json(metadata[b"tracekv.coverage"])["ops"]
        gone = {op: n for op, n in said.items() if int(n) > ops.get(op, 0)}
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return [Damage(name, "metadata tracekv.coverage", "cannot be read")]
    told = [f"{n} {op} rows, it holds {ops.get(op, 0)}" for op, n in sorted(gone.items())]
    more = f" (and {len(told) - 1} more such)" if len(told) > 1 else ""
    return [Damage(name, "rows", f"the file says {told[0]}{more}")] if told else []


def check_needs(metadata: Mapping[bytes, bytes], name: str) -> list[Damage]:
    """Whether the file asks for a tracekv that is not this one."""
    needs = metadata.get(b"tracekv.needs", b"0").decode("utf-8", "replace")[:20]
    where = "metadata tracekv.needs"
    if as_version(needs) is None:
        return [Damage(name, where, f"{needs!r} is no version")]
    if newer(needs):
        return [Damage(name, where, f"asks for tracekv {needs} or newer; this is {__version__}")]
    return []


def newer(text: str) -> bool:
    """Whether ``text`` is a version later than this tracekv's."""
    found, ours = as_version(text), as_version(__version__)
    return found is not None and ours is not None and found > ours


def as_version(text: str) -> tuple[int, ...] | None:
    """``0.1`` as numbers; what follows them in a version of ours does not count.  ``None`` for no version."""
    plain = re.match(r"[0-9]{1,9}(\.[0-9]{1,9})*(?![^+.a-z-])", text)
    return tuple(map(int, plain.group().split("."))) if plain else None


def _json(data: bytes) -> Any:
    """JSON whose texts can be printed.

    Raises
    ------
    ValueError, RecursionError
        where it is none.
    """
    found = json.loads(data)
    if b"\\ud" in data.lower():
        found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    return found
