"""What some tests need beyond the core, and the rule that nothing is skipped silently.

A test that needs NIXL or SGLang's packages is marked, and is skipped with the reason where they are
not here.  With ``TRACEKV_NO_SKIP=1`` every skip is a failure.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SGLANG_VERSIONS = ("0.5.14", "0.5.16")


def _no_nixl() -> str | None:
    here = any(importlib.util.find_spec(name) for name in ("nixl_cu12", "nixl_cu13", "nixl"))
    return None if here else "needs NIXL: pip install --no-deps nixl-cu12==1.5.1"


def _no_sglang() -> str | None:
    from tracekv.errors import TracekvError
    from tracekv.replay.rigs.build import find_source, parse_build
    from tracekv.replay.rigs.engine import check_packages

    try:
        check_packages()
        for version in SGLANG_VERSIONS:
            find_source(parse_build(version), fetch=True)
    except TracekvError as error:
        return f"needs SGLang's packages: {error}"
    return _no_nixl()


NEEDS: dict[str, Callable[[], str | None]] = {"nixl": _no_nixl, "sglang": _no_sglang}
_missing: dict[str, str | None] = {}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, missing in NEEDS.items():
        if item.get_closest_marker(mark) is None:
            continue
        if mark not in _missing:
            _missing[mark] = missing()
        reason = _missing[mark]
        if reason is not None:
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("TRACEKV_NO_SKIP"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and TRACEKV_NO_SKIP is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """A module that skips itself is never run, so the hook above does not see it."""
    report = yield
    if report.skipped and os.environ.get("TRACEKV_NO_SKIP"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and TRACEKV_NO_SKIP is set: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of the sample traces."""
    return Path(__file__).parent.parent / "sample_traces"
