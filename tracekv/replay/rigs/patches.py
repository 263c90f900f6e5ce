"""Named changes of SGLang's behaviour, applied to its source in memory.

Each patch is a set of replacements of exact text, and a text that is not there exactly once refuses
the patch: a build is never half of what its name says.  Nothing of SGLang is stored here beyond the
lines that a replacement must recognise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracekv.errors import UnreadableError, UsageError

COMMON: Final = "sglang.srt.disaggregation.common.conn"
NIXL: Final = "sglang.srt.disaggregation.nixl.conn"


@dataclass(frozen=True, slots=True)
class Replacement:
    """In ``module``, the one place that reads ``old`` becomes ``new``."""

    module: str
    old: str
    new: str


_FORK_SKIP = """\
                if (
                    room not in self.transfer_infos
                    or self.check_status(room) == KVPoll.Failed
                ):
                    continue
"""

#: By name, in the order in which they must be applied.
PATCHES: Final[dict[str, tuple[Replacement, ...]]] = {
    # The build with the pin: ABORT is handled and pops unconditionally, and the worker skips a chunk
    # whose peers are gone instead of asserting that they are there.
    "fork": (
        Replacement(
            NIXL,
            """\
                if self.check_status(room) == KVPoll.Failed:
                    continue

                assert room in self.transfer_infos
""",
            _FORK_SKIP,
        ),
        Replacement(
            NIXL,
            """\
                        handle_staging_rsp(waiting_req_bytes, self.transfer_infos)
                    continue

                assert (
""",
            """\
                        handle_staging_rsp(waiting_req_bytes, self.transfer_infos)
                    continue

                if waiting_req_bytes[0] == b"ABORT":
                    aborted = int(waiting_req_bytes[1].decode("ascii"))
                    if (
                        aborted in self.request_status
                        and self.check_status(aborted) != KVPoll.Success
                    ):
                        self.record_failure(aborted, "Aborted by decode")
                        self.update_status(aborted, KVPoll.Failed)
                    self.transfer_infos.pop(aborted, None)
                    self.req_to_decode_prefix_len.pop(aborted, None)
                    continue

                assert (
""",
        ),
    ),
    # Fix A, sticky terminal, as published: reads the entry before it decides.
    "fix-a": (
        Replacement(
            COMMON,
            """\
            if status == KVPoll.Failed:
                self.request_status[bootstrap_room] = KVPoll.Failed
            else:
                self.request_status[bootstrap_room] = max(
                    self.request_status[bootstrap_room], status
                )
""",
            """\
            current = self.request_status[bootstrap_room]
            if current in (KVPoll.Failed, KVPoll.Success):
                return
            if status == KVPoll.Failed:
                self.request_status[bootstrap_room] = KVPoll.Failed
            else:
                self.request_status[bootstrap_room] = max(current, status)
""",
        ),
    ),
    # Fix B, the skip must conclude: a skipped chunk of a room that is not terminal fails the room.
    "fix-b": (
        Replacement(
            NIXL,
            _FORK_SKIP,
            _FORK_SKIP.replace(
                "                    continue\n",
                """\
                    if self.check_status(room) not in (
                        KVPoll.Success,
                        KVPoll.Failed,
                    ):
                        self.record_failure(
                            room, "KV transfer aborted before completion"
                        )
                        self.update_status(room, KVPoll.Failed)
                    continue
""",
            ),
        ),
    ),
}


def patched_sources(source: Path, names: Iterable[str]) -> dict[str, str]:
    """The changed text of every module that the named patches touch.

    ``source`` is the folder that holds ``sglang/``.  Raises UsageError where a text is not there
    exactly once, UnreadableError where a module cannot be read.
    """
    texts: dict[str, str] = {}
    for name in names:
        for change in PATCHES[name]:
            text = texts.get(change.module) or _read(source, change.module)
            texts[change.module] = _replace(text, change, name, source)
    return texts


def module_path(source: Path, module: str) -> Path:
    """The file of ``module`` under ``source``."""
    return source / (module.replace(".", "/") + ".py")


def _read(source: Path, module: str) -> str:
    path = module_path(source, module)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(
            f"cannot read {path}: {error}", hint="Is this a source tree of SGLang with sglang/srt in it?"
        ) from error


def _replace(text: str, change: Replacement, name: str, source: Path) -> str:
    found = text.count(change.old)
    if found != 1:
        telling = max((line.strip() for line in change.old.splitlines()), key=len)
        raise UsageError(
            f"patch {name!r} does not match {module_path(source, change.module)}: "
            f"the code around {telling!r} is there {found} times, not once",
            hint="The patches fit SGLang 0.5.14. Try this build without the patch, or with another one.",
        )
    return text.replace(change.old, change.new)
