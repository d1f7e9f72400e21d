"""A quick sample of test_connection_cuts: some commands cut at random."""

from tests.faults.connection_cuts import expected, storm
from tests.support.worker_processes import seeded


async def test_commands_cut_anywhere_lose_nothing_and_spend_no_attempt_twice(harness, proxy):
    cut = await storm(harness, proxy, jobs=600, random=seeded())
    assert cut >= 10
    harness.assert_attempts(expected(harness))
