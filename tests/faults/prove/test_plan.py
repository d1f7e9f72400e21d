"""Plans: the same seed gives the same plan, and every plan has some of each kind of fault."""

import pytest

from tests.faults.prove.plan import LEAST, NODE, NODE_ACTIONS, make_plan
from tests.support.job_records import PROTOCOLS
from tests.support.node import why_no_node


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_seed_gives_the_same_plan_and_another_seed_another(protocol: str) -> None:
    assert make_plan(protocol, 7, 20.0) == make_plan(protocol, 7, 20.0)
    assert make_plan(protocol, 7, 20.0) != make_plan(protocol, 8, 20.0)


@pytest.mark.parametrize("seconds", [4.0, 100.0])
def test_a_plan_has_some_of_each_fault_within_its_time(seconds: float) -> None:
    faults = make_plan("bullmq", 7, seconds).faults
    assert {fault.action for fault in faults} == LEAST.keys()
    assert all(0 < fault.at_s <= seconds for fault in faults)
    assert list(faults) == sorted(faults, key=lambda fault: fault.at_s)


def test_a_long_plan_has_more_faults_than_a_short_one() -> None:
    assert len(make_plan("streams", 7, 100.0).faults) > 3 * len(make_plan("streams", 7, 4.0).faults)


@pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))
def test_a_worker_in_node_takes_part_in_bullmq_and_is_killed_and_frozen() -> None:
    plans = {protocol: make_plan(protocol, 7) for protocol in PROTOCOLS}
    assert {protocol for protocol, plan in plans.items() if plan.has_node} == {"bullmq"}
    of_node = {fault.action for fault in plans["bullmq"].faults if fault.target == NODE}
    assert of_node == set(NODE_ACTIONS)
