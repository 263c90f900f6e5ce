import subprocess
import sys
from pathlib import Path

import pytest

import tracekv
from tests.memory import PIN
from tracekv.event import ROOM_MAX
from tracekv.story import recording

HEAVY = ("pandas", "numpy", "pyarrow", "matplotlib", "nixl", "torch", "zmq", "IPython")


def loaded_after(code: str) -> set[str]:
    report = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import tracekv",
        "import tracekv; tracekv.State, tracekv.replay, tracekv.analyze",
        "import tracekv.cli, tracekv.cli.analyze, tracekv.cli.rooms, tracekv.cli.show",
        "import tracekv.verdict, tracekv.show.text, tracekv.show.json",
    ],
)
def test_importing_loads_nothing_heavy(code: str) -> None:
    assert loaded_after(code) == set()


def test_every_public_name_is_there() -> None:
    assert all(hasattr(tracekv, name) for name in tracekv.__all__)
    assert callable(tracekv.replay)
    with pytest.raises(AttributeError, match="no_such"):
        _ = tracekv.no_such


def test_a_recording_answers_a_notebook(tmp_path: Path) -> None:
    from tracekv.trace.store import write_dataset

    write_dataset(recording(PIN, room=ROOM_MAX), tmp_path / "t")
    opened = tracekv.open(tmp_path / "t")
    assert opened.verdict.name == "violation"
    rooms, findings = opened.rooms(), opened.findings()
    assert str(rooms["room"].dtype) == str(findings["room"].dtype) == "UInt64"
    assert list(rooms["room"]) == [ROOM_MAX] and list(findings["kind"]) == ["resurrection", "pinned"]
    assert opened.room(ROOM_MAX).room == opened.room(hex(ROOM_MAX)).room == ROOM_MAX
    assert "violation" in repr(opened) and "<li>" in opened._repr_html_()


def test_a_recording_without_findings_has_an_empty_frame(tmp_path: Path) -> None:
    from tracekv.trace.store import write_dataset

    write_dataset(recording(""), tmp_path / "t")
    assert tracekv.open(tmp_path / "t").findings().empty
