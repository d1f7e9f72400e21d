"""Killed workers lose nothing and double nothing."""

import pytest

from tests.faults.worker_kills import assert_kills_hit, kill_at_random
from tests.support.worker_processes import scaled, seeded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


async def test_workers_killed_at_random_lose_no_job_and_complete_none_twice(harness):
    kills = scaled(200, least=2)
    await kill_at_random(harness, jobs=scaled(20_000, least=200), kills=kills, random=seeded())
    assert_kills_hit(harness, kills)
