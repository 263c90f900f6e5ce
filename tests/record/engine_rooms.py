"""A process that serves rooms with SGLang's own managers, recorded; run as a script by the test.

``python engine_rooms.py BUILD DETAIL FOLDER`` records into FOLDER and prints JSON: what the engine's
own dictionaries hold at the end, and how each room went.  Nothing is steered: all threads run freely.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tracekv.event import State
from tracekv.replay.rigs.build import find_source, parse_build
from tracekv.replay.rigs.engine import Engine, recorder_of

ROOM, ROOMS = 2**62, 20
CHUNKS = ((0, 1), (2,))
LIMIT_S = 20.0


class Serving:
    """Both roles, driven in the order in which the engine's own loops do it."""

    def __init__(self, build: str, detail: str, folder: Path) -> None:
        parsed = parse_build(build)
        self.engine = Engine(parsed, find_source(parsed))
        self.recorder = recorder_of(self.engine, folder, detail=detail, gate=None)
        self.engine.start()
        self.went: dict[int, dict[str, Any]] = {}

    def room(self, room: int, *, abort: str | None = None, clear: bool = True) -> None:
        self._stamp(room)
        receiver = self._receiver(room)
        sender = self._sender(room)
        receiver.send_metadata(np.array([9, 8, 7], dtype=np.int32), aux_index=0, state_indices=None)
        self._until(sender, State.WAITING)
        sender.init(3, aux_index=0)
        if abort == "decode":
            receiver.abort()
        elif abort == "prefill":
            sender.abort()
        else:
            for pages in CHUNKS:
                sender.send(np.array(pages, dtype=np.int32))
            self._until(receiver)
        ended = self._until(sender)
        self.went[room] = {"sender": int(ended), "receiver": int(receiver.poll()), "bytes": self._arrived()}
        if clear:
            receiver.clear()
            sender.clear()

    def _sender(self, room: int) -> Any:
        """With keywords, as the engine's scheduler calls it."""
        return self.engine.nixl.NixlKVSender(
            mgr=self.engine.prefill, bootstrap_addr=self.engine.address, bootstrap_room=room,
            dest_tp_ranks=[0], pp_rank=0,
        )  # fmt: skip

    def _receiver(self, room: int) -> Any:
        receiver = self.engine.nixl.NixlKVReceiver(
            mgr=self.engine.decode, bootstrap_addr=self.engine.address, bootstrap_room=room
        )
        receiver.init(0)
        return receiver

    def _until(self, side: Any, *wanted: State) -> State:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            state = State(int(side.poll()))
            if state.terminal or state in wanted:
                return state
            time.sleep(0.0005)
        raise TimeoutError(f"{type(side).__name__} stayed {state!r}")

    def _stamp(self, room: int) -> None:
        for number, layer in enumerate(self.engine.source.kv):
            layer[:3] = room % 199 + number + 1
        for layer in self.engine.target.kv:
            layer[:] = 0

    def _arrived(self) -> bool:
        pairs = zip(self.engine.source.kv, self.engine.target.kv, strict=True)
        return all((source[:3] == target[[9, 8, 7]]).all() for source, target in pairs)

    def refusals(self) -> None:
        """What update_status refuses: nothing is stored, and no error."""
        update = self.engine.prefill.update_status
        update(ROOM + 100, 1)
        update(ROOM + 100, 0)
        update(ROOM + 100, 3)  # refused from 0.5.16 on
        update(ROOM + 101, 0)  # refused: the room is not there
        update(bootstrap_room=ROOM + 102, status=1)

    def kill_bootstrap(self) -> None:
        """A frame that is none of SGLang's ends the thread that reads it."""
        receiver = self._receiver(ROOM + 200)
        socket, _ = receiver._connect_to_bootstrap_server(receiver.bootstrap_infos[0])
        socket.send_multipart([b"GET / HTTP/1.1"])
        time.sleep(0.3)

    def report(self) -> dict[str, Any]:
        tables = {
            str(number): {
                str(room): int(status) for room, status in dict.items(manager.request_status)
            }
            for number, manager in enumerate((self.engine.prefill, self.engine.decode))
        }
        return {
            "tables": tables,
            "went": self.went,
            "troubles": self.recorder.troubles,
            "lost": self.recorder.spool.lost,
            "process": self.recorder.process,
        }


def main(build: str, detail: str, folder: str) -> None:
    serving = Serving(build, detail, Path(folder))
    aborts = ("prefill",) if build == "0.5.14" else ("prefill", "decode")  # it has no handler for ABORT
    for number in range(ROOMS):
        abort = aborts[number // 4 % len(aborts)] if number % 4 == 3 else None
        serving.room(ROOM + number, abort=abort, clear=number % 5 != 4)
    serving.refusals()
    serving.kill_bootstrap()
    report = serving.report()
    serving.recorder.close()
    print(json.dumps(report), flush=True)
    os._exit(0)  # the engine's threads are no daemons


if __name__ == "__main__":
    main(*sys.argv[1:])
