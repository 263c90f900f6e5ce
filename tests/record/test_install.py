"""The doors: off unless asked for, in before the first manager, and never in the engine's way."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from tests.recorded import Recorded
from tracekv.event import Event, Op, State
from tracekv.record.install import take_module
from tracekv.replay.rigs.build import find_source, parse_build
from tracekv.seams import SEAM_NAMES
from tracekv.spool import read_spool

ROOT = Path(__file__).parents[2]

#: What SGLang's common module looks like to the recorder, as small as can be; a later release's
#: subclass overrides and calls its base.
ENGINE = """
class CommonKVManager:
    def __init__(self, mode="prefill"):
        self.disaggregation_mode = mode
        self.request_status = {}
        self.transfer_infos = {}
    def update_status(self, bootstrap_room, status):
        self.request_status[bootstrap_room] = status
class CommonKVSender:
    def __init__(self, mgr, bootstrap_addr, bootstrap_room, dest_tp_ranks=None, pp_rank=0):
        self.kv_mgr, self.bootstrap_room = mgr, bootstrap_room
        self.conclude_state = None
        mgr.update_status(bootstrap_room, 1)
    def poll(self):
        return self.kv_mgr.request_status[self.bootstrap_room]
    def abort(self):
        self.kv_mgr.update_status(self.bootstrap_room, 0)
        self.conclude_state = 0
    def clear(self):
        self.kv_mgr.request_status.pop(self.bootstrap_room, None)
class CommonKVReceiver(CommonKVSender):
    pass
"""
TARGET = "sglang/srt/disaggregation/common/conn.py"


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A folder to put on the path, with an ``sglang`` in it."""
    file = tmp_path / "engine" / TARGET
    file.parent.mkdir(parents=True)
    file.write_text(ENGINE)
    for folder in file.parents:
        if folder.name == "engine":
            return folder
        (folder / "__init__.py").touch()
    raise AssertionError


def python(code: str, *paths: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRACEKV_")}
    env["PYTHONPATH"] = os.pathsep.join(str(path) for path in (ROOT, *paths))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60,
        check=False, env=env | environment,
    )  # fmt: skip


def served(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0 and done.stdout == "served\n", done.stderr
    return done


def rows(spool: Path, op: str | None = None) -> list[Event]:
    return [row for row in read_spool(spool).events if op in (None, row.op)]


SERVE = """
from tracekv.record.install import plugin
plugin()
from sglang.srt.disaggregation.common.conn import *
manager = CommonKVManager()
sender = CommonKVSender(mgr=manager, bootstrap_addr="a", bootstrap_room=2**63, dest_tp_ranks=[0], pp_rank=0)
assert sender.poll() == 1
sender.abort()
sender.clear()
assert manager.request_status == {}
print("served")
"""
OPS = [
    Op.ROOM_OPENED, Op.STATUS_WRITTEN, Op.POLL_CHANGED, Op.ABORT_REQUESTED, Op.STATUS_WRITTEN,
    Op.CONCLUDE_SET, Op.STATUS_DROPPED, Op.ROOM_CLEARED,
]  # fmt: skip


def test_nothing_happens_unless_it_is_asked_for(engine: Path, tmp_path: Path) -> None:
    code = SERVE + "import sys; assert type(manager.request_status) is dict and len(sys.meta_path) < 6"
    assert served(python(code, engine)).stderr == ""
    assert served(python(code, engine, TRACEKV_SPOOL="")).stderr == ""


def test_a_later_import_is_recorded(engine: Path, tmp_path: Path) -> None:
    done = served(python(SERVE, engine, TRACEKV_SPOOL=str(tmp_path / "spool"), TRACEKV_BUILD="0.5.14+fork"))
    assert done.stderr == ""
    mine = [row for row in rows(tmp_path / "spool") if row.room == 2**63]
    assert [row.op for row in mine if row.op != Op.STATUS_CHECKED] == OPS
    started = rows(tmp_path / "spool", Op.PROCESS_STARTED)
    assert [(row.attr("build"), row.attr("detail")) for row in started] == [("0.5.14+fork", "writes")]
    assert len(rows(tmp_path / "spool", Op.PROCESS_ENDED)) == 1


def test_a_module_that_was_imported_before_is_recorded(engine: Path, tmp_path: Path) -> None:
    code = "import sglang.srt.disaggregation.common.conn as conn\n" + SERVE
    served(python(code, engine, TRACEKV_SPOOL=str(tmp_path / "spool")))
    assert len(rows(tmp_path / "spool", Op.ROOM_OPENED)) == 1


def test_a_search_for_the_module_does_not_use_the_door_up(engine: Path, tmp_path: Path) -> None:
    name = "sglang.srt.disaggregation.common.conn"
    search = f"plugin()\nimport importlib.util\nassert importlib.util.find_spec({name!r})\n"
    code = SERVE.replace("plugin()\n", search, 1)
    served(python(code, engine, TRACEKV_SPOOL=str(tmp_path / "spool")))
    assert len(rows(tmp_path / "spool", Op.ROOM_OPENED)) == 1


def test_the_plugin_may_be_called_again_and_again(engine: Path, tmp_path: Path) -> None:
    code = SERVE.replace("plugin()\n", "plugin()\nplugin()\n", 1) + "plugin()"
    served(python(code, engine, TRACEKV_SPOOL=str(tmp_path / "spool")))
    assert len(rows(tmp_path / "spool", Op.ROOM_OPENED)) == 1
    assert len(rows(tmp_path / "spool", Op.PROCESS_STARTED)) == 1


@pytest.mark.parametrize("where", ["/dev/null/spool", "/proc/tracekv", "{file}/below"])
def test_a_folder_that_cannot_be_written_is_a_warning(where: str, engine: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = served(python(SERVE, engine, TRACEKV_SPOOL=where.format(file=tmp_path / "file")))
    assert "tracekv does not record" in done.stderr and "Traceback" not in done.stderr


def test_a_home_folder_is_found(engine: Path, tmp_path: Path) -> None:
    served(python(SERVE, engine, TRACEKV_SPOOL=" ~/spool ", HOME=str(tmp_path)))
    assert len(rows(tmp_path / "spool", Op.ROOM_OPENED)) == 1


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""


def test_a_full_disk_is_a_warning(engine: Path, tmp_path: Path) -> None:
    done = served(python(LIMITED + SERVE, engine, TRACEKV_SPOOL=str(tmp_path / "spool")))
    assert "tracekv loses rows" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_detail_is_a_warning(engine: Path, tmp_path: Path) -> None:
    done = served(python(SERVE, engine, TRACEKV_SPOOL=str(tmp_path / "spool"), TRACEKV_DETAIL="everything"))
    assert "'everything'" in done.stderr
    assert rows(tmp_path / "spool", Op.PROCESS_STARTED)[0].attr("detail") == "writes"


def test_a_dead_thread_is_a_row_and_whoever_watched_is_told(engine: Path, tmp_path: Path) -> None:
    code = """
        import threading
        threading.excepthook = lambda args: print("told", args.exc_type.__name__)
        from tracekv.record.install import plugin
        plugin()
        class Mute(Exception):
            def __str__(self): raise RuntimeError
        def die(error): raise error
        for error in (KeyError(5), Mute()):
            thread = threading.Thread(target=die, args=(error,), name="Thread-3 (transfer_worker)")
            thread.start()
            thread.join()
    """
    done = python(code, TRACEKV_SPOOL=str(tmp_path / "spool"))
    assert done.stdout == "told KeyError\ntold Mute\n", done.stderr
    died = rows(tmp_path / "spool", Op.THREAD_DIED)
    assert [(row.thread, row.reason) for row in died] == [("worker", "KeyError: 5"), ("worker", "Mute: None")]


def test_the_child_of_a_fork_is_a_process_of_its_own(engine: Path, tmp_path: Path) -> None:
    code = (
        SERVE
        + """
import os, sys
sys.stdout.flush()
child = os.fork()
manager.request_status[8 if child else 9] = 2
if not child:
    os._exit(0)
os.waitpid(child, 0)
"""
    )
    served(python(code, engine, TRACEKV_SPOOL=str(tmp_path / "spool")))
    read = read_spool(tmp_path / "spool")
    assert not read.damage and not read.losses
    by_room = {row.room: row.process for row in read.events if row.room in (8, 9)}
    assert len(by_room) == 2 and by_room[8] != by_room[9]
    assert {row.process for row in read.events if row.op == Op.PROCESS_STARTED} == set(by_room.values())


def test_a_class_that_is_missing_is_reported_absent() -> None:
    recorder = Recorded()
    module: Any = type(sys)("conn")
    take_module(module, recorder)
    told = [(row.attr("seam"), row.attr("state")) for row in recorder.of(Op.SEAM_INSTALLED)]
    assert told == [(seam, "absent") for seam in (*SEAM_NAMES, "sender", "receiver")]


def module_of() -> Any:
    module: Any = type(sys)("conn")
    exec(ENGINE, module.__dict__)
    return module


def test_subclasses_that_come_later_are_recorded_once() -> None:
    module, recorder = module_of(), Recorded()
    take_module(module, recorder)

    class Nixl(module.CommonKVManager):  # type: ignore[misc, name-defined]
        def update_status(self, bootstrap_room: int, status: int) -> None:
            if self.request_status.get(bootstrap_room) != State.FAILED:
                super().update_status(bootstrap_room, status)

    manager = Nixl()
    for status in (1, 0, 3):
        manager.update_status(5, status)
    manager.update_status(bootstrap_room=6, status=2)
    told = [(row.op, row.room, row.requested, row.old, row.new) for row in recorder.rows
            if row.op in (Op.STATUS_WRITTEN, Op.STATUS_REFUSED)]  # fmt: skip
    assert told == [
        (Op.STATUS_WRITTEN, 5, 1, -1, 1), (Op.STATUS_WRITTEN, 5, 0, 1, 0),
        (Op.STATUS_REFUSED, 5, 3, 0, None), (Op.STATUS_WRITTEN, 6, 2, -1, 2),
    ]  # fmt: skip


def test_a_base_that_watches_its_subclasses_still_does() -> None:
    recorder, seen = Recorded(), []
    module = module_of()

    class Watching(module.CommonKVManager):  # type: ignore[misc, name-defined]
        def __init_subclass__(cls, **kwargs: Any) -> None:
            seen.append((cls.__name__, kwargs))

    module.CommonKVManager = Watching
    take_module(module, recorder)

    class Later(Watching, mark=1):
        pass

    assert seen == [("Later", {"mark": 1})]


def test_a_table_of_an_unknown_kind_is_reported_absent_when_it_comes() -> None:
    """As SGLang's consensus store does, which replaces the dictionary later."""
    module, recorder = module_of(), Recorded()
    take_module(module, recorder)

    class Store(dict):  # type: ignore[type-arg]
        pass

    manager = module.CommonKVManager()
    manager.request_status = store = Store()
    manager.update_status(5, 1)
    assert manager.request_status is store and store == {5: 1}
    told = [(row.attr("state"), row.attr("where")) for row in recorder.of(Op.SEAM_INSTALLED)
            if row.attr("seam") == "status"]  # fmt: skip
    assert told == [("installed", "manager.request_status"), ("absent", "manager.request_status is a Store")]


def test_the_engines_own_errors_pass_through() -> None:
    module, recorder = module_of(), Recorded()
    take_module(module, recorder)
    manager = module.CommonKVManager()
    with pytest.raises(TypeError):
        module.CommonKVSender()
    with pytest.raises(TypeError):
        manager.update_status(1, 2, 3)
    with pytest.raises(TypeError):
        manager.update_status([], 2)
    sender = module.CommonKVSender(manager, "a", 7)
    sender.clear()
    with pytest.raises(KeyError):
        sender.poll()
    with pytest.raises(AttributeError):
        _ = module.CommonKVSender.__new__(module.CommonKVSender).conclude_state
    assert recorder.here.call is None and not recorder.here.in_write
    assert not recorder.troubles


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_manifest_says_only_what_is_true(role: str) -> None:
    module, recorder = module_of(), Recorded()
    take_module(module, recorder)
    module.CommonKVManager(role)
    states = {row.attr("seam"): row.attr("state") for row in recorder.of(Op.SEAM_INSTALLED)}
    installed = {seam for seam, state in states.items() if state == "installed"}
    side = "sender" if role == "prefill" else "receiver"
    assert installed == {"status", "status_call", "peers", "peers_inner", side}


def test_the_recorder_brings_only_the_standard_library() -> None:
    code = """
        import sys
        before = set(sys.modules)
        import tracekv.record, tracekv.record.install
        found = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(found - set(sys.stdlib_module_names) - {"tracekv"}))
    """
    done = python(code)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_the_entry_point_is_the_plugin() -> None:
    found = [point for point in entry_points(group="sglang.srt.plugins") if point.name == "tracekv"]
    if not found:
        pytest.skip("tracekv is not installed here, only on the path")
    assert found[0].value == "tracekv.record.install:plugin"


@pytest.mark.sglang
@pytest.mark.parametrize("build", ["0.5.14", "0.5.16"])
def test_sglangs_own_loader_finds_us(build: str, tmp_path: Path) -> None:
    if not entry_points(group="sglang.srt.plugins"):
        pytest.skip("tracekv is not installed here, only on the path")
    source = find_source(parse_build(build))
    code = f"""
        from tracekv.replay.rigs import stubs
        stubs.install({str(source)!r})
        from sglang.srt.plugins import load_plugins
        from tracekv.record import install
        load_plugins()
        load_plugins()
        print(len(install._recording))
    """
    done = python(code, TRACEKV_SPOOL=str(tmp_path / "spool"))
    assert done.stdout == "1\n", done.stderr
    assert len(rows(tmp_path / "spool", Op.PROCESS_STARTED)) == 1
