"""Locks are kept whatever handlers do, and their loss is never silent."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from corral.core.job import JobState
from corral.core.ports import Profile
from corral.errors import JobCancelled
from corral.protocols.bullmq.broker import SCRIPTS
from corral.worker import Happening
from tests.support.polling import becomes_true
from tests.support.proxy import Proxy, runs_script
from tests.support.workers import AT_ONCE, Shop

EXTEND = runs_script(SCRIPTS["extend"].sha)
TURN = runs_script(SCRIPTS["turn"].sha)
SHORT = Profile(name="w", lock_ms=1000, recover_ms=300)
"""A lock of a second, and a sweep for abandoned jobs three times in it."""


@pytest.fixture
async def shop(url):
    shop = Shop(url)
    yield shop
    await shop.close()


async def test_a_handler_that_blocks_the_loop_past_its_lock_keeps_it_and_runs_once(shop):
    runs = []

    @shop.handle("block")
    async def block(job):
        runs.append(job.id)
        time.sleep(3)
        return "done"

    @shop.handle("other")
    async def other(job):
        pass

    ids = await shop.submit("block", 1)
    # the blocked worker, and one in a thread's loop of its own that looks for abandoned jobs meanwhile
    rival = asyncio.create_task(asyncio.to_thread(asyncio.run, recover_for(shop, 3.5)))
    async with shop.worker(profile=SHORT):
        [job] = await shop.ended(*ids)
    await rival
    assert (job.result, job.stalls) == ("done", 0)
    assert runs == ids
    assert shop.metric("bullmq_lost_work_total") == 0


async def recover_for(shop, seconds):
    """Sweep for abandoned jobs as another worker would."""
    async with shop.connections(SHORT)() as connections:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await connections.broker.recover()
            await asyncio.sleep(0.3)


async def test_two_jobs_that_block_for_four_locks_each_complete_once(shop):
    runs = []

    @shop.handle("block")
    async def block(job):
        runs.append(job.id)
        time.sleep(2)

    ids = await shop.submit("block", 1, 2, options=AT_ONCE)
    profile = Profile(name="w", lock_ms=500, recover_ms=200)
    async with shop.worker(profile=profile), shop.worker(profile=profile):
        jobs = await shop.ended(*ids, seconds=15)
    assert [job.state for job in jobs] == [JobState.COMPLETED] * 2
    assert sorted(runs) == sorted(ids)
    assert [job.stalls for job in jobs] == [0, 0]


async def test_a_renewal_that_fails_is_logged_and_counted_and_the_job_goes_on(server):
    with Proxy(server.port) as proxy:
        shop = Shop(server.url, proxy.url)
        release = asyncio.Event()

        @shop.handle("work")
        async def work(job):
            await release.wait()
            return "done"

        with capture_logs() as logs:
            async with shop.worker(profile=Profile(name="w", lock_ms=2000)):
                [job_id] = await shop.submit("work", {})
                assert await becomes_true(lambda: shop.told(Happening.ACTIVE))
                proxy.go_away()
                assert await becomes_true(lambda: shop.metric("bullmq_heartbeat_failure_total") >= 1)
                proxy.come_back()
                renewed = proxy.count(EXTEND)
                assert await becomes_true(lambda: proxy.count(EXTEND) > renewed)
                release.set()
                [job] = await shop.ended(job_id)
        assert job.result == "done"
        text = f"failed to extend lock for job {job_id}: "
        line = next(log for log in logs if log["event"].startswith(text))
        assert (line["log_level"], line["queue"]) == ("error", "work")
        assert shop.metric("bullmq_heartbeat_total") > shop.metric("bullmq_heartbeat_failure_total")
        await shop.close()


async def test_a_lost_lock_is_told_to_the_handler_and_the_late_outcome_is_refused_and_reported(shop, server):
    release, views = asyncio.Event(), []

    @shop.handle("work")
    async def work(job):
        views.append(job)
        await release.wait()

    with capture_logs() as logs:
        async with shop.worker(profile=Profile(name="w", lock_ms=1000)):
            [job_id] = await shop.submit("work", {})
            assert await becomes_true(lambda: views)
            with server.connect() as client:
                client.set(f"bull:work:{job_id}:lock", "someone-else")
            assert await becomes_true(lambda: views[0].lost)
            release.set()
            assert await becomes_true(lambda: shop.told(Happening.LOST))
    [event] = shop.told(Happening.LOST)
    assert event.claim.job.id == job_id
    assert type(event.error).__name__ == "LockStolen"
    assert shop.metric("bullmq_lost_work_total") == 1
    assert shop.metric("bullmq_lock_lost_total") == 1
    assert shop.metric("corral_jobs_total", outcome="completed") == 0
    assert any(log["event"].startswith("lost work") and log["job"] == job_id for log in logs)
    assert (await shop.job(job_id)).state is JobState.ACTIVE


async def test_after_a_gap_longer_than_the_lock_a_claim_is_renewed_before_it_is_settled(server):
    with Proxy(server.port) as proxy:
        shop = Shop(server.url, proxy.url)
        begun, release = asyncio.Event(), asyncio.Event()

        @shop.handle("work")
        async def work(job):
            begun.set()
            await release.wait()

        async with shop.worker(profile=Profile(name="w", lock_ms=30_000)):
            [job_id] = await shop.submit("work", {})
            await begun.wait()
            before = len(proxy.commands)
            shop.offset_ms += 31_000  # the machine slept: only the wall clock saw it
            release.set()
            [job] = await shop.ended(job_id)
        assert job.state is JobState.COMPLETED
        sent = [c for c in proxy.commands[before:] if EXTEND(c) or TURN(c)]
        assert EXTEND(sent[0])
        assert shop.told(Happening.LOST) == []
        await shop.close()


async def test_a_lock_that_went_in_the_gap_is_lost_work_and_its_outcome_is_not_sent(server):
    with Proxy(server.port) as proxy:
        shop = Shop(server.url, proxy.url)
        begun, release = asyncio.Event(), asyncio.Event()

        @shop.handle("work")
        async def work(job):
            begun.set()
            await release.wait()

        async with shop.worker(profile=Profile(name="w", lock_ms=30_000)):
            [job_id] = await shop.submit("work", {})
            await begun.wait()
            with server.connect() as client:
                client.delete(f"bull:work:{job_id}:lock")
            shop.offset_ms += 31_000
            release.set()
            assert await becomes_true(lambda: shop.told(Happening.LOST))
        assert shop.metric("bullmq_lost_work_total") == 1
        await shop.close()


async def test_a_cancelled_job_is_told_and_may_end_itself(shop):
    begun = asyncio.Event()

    @shop.handle("work")
    async def work(job):
        begun.set()
        await job.wait_cancelled()
        assert job.cancelled
        raise JobCancelled

    async with shop.worker(profile=Profile(name="w", lock_ms=1000)):
        [job_id] = await shop.submit("work", {}, options=AT_ONCE)
        await begun.wait()
        assert await shop.operator.cancel([job_id]) == [job_id]
        [job] = await shop.ended(job_id)
    assert (job.state, job.reason) == (JobState.DEAD, "cancelled")


async def test_a_cancelled_job_in_a_thread_is_told_even_while_the_loop_is_blocked(shop):
    told = []

    @shop.handle("work")
    def work(job):
        told.append(job.wait_cancelled(8))

    @shop.handle("block")
    async def block(job):
        deadline = time.monotonic() + 5
        while not job.cancelled and time.monotonic() < deadline:
            time.sleep(0.01)
        told.append(job.cancelled)

    canceller = asyncio.create_task(asyncio.to_thread(asyncio.run, cancel_when_active(shop.worker_url, 2)))
    ids = await shop.submit("work", 1) + await shop.submit("block", 2)
    async with shop.worker(profile=Profile(name="w", lock_ms=1000)):
        await shop.ended(*ids)
    await canceller
    assert told == [True, True]


async def cancel_when_active(url, count):
    """Cancel from another loop: the worker's own is blocked."""
    shop = Shop(url)
    while len(active := await shop.inspector.jobs(JobState.ACTIVE)) < count:
        await asyncio.sleep(0.01)
    await shop.operator.cancel([job.id for job in active])
    await shop.close()
