"""A quick sample of test_worker_kills: a few killed workers."""

from tests.faults.worker_kills import assert_kills_hit, kill_at_random
from tests.support.worker_processes import seeded


async def test_a_few_killed_workers_lose_no_job_and_complete_none_twice(harness):
    await kill_at_random(harness, jobs=400, kills=3, random=seeded())
    assert_kills_hit(harness, 3)
