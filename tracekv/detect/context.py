"""What a detector may look at: one life, the lives beside it, and what is known about its process.

Everything is derived from the rows in one pass; a detector reads it and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from tracekv.event import Event, Op
from tracekv.rooms import Life, Room, ranks_of

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class ThreadTail:
    """The last row of a thread, and the row that says that it died, if one does."""

    last: Event
    died: Event | None = None


@dataclass(frozen=True)
class Context:
    """The surroundings of every life of one trace."""

    rooms: Mapping[int, Room]
    processes: Mapping[str, Any]
    managers: Mapping[tuple[str, int], Any]
    tails: Mapping[tuple[str, str], ThreadTail]
    times: Mapping[str, list[int]]
    alive: Mapping[str, list[int]]
    coverage: Mapping[tuple[str, int | None], Mapping[str, str]]
    losses: tuple[Any, ...]
    stuck_after_ns: int
    ended: frozenset[str] = frozenset()
    misordered: Mapping[str, str] = field(default_factory=dict)  # process: why its order is not proved
    fits: dict[tuple[str, int], Any] = field(default_factory=dict)  # memory of policies.fitting

    def rows_lost_during(self, life: Life) -> bool:
        """Whether the life's process lost rows between the life's first row and the end of the trace."""
        begin = life.first.mono_ns
        of_process = (loss for loss in self.losses if loss.process == life.process)
        return any(begin is None or loss.to_ns is None or loss.to_ns >= begin for loss in of_process)

    def doubts(self, life: Life) -> tuple[str, ...]:
        """Why the order or the owner of the life's rows is not sure: with one of these there is no proof."""
        why = self.misordered.get(life.process)
        return life.doubts if why is None else (*life.doubts, why)

    def manager_of(self, life: Life) -> Any | None:
        return self.managers.get((life.process, life.manager))

    def rank_of(self, life: Life) -> int:
        """The engine rank of the life's manager, 0 where it is not described."""
        manager = self.manager_of(life)
        return int(getattr(manager, "engine_rank", None) or 0)

    def ranks_expected(self, life: Life) -> int:
        """How many ranks poll this room together: tensor parallel times pipeline parallel."""
        manager = self.manager_of(life)
        return int(getattr(manager, "tp_size", None) or 1) * int(getattr(manager, "pp_size", None) or 1)

    def ranks(self, life: Life) -> tuple[Life, ...]:
        """The lives of all ranks of this life's role in its time, itself included.

        Where one rank polls alone, another process with the same room is no rank of it.
        """
        if self.ranks_expected(life) == 1:
            return (life,)
        return ranks_of(life, self.rooms[life.room])

    def build_of(self, life: Life) -> str | None:
        process = self.processes.get(life.process)
        return getattr(process, "build", None)

    def seams_missing(self, life: Life, needed: Iterable[str]) -> tuple[str, ...]:
        """Which of these seams were not installed for the life's manager, as far as the rows say."""
        seams = self.seams_of(life)
        return tuple(name for name in needed if seams.get(name) != "installed")

    def seams_of(self, life: Life) -> Mapping[str, str]:
        """Seam name to state: what was said about this manager counts before the rest."""
        of_process: Mapping[str, str] = getattr(self.processes.get(life.process), "seams", {})
        general = self.coverage.get((life.process, None), {})
        return {**of_process, **general, **self.coverage.get((life.process, life.manager), {})}

    def went_on(self, process: str, thread: str, seq: int) -> bool:
        """Whether a thread did anything after row ``seq``: what it was doing there is then over."""
        tail = self.tails.get((process, thread))
        return tail is not None and tail.last.seq > seq

    def died(self, process: str, thread: str) -> Event | None:
        """The row that says that a thread died."""
        tail = self.tails.get((process, thread))
        return tail.died if tail is not None else None

    def alive_ns(self, process: str, since_ns: int) -> int:
        """How long the process was demonstrably alive after ``since_ns`` (monotonic clock), in ns.

        A silence longer than the threshold does not count: the process may have been stopped.
        """
        times, alive = self.times.get(process, []), self.alive.get(process, [])
        at = bisect_right(times, since_ns)
        if at == len(times):
            return 0
        first = times[at] - since_ns
        return alive[-1] - alive[at] + (first if first <= self.stuck_after_ns else 0)


@dataclass
class Survey:
    """The one pass over the rows from which a context is made."""

    tails: dict[tuple[str, str], ThreadTail] = field(default_factory=dict)
    times: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    coverage: dict[tuple[str, int | None], dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    ended: set[str] = field(default_factory=set)
    misordered: dict[str, str] = field(default_factory=dict)
    seqs: dict[str, int] = field(default_factory=dict)
    clocks: dict[tuple[str, str | None, int | None], int] = field(default_factory=dict)
    rows: int = 0
    first_wall_ns: int | None = None
    last_wall_ns: int | None = None

    def take(self, event: Event) -> Event:
        """Note one row and hand it on."""
        self.rows += 1
        if self.seqs.get(event.process) == event.seq:
            self._misordered(event, "two rows have the same number")
        self.seqs[event.process] = event.seq
        if event.mono_ns is not None:
            self.times[event.process].append(event.mono_ns)
            self._take_clock(event, event.mono_ns)
        if event.wall_ns is not None:
            self.first_wall_ns = min(self.first_wall_ns or event.wall_ns, event.wall_ns)
            self.last_wall_ns = max(self.last_wall_ns or event.wall_ns, event.wall_ns)
        if event.op == Op.PROCESS_ENDED:
            self.ended.add(event.process)
        if event.op == Op.SEAM_INSTALLED:
            seam, state = str(event.attr("seam")), str(event.attr("state"))
            self.coverage[(event.process, event.manager)][seam] = state
        if event.thread is not None:
            self._take_thread(event, event.thread)
        return event

    def _take_clock(self, event: Event, now: int) -> None:
        """A thread's own clock never steps back; a row about losses has the number of the first of them."""
        if event.source != "hook" or event.op == Op.ROWS_LOST:
            return
        key = (event.process, event.thread, event.tid)
        if now < self.clocks.get(key, now):
            self._misordered(event, f"the clock of thread {event.thread} runs backwards")
        self.clocks[key] = now

    def _misordered(self, event: Event, why: str) -> None:
        said = f"the order of the rows of process {event.process} is not proved: {why} at seq {event.seq}"
        self.misordered.setdefault(event.process, said)

    def _take_thread(self, event: Event, thread: str) -> None:
        key = (event.process, thread)
        before = self.tails.get(key)
        died = event if event.op == Op.THREAD_DIED else (before.died if before else None)
        self.tails[key] = ThreadTail(event, died)

    def context(self, rooms: Mapping[int, Room], trace: Any, stuck_after_s: float | None) -> Context:
        """The context of every life in ``rooms``."""
        for times in self.times.values():
            times.sort()
        threshold = stuck_threshold_ns(rooms.values(), stuck_after_s)
        return Context(
            rooms=rooms,
            processes=trace.processes,
            managers=trace.managers,
            tails=self.tails,
            times=self.times,
            alive={process: alive_until(times, threshold) for process, times in self.times.items()},
            coverage=self.coverage,
            losses=tuple(trace.losses),
            stuck_after_ns=threshold,
            ended=frozenset(self.ended),
            misordered=self.misordered,
        )


def alive_until(times: list[int], longest_ns: int) -> list[int]:
    """For each moment, how long the process was alive until then, silences beyond ``longest_ns`` left out."""
    gaps = (after - before for before, after in pairwise(times))
    return list(accumulate((gap if gap <= longest_ns else 0 for gap in gaps), initial=0))


def stuck_threshold_ns(rooms: Iterable[Room], stuck_after_s: float | None = None) -> int:
    """How long a room may rest: ten times the 99th percentile of settled lives, at least 30 s."""
    if stuck_after_s is not None:
        return int(stuck_after_s * SECOND_NS)
    spans = sorted(filter(None, (lifetime_ns(life) for room in rooms for life in room.lives)))
    p99 = spans[min(len(spans) - 1, int(len(spans) * 0.99))] if spans else 0
    return max(30 * SECOND_NS, 10 * p99)


def lifetime_ns(life: Life) -> int | None:
    """From the first row to the last of a life that settled; ``None`` for one that did not."""
    first, last = life.first.mono_ns, life.last.mono_ns
    return last - first if life.settled and first is not None and last is not None else None
