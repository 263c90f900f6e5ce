"""Draw the pictures of the documentation again: ``python docs/draw.py``."""

from pathlib import Path

import tracekv
from tracekv.examine import build_of
from tracekv.show.plot import save

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "sample_traces"

#: Sample: picture of its one room.
PICTURES = {"bad/resurrection_pin": "pinned_room", "ok/resurrection_pin_fix_b": "healed_room"}


def main() -> None:
    (HERE / "images").mkdir(exist_ok=True)
    for sample, name in PICTURES.items():
        recording = tracekv.open(SAMPLES / sample)
        room = recording.room(str(recording.rooms()["room"].iloc[0]))
        found = [each for each in recording.verdict.findings if each.room == room.room]
        save(room, found, HERE / "images" / f"{name}.png", build=build_of(recording.trace, room))


if __name__ == "__main__":
    main()
