"""What recording costs on the threads of the engine, against the two ways one would write it by hand.

    python bench/record.py [--repeat N]

In one process and one run, in turn: a plain ``dict``, a ``dict`` subclass that appends a tuple to a
list (in memory, lost with the process), one that calls ``logging`` with a file, and the recorder with
its spool in a folder.  Each round writes the same statuses of the same rooms; the figure is the best
of the rounds, in nanoseconds an operation, and the ratio is against the list.
"""

from __future__ import annotations

import argparse
import logging
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracekv.record.install import take_module
from tracekv.record.recorder import Recorder
from tracekv.record.wrap.tables import StatusTap, recording_dict
from tracekv.spool import SpoolWriter

OPERATIONS = 50_000
ROOMS = [2**62 + n for n in range(64)]


class Listed(dict):  # type: ignore[type-arg]
    """Appends to a list, with both clocks and the old value, as a recorder must."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Any] = []

    def __setitem__(self, key: Any, value: Any) -> None:
        old = self.get(key)
        super().__setitem__(key, value)
        self.rows.append(
            (time.monotonic_ns(), time.time_ns(), threading.get_ident(), "written", key, old, value)
        )


class Logged(dict):  # type: ignore[type-arg]
    """Writes a line with ``logging`` into a file."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self.log = log

    def __setitem__(self, key: Any, value: Any) -> None:
        old = self.get(key)
        super().__setitem__(key, value)
        self.log.info("status of %d: %s -> %d", key, old, value)


def manager_class() -> Any:
    """A manager as SGLang has it, with its ``update_status``."""

    class Manager:
        def __init__(self) -> None:
            self.disaggregation_mode = "prefill"
            self.request_status = {}  # type: ignore[var-annotated]

        def update_status(self, bootstrap_room: int, status: int) -> None:
            if bootstrap_room not in self.request_status:
                self.request_status[bootstrap_room] = status
            else:
                self.request_status[bootstrap_room] = max(self.request_status[bootstrap_room], status)

    return Manager


def write(table: Any) -> Callable[[], None]:
    def run() -> None:
        for n in range(OPERATIONS):
            table[ROOMS[n & 63]] = n & 3

    return run


def read(table: Any) -> Callable[[], None]:
    def run() -> None:
        for n in range(OPERATIONS):
            table.get(ROOMS[n & 63])

    return run


def update(manager: Any) -> Callable[[], None]:
    def run() -> None:
        for n in range(OPERATIONS):
            manager.update_status(ROOMS[n & 63], n & 3)

    return run


def best(runs: dict[str, Callable[[], None]], repeat: int) -> dict[str, float]:
    """Nanoseconds an operation; the runs take turns, so that a busy machine is busy for all."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(repeat):
        for name, run in runs.items():
            start = time.perf_counter_ns()
            run()
            found[name] = min(found[name], (time.perf_counter_ns() - start) / OPERATIONS)
    return found


def logger_to(file: Path) -> logging.Logger:
    log = logging.getLogger("bench.record")
    log.propagate = False
    log.setLevel(logging.INFO)
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(threadName)s %(message)s"))
    log.addHandler(handler)
    return log


def managers_with(request_status: Any) -> Any:
    made = manager_class()()
    made.request_status = request_status
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory(prefix="tracekv-bench-") as folder:
        log = logger_to(Path(folder, "log"))
        made = {
            detail: Recorder(SpoolWriter(Path(folder, detail), detail, max_bytes=8 << 30), detail=detail)
            for detail in ("writes", "gates")
        }
        tables = {detail: recording_dict({}, StatusTap(made[detail], 0)) for detail in made}
        module: Any = type("Module", (), {"CommonKVManager": manager_class(), "__name__": "bench"})
        take_module(module, made["writes"])
        recorded = module.CommonKVManager()
        for_reading = dict.fromkeys(ROOMS, 1)
        sections = {
            "status write": {
                "plain dict": write({}), "list": write(Listed()), "logging": write(Logged(log)),
                "tracekv": write(tables["writes"]),
            },
            "read": {
                "plain dict": read(for_reading), "tracekv, writes (no row)": read(tables["writes"]),
                "tracekv, gates (a row)": read(tables["gates"]),
            },
            "update_status": {
                "plain dict": update(manager_class()()), "list": update(managers_with(Listed())),
                "logging": update(managers_with(Logged(log))), "tracekv (2 or 3 rows)": update(recorded),
            },
        }  # fmt: skip
        print(f"{platform.python_implementation()} {platform.python_version()}, {OPERATIONS} operations a"
              f" round, best of {repeat} rounds taken in turn")  # fmt: skip
        for section, runs in sections.items():
            figures = best(runs, repeat)
            against = figures.get("list")
            print(f"\n{section}")
            for name, figure in figures.items():
                ratio = f"{figure / against:6.2f} x list" if against else ""
                print(f"  {name:26} {figure:8.0f} ns {ratio}")
        print(f"\nrows lost: {sum(one.spool.lost for one in made.values())}")
        for one in made.values():
            one.close()


if __name__ == "__main__":
    main()
