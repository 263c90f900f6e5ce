"""Which builds the rows of a process allow."""

import pytest

from tests.memory import PIN, trace
from tracekv.detect.policies import fitting
from tracekv.machine import POLICIES
from tracekv.rooms import rooms_of

EVERY = set(POLICIES) - {"mooncake"}
FORKS = {name for name in EVERY if "+fork" in name}
MAXES = {"0.5.14", "0.5.14+fork", "0.5.14+fork+fix-b"}


def allowed(line: str, label: "str | None" = None, backend: str = "nixl") -> set[str]:
    lives = [life for room in rooms_of(trace(line)).values() for life in room.prefill]
    names = fitting(label, backend, lives).policies
    return {name.replace(" with a bootstrap timeout", "") for name in names}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("S:init B:info", EVERY),
        (PIN, {"0.5.14+fork", "0.5.14+fork+fix-a"}),  # no reads: a lost update would look the same
        ("S:init B:info B:abort B:set0 B:pop B:ctl", FORKS),
        ("S:init B:info B:abort B:set0 B:ctl", EVERY - {"0.5.14"}),
        ("S:init B:info B:meta S:set0 W:set3", EVERY),  # what the worker had read is not known
        ("S:init B:info S:set0 W:get W:set3", MAXES),  # and the worker had read that it was Failed
        ("S:init B:info W:get S:set0 W:set3", EVERY),  # the worker had read something else: a lost update
        ("S:init B:info W:get S:set0 W:get W:set3", EVERY),  # as the override of 0.5.16 reads twice
        ("S:init B:info S:enq0* B:pop W:deq0 W:skip0", {"0.5.14+fork", "0.5.14+fork+fix-a"}),
        ("S:init B:info S:enq0* B:pop W:deq0 W:set0 W:skip0", EVERY),  # it concluded before it went on
    ],
)
def test_what_the_rows_allow(line: str, names: set[str]) -> None:
    assert allowed(line) == names


def test_a_label_is_believed_until_the_rows_contradict_it() -> None:
    assert allowed("S:init B:info", "0.5.16") == {"0.5.16"}
    assert allowed("S:init B:info B:abort B:set0 B:pop B:ctl", "0.5.16") == FORKS


def test_mooncake_is_known_by_its_backend() -> None:
    lives = list(rooms_of(trace("S:init B:info"))[7].prefill)
    assert fitting("0.5.14", "mooncake", lives).policies == {"0.5.14": POLICIES["mooncake"]}


def test_an_unknown_build_is_tried_with_and_without_the_bootstrap_timeout() -> None:
    policies = fitting(None, "nixl", []).policies.values()
    assert {policy.bootstrap_timeout for policy in policies} == {True, False}
