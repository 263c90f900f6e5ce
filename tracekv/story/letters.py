"""The letters of the threads, and where a story's clock and managers begin."""

from __future__ import annotations

from typing import Final

THREADS: Final = {"S": "scheduler", "B": "bootstrap", "W": "worker-0", "D": "decode"}
STEP_NS: Final = 1_000_000
EPOCH_NS: Final = 1_750_000_000_000_000_000
DECODE_MANAGER: Final = 1


def thread_of(letter: str) -> str:
    """The role of a thread from its letter: ``W1`` is ``worker-1``."""
    return f"worker-{letter[1:]}" if len(letter) > 1 else THREADS[letter]


def letter_of(thread: str | None) -> str:
    """The letter of a thread's role; ``?`` where the language has none."""
    if thread and thread.startswith("worker-"):
        number = thread[len("worker-") :]
        return "W" if number == "0" else f"W{number}"
    return {role: letter for letter, role in THREADS.items()}.get(thread or "", "?")


def manager_of(letter: str) -> int:
    """``D`` is the decode manager of the process, everybody else works for its prefill manager."""
    return DECODE_MANAGER if letter == "D" else 0
