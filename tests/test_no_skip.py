"""Where CI says so, nothing is skipped: neither a test nor a whole module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "called": "import pytest\ndef test_it(): pytest.skip('why')",
    "marked": "import pytest\n@pytest.mark.skipif(True, reason='why')\ndef test_it(): pass",
    "module": "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass",
}


@pytest.mark.parametrize("how", SKIPS)
def test_a_skip_is_a_failure_where_the_switch_is_set(how: str, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(SKIPS[how] + "\n")
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    for switch in ("", "1"):
        environment = os.environ | {"TRACEKV_NO_SKIP": switch}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode == 0) == (switch == ""), done.stdout
