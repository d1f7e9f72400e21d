"""Plans: the same seed gives the same plan, and every plan has some of each kind of fault."""

import pytest

from tests.faults.prove.plan import LEAST, make_plan
from tests.support.job_records import PROTOCOLS


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
