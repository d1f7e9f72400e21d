"""A handler that ends its process: only its own job ends dead."""

import pytest

from corral import JobState
from tests.support.polling import eventually
from tests.support.worker_processes import worker_pool

pytestmark = pytest.mark.faults

SHORT = {"lock_ms": 1000, "recover_ms": 300}
INNOCENT = 60
POISON = 3


@pytest.mark.timeout(300)
async def test_jobs_that_end_their_process_take_no_other_along(harness):
    await check_only_poison_ends(harness, POISON, nap=0.2, die=0.05)


@pytest.mark.timeout(300)
async def test_a_job_that_ends_its_process_late_takes_no_other_along(harness):
    # each runs for longer than claiming waits for it
    await check_only_poison_ends(harness, 1, nap=0.4, die=0.7, alone_s=0.2)


async def check_only_poison_ends(harness, count: int, nap: float, die: float, **profile: float) -> None:
    with worker_pool(harness.server.url, harness.protocol, 1, concurrency=16, **SHORT, **profile) as pool:
        # as many attempts as an innocent job may stall, and no more
        options = {"attempts": 3} if harness.protocol == "bridgemq" else {}
        innocent, poison = [], []
        for _ in range(count):
            poison += await harness.add(1, options, how="die", seconds=die)
            innocent += await harness.add(INNOCENT // POISON, options, how="nap", seconds=nap)
        deaths = 0
        while not await harness.falls_to(0, 0.5):
            if not pool.processes[-1].is_alive:
                deaths += 1
                assert deaths < 40
                pool.start().wait_ready()
        assert eventually(lambda: not pool.processes[0].is_alive)
    states = {job_id: (await harness.queue.job(job_id)).state for job_id in innocent + poison}
    assert [job_id for job_id in innocent if states[job_id] is not JobState.COMPLETED] == []
    assert {states[job_id] for job_id in poison} == {JobState.DEAD}
