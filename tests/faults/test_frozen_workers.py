"""Workers that stand still for longer than their locks live, and handlers that stop only the loop."""

import pytest

from tests.support.fault_harness import FaultHarness
from tests.support.polling import becomes_true, eventually, outlast
from tests.support.worker_processes import WorkerProcess, scaled, seeded, worker_pool

pytestmark = pytest.mark.faults

LOCK_MS = 2000
HELD = 5
END_S = 60.0
SHORT = {"lock_ms": LOCK_MS, "recover_ms": LOCK_MS // 4, "max_stalls": 1_000_000}


async def freeze_with_work(harness: FaultHarness, process: WorkerProcess) -> None:
    """Stop the only worker in the middle of its jobs."""
    await harness.add(HELD, how="nap", seconds=0.3, is_announced=True)
    assert eventually(lambda: len(process.jobs_reported("began")) == HELD)
    process.freeze()


async def test_the_late_settlements_of_a_frozen_worker_are_refused_and_reported_as_lost_work(harness):
    with worker_pool(harness.server.url, harness.protocol, 1, **SHORT) as pool:
        [frozen] = pool.processes
        await freeze_with_work(harness, frozen)
        pool.start().wait_ready()
        assert await harness.falls_to(0, END_S)
        frozen.thaw()
        assert await becomes_true(lambda: len(frozen.jobs_reported("lost")) == HELD)
    records = harness.assert_each_completed_once()
    assert sorted(frozen.jobs_reported("lost")) == sorted(records)
    for record in records.values():
        # it was found abandoned once, and ended once; the late ending is nowhere
        assert (record.recoveries, record.attempts) == (1, 1)


async def test_a_frozen_worker_begins_nothing_whose_lock_it_has_lost(harness):
    with worker_pool(harness.server.url, harness.protocol, 1, **SHORT) as pool:
        [frozen] = pool.processes
        # while the first blocks the loop, the others are claimed and wait for it
        await harness.add(HELD, how="block", seconds=0.2, is_announced=True)
        assert eventually(lambda: frozen.jobs_reported("began"))
        frozen.freeze()
        pool.start().wait_ready()
        assert await harness.falls_to(0, END_S)
        frozen.thaw()
        assert await becomes_true(lambda: len(frozen.jobs_reported("lost")) == HELD)
    assert len(frozen.jobs_reported("began")) == 1
    for record in harness.assert_each_completed_once().values():
        assert (record.recoveries, record.attempts) == (1, 1)


async def test_a_worker_that_was_frozen_alone_ends_each_job_once(harness):
    with worker_pool(harness.server.url, harness.protocol, 1, **SHORT) as pool:
        [frozen] = pool.processes
        await freeze_with_work(harness, frozen)
        await outlast(3 * LOCK_MS / 1000)
        frozen.thaw()
        assert await harness.falls_to(0, END_S)
    for job_id, record in harness.assert_each_completed_once().items():
        # an attempt that was not accepted is reported as lost, and only such
        assert frozen.jobs_reported("lost").count(job_id) == record.recoveries
        assert record.attempts == 1


@pytest.mark.timeout(300)
async def test_workers_frozen_at_random_complete_no_job_twice(harness):
    random, freezes = seeded(), scaled(8, least=3)
    with worker_pool(harness.server.url, harness.protocol, 3, **SHORT) as pool:
        for _ in range(freezes):
            await harness.add(200, how="nap", seconds=0.02)
            assert await harness.falls_to(100, END_S)
            process = random.choice(pool.processes)
            process.freeze()
            await outlast(random.uniform(1.0, 2.0) * LOCK_MS / 1000)
            process.thaw()
        assert await harness.falls_to(0, END_S)
        records = harness.assert_each_completed_once()
        # every start that did not end its job is reported by its worker
        vain = sum(record.recoveries for record in records.values())
        assert await becomes_true(
            lambda: sum(len(process.jobs_reported("lost")) for process in pool.processes) == vain
        )
    print(f"{freezes} freezes, {vain} late settlements refused")
    assert vain >= freezes


async def test_handlers_that_block_the_loop_for_ten_locks_run_once(harness):
    ten_locks = 10 * LOCK_MS / 1000
    # one blocks asleep, one at work under the GIL, and the third looks for what was abandoned
    with worker_pool(harness.server.url, harness.protocol, 3, concurrency=1, **SHORT) as pool:
        await harness.add(1, how="block", seconds=ten_locks)
        await harness.add(1, how="spin", seconds=ten_locks)
        assert await harness.falls_to(0, END_S)
        assert [process.jobs_reported("lost") for process in pool.processes] == [[], [], []]
    for record in harness.assert_each_completed_once().values():
        assert (record.starts, record.recoveries, record.attempts) == (1, 0, 1)
