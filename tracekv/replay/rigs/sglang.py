"""The rig of the real thing: SGLang's own code on its real transport, parked at its own seams.

The transfer worker and the bootstrap thread are the engine's.  The scheduler and the decode engine
are scripts of ours that call the real sender and receiver, each in the order in which the engine's
own loops do: constructor, polls, chunks, polls, clear.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tracekv.errors import UsageError
from tracekv.event import Event, Op, State
from tracekv.replay.gate import ThreadGate
from tracekv.replay.rigs import ACTORS, THREADS, End, Pending, Scenario
from tracekv.replay.rigs.build import Build
from tracekv.replay.rigs.engine import Engine, recorder_of
from tracekv.seams import GATE_OF

LIMIT_S: Final = 10.0  # an actor that does not come to its next gate by then is stalled
DECODE_LIMIT_S: Final = 5.0
_LETTER: Final = {thread: letter for letter, thread in THREADS.items()}


class Script:
    """A thread of ours that plays one actor, one job at a time.

    ``begin`` is called once in the thread; ``end`` after each job, with what it raised.
    """

    def __init__(self, name: str, begin: Callable[[], None], end: Callable[[Exception | None], None]) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._begin, self._end = begin, end
        self.error: Exception | None = None
        self.busy = threading.Event()
        threading.Thread(target=self._loop, name=name, daemon=True).start()

    def start(self, job: Callable[[], None]) -> None:
        """Play ``job`` now."""
        self.error = None
        self.busy.set()
        self._jobs.put(job)

    def _loop(self) -> None:
        self._begin()
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception as error:
                self.error = error
            self._end(self.error)
            self.busy.clear()


class SglangRig:
    """Real managers of one build in this process; see :class:`tracekv.replay.rigs.Rig`.

    ``folder`` receives the spool of what happened here.
    """

    def __init__(self, build: Build, source: Path, folder: Path) -> None:
        self.build = build.label
        self.manager = f"real {build.label}"
        self.engine = Engine(build, source)
        self.gate = ThreadGate(self._actor_here)
        self._rows: list[Event] = []
        self.recorder = recorder_of(self.engine, folder, detail="gates", gate=self.gate)
        self.recorder.listener = self._heard
        self._watch_deaths()
        self.engine.start()
        self._broken: str | None = None
        self._scripts = {
            letter: Script(THREADS[letter], self._named(letter), self._played) for letter in "SD"
        }
        self._random = random.SystemRandom()
        self._cancelled = False
        self._polled: State | None = None
        self._receiver: Any = None
        self._warm_up()

    # ---- the interface

    def begin(self, scenario: Scenario) -> int:
        """Start a fresh room with every actor parked at its first gate; returns the room's id."""
        pages = sum(scenario.pages)
        if pages > self.engine.source.pages:
            raise UsageError(f"the rig has {self.engine.source.pages} pages, the scenario wants {pages}")
        self._scenario = scenario
        self._room = self._random.getrandbits(63) | (1 << 62)
        self._polled, self._cancelled, self._receiver = None, False, None
        self._stamp(pages)
        self._rows.clear()
        self.recorder.paused = False
        self.gate.control(self._room, ACTORS, self._start, LIMIT_S)
        return self._room

    def parked(self) -> Mapping[str, Pending]:
        """Where each living actor stands."""
        return self.gate.parked()

    def grant(self, actor: str) -> Event | None:
        """Let one enabled actor perform its event and run to its next gate."""
        gate = self.gate.parked()[actor].gate
        before = len(self._rows)
        try:
            self.gate.grant(actor, LIMIT_S)
        except Exception as stalled:
            self._broken = str(stalled)
            raise
        thread = THREADS[actor]
        fresh = (row for row in self._rows[before:] if row.thread == thread)
        return next((row for row in fresh if GATE_OF.get(row.op) == gate), None)

    def end(self) -> End:
        """Read how the room ended, then drain it so that the next room can begin."""
        pinned = self._quiescent() and not self.gate.is_done("S")
        state = self._state()
        peers = self._has_peers()
        self._finish_decode()
        self.recorder.paused = True
        checked, wrong = self._check_bytes()
        released = self.gate.is_done("S")
        left = tuple(
            what for what, there in (
                (f"request_status: {state.label}", released and state is not State.ABSENT),
                ("transfer_infos", released and peers),
            ) if there
        )  # fmt: skip
        end = End(
            state=state, polled=self._polled, pinned=pinned and not state.terminal, peers=peers, left=left,
            bytes_checked=checked, bytes_wrong=wrong, died=dict(self.gate.deaths()),
        )  # fmt: skip
        self._drain()
        return end

    def reusable(self) -> bool:
        """Whether another room may begin in this process."""
        return self._broken is None and not self.gate.deaths()

    def close(self) -> None:
        """Stop recording; the caller ends the process with ``os._exit``, since SGLang's threads stay."""
        self.recorder.paused = False
        self.recorder.close()

    # ---- the scripts

    def _schedule(self) -> None:
        sender = self.engine.sender(self._room)
        self._wait_for(sender, State.WAITING)
        if self._over():
            self._conclude(sender)
            return
        sender.init(sum(self._scenario.pages), aux_index=0)
        first = 0
        for pages in self._scenario.pages:
            sender.send(np.arange(first, first + pages, dtype=np.int32))
            first += pages
        self._wait_for(sender)
        self._conclude(sender)

    def _wait_for(self, sender: Any, *wanted: State) -> None:
        self.gate.asks_again()
        while not self._cancelled:
            self._polled = State(int(sender.poll()))
            if self._polled.terminal or self._polled in wanted:
                return

    def _over(self) -> bool:
        return self._cancelled or (self._polled is not None and self._polled.terminal)

    def _conclude(self, sender: Any) -> None:
        if self._cancelled:
            return
        if self._polled is State.SUCCESS:
            sender.clear()
            return
        try:
            sender.failure_exception()
        except Exception as expected:  # that is how the engine hands the reason over
            self._failure = str(expected)

    def _decode(self) -> None:
        receiver = self.engine.receiver(self._room)
        self._receiver = receiver
        pages = sum(self._scenario.pages)
        target = self._target_pages(pages).astype(np.int32)
        receiver.send_metadata(target, aux_index=0, state_indices=None)
        if self._scenario.abort:
            receiver.abort()
            receiver.poll()
            receiver.clear()

    def _await_decode(self) -> None:
        deadline = time.monotonic() + DECODE_LIMIT_S
        while time.monotonic() < deadline:
            if State(int(self._receiver.poll())).terminal:
                self._receiver.clear()
                return
            time.sleep(0.0005)

    # ---- helpers of the interface

    def _start(self, letter: str) -> None:
        """Begin a script; the engine's own threads run already."""
        if letter in self._scripts:
            self._scripts[letter].start(self._schedule if letter == "S" else self._decode)

    def _played(self, error: Exception | None) -> None:
        """A script's job is over; what the engine's code raised into it ended its actor."""
        if error is None:
            self.gate.finished()
        else:
            self.gate.died(f"{type(error).__name__}: {error}")

    def _finish_decode(self) -> None:
        """A decode engine that was not aborted takes its notifications, as it would in its loop."""
        if self._scenario.abort or self._polled is not State.SUCCESS or self._receiver is None:
            return
        self._play("D", self._await_decode, DECODE_LIMIT_S + 1)

    def _play(self, letter: str, job: Callable[[], None], limit_s: float) -> None:
        script = self._scripts[letter]
        script.start(job)
        deadline = time.monotonic() + limit_s
        while script.busy.is_set() and time.monotonic() < deadline:
            time.sleep(0.0002)

    def _quiescent(self) -> bool:
        return not any(pending.enabled for pending in self.gate.parked().values())

    def _state(self) -> State:
        found = dict.get(self.engine.prefill.request_status, self._room)
        return State.ABSENT if found is None else State(int(found))

    def _has_peers(self) -> bool:
        return dict.get(self.engine.prefill.transfer_infos, self._room) is not None

    def _drain(self) -> None:
        """Let every actor go back to where it waits for work, then remove what the room left."""
        self._cancelled = True
        self.gate.release()
        if not self.gate.idle(LIMIT_S):
            self._broken = self._broken or "the room could not be drained"
        for manager in (self.engine.prefill, self.engine.decode):
            for table in ("request_status", "transfer_infos", "failure_records", "req_to_decode_prefix_len"):
                dict.pop(getattr(manager, table, {}), self._room, None)

    # ---- memory

    def _target_pages(self, pages: int) -> Any:
        """Decode's pages of the room: the same number, at the far end and in reverse order."""
        return np.arange(self.engine.target.pages - 1, self.engine.target.pages - 1 - pages, -1)

    def _stamp(self, pages: int) -> None:
        """Fill the room's source pages with bytes of its own and clear where they will land."""
        stamp = np.random.default_rng(self._room)
        for source, target in zip(self.engine.source.kv, self.engine.target.kv, strict=True):
            source[:pages] = stamp.integers(1, 256, size=(pages, source.shape[1]), dtype=np.uint8)
            target[:] = 0

    def _check_bytes(self) -> tuple[int, int]:
        """Compare the pages of every chunk whose transfer was seen done: (compared, different)."""
        done = {row.chunk for row in self._rows if row.op == Op.XFER_DONE and row.chunk is not None}
        target_pages = self._target_pages(sum(self._scenario.pages))
        checked = wrong = first = 0
        for chunk, pages in enumerate(self._scenario.pages):
            span = slice(first, first + pages)
            first += pages
            if chunk in done:
                for source, target in zip(self.engine.source.kv, self.engine.target.kv, strict=True):
                    differs = source[span] != target[target_pages[span]]
                    checked += differs.size
                    wrong += int(differs.sum())
        return checked, wrong

    # ---- threads

    def _actor_here(self) -> str | None:
        return _LETTER.get(self.recorder.here.role or "")

    def _named(self, letter: str) -> Callable[[], None]:
        return lambda: self.recorder.name_thread(THREADS[letter])

    def _heard(self, row: Event) -> None:
        self._rows.append(row)

    def _watch_deaths(self) -> None:
        told_before = threading.excepthook

        def excepthook(args: Any) -> None:
            told_before(args)  # the recorder's, which leaves the row; then the stack, into the child's log
            self.gate.died(f"{args.exc_type.__name__}: {args.exc_value}")

        threading.excepthook = excepthook

    def _warm_up(self) -> None:
        """One room end to end, unrecorded: registers the peer and connects the agents."""
        self.recorder.paused = True
        self._scenario = Scenario(pages=(1,), abort=False)
        self._room = self._random.getrandbits(62)
        self._stamp(1)
        self._play("D", self._decode, DECODE_LIMIT_S)
        self._play("S", self._schedule, DECODE_LIMIT_S)
        if self._polled is not State.SUCCESS:
            raise UsageError(
                f"SGLang {self.build} does not run on this rig: a first room without any abort ended "
                f"{'without an answer' if self._polled is None else 'in ' + self._polled.label}",
                hint="\n  ".join(self._excuses()) or None,
            )
        self._play("D", self._await_decode, DECODE_LIMIT_S)
        self._drain()
        self.recorder.paused = False

    def _excuses(self) -> list[str]:
        """What was raised where the warm-up room did not succeed."""
        raised = {letter: script.error for letter, script in self._scripts.items() if script.error}
        told = [f"{THREADS[letter]}: {type(error).__name__}: {error}" for letter, error in raised.items()]
        return told + [f"{THREADS[letter]} died: {why}" for letter, why in self.gate.deaths().items()]
