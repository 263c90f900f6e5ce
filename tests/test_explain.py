from dataclasses import replace

from tests.memory import PIN, Memory, trace
from tracekv.event import Event, Op
from tracekv.explain import merge
from tracekv.finding import Finding
from tracekv.story import EPOCH_NS, preamble, recording, story
from tracekv.verdict import analyze

PAIR = PIN.replace("B:info", "D:open D:info B:info").replace("B:abort", "D:abort B:abort")


def found(kind: str, line: str = PIN) -> Finding:
    return next(each for each in analyze(trace(line)).findings if each.kind == kind)


def test_the_story_is_numbered_and_holds_no_reads() -> None:
    story_ = found("pinned", PIN.replace("W:deq1", "W:get W:hasinfo W:deq1")).story
    assert [step.n for step in story_] == list(range(1, len(story_) + 1))
    assert not {step.event.op for step in story_} & {Op.STATUS_CHECKED, Op.PEER_CHECKED}


def test_the_resurrecting_write_is_decisive_and_its_order_proved() -> None:
    steps = [step for step in found("resurrection").story if step.decisive]
    failed, lifted = steps
    assert lifted.text == "worker 0 stores Transferring over Failed"
    assert lifted.why == (
        f"the bootstrap thread's Failed (seq {failed.event.seq}) precedes worker 0's Transferring "
        f"(seq {lifted.event.seq}) in one process"
    )


def test_the_moment_of_the_pin_is_the_skip() -> None:
    last = [step for step in found("pinned").story if step.decisive][-1]
    assert last.event.op == Op.CHUNK_SKIPPED


def test_a_write_that_could_not_be_numbered_at_its_effect_is_ordered_by_what_it_found() -> None:
    rows = recording(PIN)
    lifted = next(row for row in rows if row.op == Op.STATUS_WRITTEN and (row.old, row.new) == (0, 3))
    rows[rows.index(lifted)] = replace(lifted, seq_before=lifted.seq - 5)
    steps = next(each for each in analyze(Memory(rows)).findings if each.kind == "resurrection").story
    (why,) = [step.why for step in steps if step.event.seq == lifted.seq]
    assert why is not None and "came into" in why and "took effect at seq" in why


def test_both_roles_are_told_in_one_story() -> None:
    threads = {step.event.thread for step in found("pinned", PAIR).story}
    assert {"scheduler", "bootstrap", "worker-0", "decode"} <= threads


def skewed(by_ns: int) -> list[Event]:
    """Prefill and decode in two processes, decode's clock off."""
    rows = story(PAIR, seq=100)
    prefill = [row for row in rows if row.thread != "decode"]
    decode = [
        replace(row, process="d", manager=0, wall_ns=(row.wall_ns or EPOCH_NS) + by_ns)
        for row in rows
        if row.thread == "decode"
    ]
    return [*preamble(roles=("prefill",)), *prefill, *preamble(process="d", roles=("decode",)), *decode]


def test_a_message_is_told_before_its_receipt_whatever_the_clocks_say() -> None:
    for skew in (0, 40_000_000, -40_000_000):
        order = [row.op for row in merge(row for row in skewed(skew) if row.room is not None)]
        assert order.index(Op.META_SENT) < order.index(Op.META_RECEIVED)
        assert order.index(Op.ABORT_SENT) < order.index(Op.ABORT_RECEIVED)


def test_rows_of_one_process_keep_its_order_although_the_wall_clock_steps_back() -> None:
    rows = [replace(row, wall_ns=EPOCH_NS - row.seq) for row in story(PIN)]
    assert [row.seq for row in merge(rows)] == [row.seq for row in rows]


def test_order_by_clocks_alone_is_said() -> None:
    (pin,) = [each for each in analyze(Memory(skewed(0))).findings if each.kind == "pinned"]
    assert any("wall clocks alone" in (step.why or "") for step in pin.story)
    assert any("of process d" in step.text for step in pin.story)


def test_the_remedy_names_place_holding_growth_restart_and_fix() -> None:
    remedy = found("pinned").remedy
    parts = ("pid 42 on host h0", "rank 0", "KV pages", "inflight queue", "grow", "restart", "0.5.16")
    for part in parts:
        assert part in remedy


def test_what_a_resurrection_implies() -> None:
    assert "pin: happened" in found("resurrection").implies
    settled = found("resurrection", "S:init B:info B:ctl B:set0 W:set3=1 S:clear").implies
    assert "pin: did not happen" in settled
