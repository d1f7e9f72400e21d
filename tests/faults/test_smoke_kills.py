"""A few killed workers: the small sister of test_kills."""

from tests.faults.kills import assert_kills_hit, kill_at_random
from tests.support.chaos import seeded


async def test_a_few_killed_workers_lose_no_job_and_complete_none_twice(arena):
    await kill_at_random(arena, jobs=400, kills=3, random=seeded())
    assert_kills_hit(arena, 3)
