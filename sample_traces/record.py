"""Record the sample traces again, on SGLang's real managers: ``python sample_traces/record.py``.

Each sample is recorded in a process of its own (managers cannot be unloaded) and replaces the one that
is there, together with its part of ``LABELS.toml``.  A label says what the rig's own dictionaries hold
at the end; the analyzer is not asked.  Needs the extras ``rig`` and ``replay``; fetches SGLang once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekv.ingest import ingest_spool
from tracekv.replay.drive import run_once
from tracekv.replay.rigs import Scenario
from tracekv.replay.rigs.build import find_source, parse_build
from tracekv.replay.schedule import POLL, Schedule, Step

HERE = Path(__file__).parent

# The twelve steps: both chunks are queued, the worker has posted c0, decode's ABORT is handled while
# c0 is in flight, then c0 is seen done, c1 is dequeued, and the scheduler polls last.
TWELVE_STEPS = Schedule(
    "anchored",
    (
        Step("D", "meta.sent"),
        Step("B", "control.in"),
        Step("B", "control.in", arrives=True),
        Step("S", POLL, arrives=True),
        Step("S", POLL),
        Step("S", "chunk.enqueued", 0),
        Step("S", "chunk.enqueued", 1),
        Step("W", "chunk.dequeued"),
        Step("W", "xfer.posted", 0),
        Step("D", "abort.sent"),
        Step("B", "control.in"),
        Step("B", "control.in", arrives=True),
        Step("W", "xfer.settled", 0),
        Step("W", "chunk.dequeued"),
        Step("W", "chunk.dequeued", arrives=True),
        Step("S", POLL),
    ),
)


@dataclass(frozen=True)
class Sample:
    """One sample: where it lies, from which build, and how it was made."""

    path: str
    build: str
    how: str
    verdict: str
    free: bool = False
    aborted_share: float = 1.0


SAMPLES = (
    Sample(
        "bad/resurrection_pin", "0.5.14+fork",
        "one room, steered into the twelve steps under gates", "violation",
    ),
    Sample(
        "ok/resurrection_pin_fix_b", "0.5.14+fork+fix-b",
        "one room, the same anchored schedule as bad/resurrection_pin", "clean",
    ),
    Sample(
        "bad/natural_pin", "0.5.14+fork",
        "200 rooms, not steered, each aborted at a random time, polled every 50 ms", "violation", free=True,
    ),
    Sample(
        "ok/healthy", "0.5.16",
        "200 rooms, not steered, one in six aborted at a random time, polled every 50 ms; recorded again "
        "until every abort ended clean", "clean", free=True, aborted_share=1 / 6,
    ),
)  # fmt: skip


def main() -> None:
    """All samples, or the ones that are named."""
    chosen = [sample for sample in SAMPLES if not sys.argv[1:] or sample.path in sys.argv[1:]]
    labels = read_labels()
    for sample in chosen:
        labels[sample.path] = record(sample)
        print(f"{sample.path}: {labels[sample.path]['rooms']} rooms", file=sys.stderr)
    write_labels(labels)


def record(sample: Sample) -> dict[str, Any]:
    """Record one sample in a process of its own, and put it where it belongs; its label."""
    for seed in range(1, 40):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--child", sample.path, folder, str(seed)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            label: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            if sample.free and not good_enough(sample, label):
                continue
            target = HERE / sample.path
            shutil.rmtree(target, ignore_errors=True)
            ingest_spool(Path(folder), target)
            return {"build": sample.build, "how": sample.how, "verdict": sample.verdict, "seed": seed} | label
    raise SystemExit(f"{sample.path}: no seed gave what its label promises")


def good_enough(sample: Sample, label: dict[str, Any]) -> bool:
    """A natural sample is kept when nature gave what it is to show."""
    clean = not (label["pinned"] or label["ghosts"] or label["false_success"])
    return clean if sample.verdict == "clean" else bool(label["pinned"])


def child(path: str, folder: Path, seed: int) -> None:
    """In the process of one sample: record it, print its label as the last line, leave at once."""
    sample = next(each for each in SAMPLES if each.path == path)
    label = record_free(sample, folder, seed) if sample.free else record_steered(sample, folder)
    print(json.dumps(label), flush=True)
    os._exit(0)


def record_steered(sample: Sample, folder: Path) -> dict[str, Any]:
    """The twelve steps on the gated rig."""
    from tracekv.replay.rigs.sglang import SglangRig

    build = parse_build(sample.build)
    rig = SglangRig(build, find_source(build, fetch=True), folder)
    run = run_once(rig, Scenario(pages=(4, 4), abort=True), TWELVE_STEPS)
    rig.close()
    if run.divergence is not None:
        raise SystemExit(f"{sample.path}: {run.divergence}")
    pinned = [run.room] if run.end.pinned else []
    return label_of(1, pinned, [], [], [run.room], {str(run.room): run.end.label})


def record_free(sample: Sample, folder: Path, seed: int) -> dict[str, Any]:
    """Rooms that run freely, with four worker queues."""
    from tracekv.replay.rigs.engine import Engine, recorder_of
    from tracekv.replay.rigs.freerun import Plan, run_freely

    build = parse_build(sample.build)
    engine = Engine(build, find_source(build, fetch=True), queues=4, pages=64, page_bytes=65536, layers=4)
    recorder = recorder_of(engine, folder, detail="gates", gate=None)
    engine.start()
    recorder.name_thread("scheduler")
    fates = run_freely(engine, recorder, Plan(aborted_share=sample.aborted_share, seed=seed))
    recorder.close()
    return label_of(
        len(fates),
        [fate.room for fate in fates if fate.pinned],
        [fate.room for fate in fates if fate.ghost],
        [fate.room for fate in fates if fate.false_success],
        [fate.room for fate in fates if fate.aborted],
        {str(fate.room): fate.status.label for fate in fates if fate.pinned or fate.ghost},
    )


def label_of(
    rooms: int,
    pinned: list[int],
    ghosts: list[int],
    false_success: list[int],
    aborted: list[int],
    states: dict[str, str],
) -> dict[str, Any]:
    """What is true of a recording; room ids as text, since they exceed 2**53."""
    return {
        "rooms": rooms,
        "pinned": sorted(map(str, pinned)),
        "ghosts": sorted(map(str, ghosts)),
        "false_success": sorted(map(str, false_success)),
        "aborted": len(aborted),
        "ended": states,
    }


def read_labels() -> dict[str, dict[str, Any]]:
    """The labels that are there."""
    import tomllib

    path = HERE / "LABELS.toml"
    if not path.exists():
        return {}
    found = tomllib.loads(path.read_text())
    return {f"{group}/{name}": label for group, labels in found.items() for name, label in labels.items()}


def write_labels(labels: dict[str, dict[str, Any]]) -> None:
    """``LABELS.toml``, in the order of the samples."""
    lines = [
        "# Written by record.py: how each sample was made; what the rig's own dictionaries held at its end.",
        "# pinned: never released, not terminal, peers gone. ghosts: released, and entries were there again.",
        "# false_success: the engine recorded a failure, and its scheduler was told Success.",
        "# ended: the state that request_status held at the end for those rooms.",
    ]
    for sample in SAMPLES:
        if sample.path in labels:
            lines += ["", f"[{sample.path.replace('/', '.')}]", *_table(labels[sample.path], sample.path)]
    (HERE / "LABELS.toml").write_text("\n".join(lines) + "\n")


def _table(label: dict[str, Any], path: str) -> list[str]:
    ended = label.get("ended") or {}
    plain = [f"{key} = {_value(value)}" for key, value in label.items() if key != "ended"]
    if not ended:
        return plain
    rows = [f'"{room}" = {_value(state)}' for room, state in sorted(ended.items())]
    return [*plain, "", f"[{path.replace('/', '.')}.ended]", *rows]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + "".join(f"\n    {json.dumps(each)}," for each in value) + ("\n]" if value else "]")
    return json.dumps(value)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
