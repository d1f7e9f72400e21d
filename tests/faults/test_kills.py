"""Killed workers lose nothing and double nothing."""

import pytest

from tests.faults.kills import assert_kills_hit, kill_at_random
from tests.support.chaos import scaled, seeded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


async def test_workers_killed_at_random_lose_no_job_and_complete_none_twice(arena):
    kills = scaled(200, least=2)
    await kill_at_random(arena, jobs=scaled(20_000, least=200), kills=kills, random=seeded())
    assert_kills_hit(arena, kills)
