"""Corral keeps its promises under faults: in a short run here, in long ones by `make faults`."""

from pathlib import Path

import pytest

from tests.faults.checker import as_text, read
from tests.faults.checker.records import kind
from tests.faults.prove import Finding, make_plan, prove
from tests.support.job_records import PROTOCOLS
from tests.support.worker_processes import scaled, seeded

ALWAYS = {"origin", "refused", "place", "end_once", "attempts", "result", "events", "leaks"}
"""The rules that every run must have judged, however slow the machine is."""
OF_PROTOCOL = {
    "bullmq": {"lock", "delay", "pause", "schedule", "flow", "rate_limit", "concurrency"},
    "bridgemq": {"lock", "delay", "pause", "schedule", "concurrency"},
    "streams": set[str](),
}
OF_LONG_RUNS = {
    "bullmq": {"fifo", "priority", "fence", "recovery"},
    "bridgemq": {"fifo", "priority", "recovery"},
    "streams": {"fifo", "recovery"},
}
"""Those that need a moment without a fault, or a fault at a certain moment."""
LONG_S = 60.0
RECORDED = {
    "invoke",
    "ok",
    "refused",
    "start",
    "extended",
    "end",
    "settled",
    "event",
    "fault",
    "state",
    "key",
}
"""What every run has: a harness that stopped recording some of it would prove less, in silence."""
OF_NODE = {"start", "end", "settled"}
FIVE_MINUTES_S = 300.0


def assert_holds(finding: Finding) -> None:
    """No rule is broken, and those that the run is about had something to judge."""
    assert finding.report.ok, as_text(finding.report)
    protocol = finding.plan.protocol
    rules = ALWAYS | OF_PROTOCOL[protocol]
    if finding.plan.seconds >= LONG_S:
        rules |= OF_LONG_RUNS[protocol]
    assert not rules & set(finding.report.not_judged), as_text(finding.report)
    records = read([finding.folder]).records
    kinds = {kind(record) for record in records}
    assert kinds >= RECORDED, f"nobody wrote {sorted(RECORDED - kinds)}"
    if finding.plan.has_node:
        kinds = {kind(record) for record in records if record.process.startswith("node-worker")}
        assert kinds >= OF_NODE, f"no worker in Node wrote {sorted(OF_NODE - kinds)}"
    print(as_text(finding.report))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_short_run_under_faults_breaks_no_promise(protocol: str, tmp_path: Path) -> None:
    # always the same plan: another seed is `corral prove --seed`
    assert_holds(prove(make_plan(protocol, seed=7), tmp_path))


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_five_minutes_under_faults_break_no_promise(protocol: str, tmp_path: Path) -> None:
    seconds = scaled(int(FIVE_MINUTES_S / len(PROTOCOLS)), least=4)
    finding = prove(make_plan(protocol, seeded().getrandbits(32), seconds), tmp_path)
    assert_holds(finding)
