"""What `durability` promises, under its faults; `python -m tests.faults.durability` has them all."""

import pytest

from tests.faults.durability import LATE, POWER, Setting, faults_of, measure

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    ("weak", "strong", "fault"),
    [
        (Setting("memory", "everysec"), Setting("disk", "always"), POWER),
        (Setting("memory", None, has_replica=True), Setting("replicas", None, has_replica=True), LATE),
    ],
)
def test_what_was_confirmed_is_there_after_the_fault(weak: Setting, strong: Setting, fault: str) -> None:
    if fault not in faults_of(strong):
        pytest.skip("a power failure is simulated by strace, which is not installed")
    lost = measure(weak, fault, 6000, 2)
    assert lost.lost > 0, "the fault takes what is not confirmed"
    kept = measure(strong, fault, 6000, 2)
    assert (kept.lost, kept.acknowledged >= 6000) == (0, True)
