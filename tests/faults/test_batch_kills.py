"""A worker process is killed in the middle of a batch: each of its jobs runs once more, to its end."""

import pytest

from tests.faults.test_poison import check_only_poison_ends
from tests.support.polling import becomes_true
from tests.support.worker_processes import worker_pool

BATCH = 8
SHORT = {"lock_ms": 600, "recover_ms": 200}


async def test_each_job_of_a_batch_whose_worker_is_killed_runs_once_more(harness):
    ids = await harness.add(BATCH, how="nap", seconds=0)
    url, protocol = harness.server.url, harness.protocol
    with worker_pool(url, protocol, 1, batch=BATCH, holds=True, **SHORT) as pool:
        [process] = pool.processes
        assert await becomes_true(lambda: len(process.jobs_reported("began")) == BATCH, 30)
        process.kill()
    with worker_pool(url, protocol, 1, batch=BATCH, **SHORT) as pool:
        assert await harness.falls_to(0, 60), f"{await harness.left()} of {BATCH} jobs never ended"
        [process] = pool.processes
        assert await becomes_true(lambda: len(process.jobs_reported("began")) >= BATCH, 30)
        assert sorted(process.jobs_reported("began")) == sorted(ids)
    records = harness.assert_each_completed_once()
    assert {record.recoveries for record in records.values()} == {1}


@pytest.mark.faults
@pytest.mark.timeout(300)
async def test_a_job_that_ends_its_process_takes_no_other_of_its_batch_along(harness):
    await check_only_poison_ends(harness, 3, nap=0.05, die=0.05, batch=BATCH)
