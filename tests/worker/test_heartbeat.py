"""Locks are kept whatever handlers do, and their loss is never silent."""

import asyncio
import time

import pytest

from corral.core.job import JobState
from corral.core.ports import Profile
from corral.errors import JobCancelled
from corral.protocols.bridgemq.scripts import SCRIPTS as BRIDGEMQ_SCRIPTS
from corral.protocols.bullmq.scripts import SCRIPTS
from corral.protocols.streams.scripts import SCRIPTS as STREAMS_SCRIPTS
from corral.worker import WorkerEventKind
from tests.support.logs import capture_logs
from tests.support.polling import becomes_true, block, eventually, outlast, until
from tests.support.proxy import Proxy, ProxyFault, runs_script
from tests.support.worker_harness import AT_ONCE, WorkerHarness

EXTEND = runs_script(SCRIPTS["extend"].sha)
TURN = runs_script(SCRIPTS["turn"].sha)
SHORT = Profile(name="w", lock_ms=1000, recover_ms=300)
"""A lock of a second, and a sweep for abandoned jobs three times in it."""


async def test_a_handler_that_blocks_the_loop_past_its_lock_keeps_it_and_runs_once(harness):
    runs = []

    @harness.handle("block")
    async def handle(job):
        runs.append(job.id)
        block(3)
        return "done"

    @harness.handle("other")
    async def other(job):
        pass

    ids = await harness.submit("block", 1)
    # the blocked worker, and one in a thread's loop of its own that looks for abandoned jobs meanwhile
    rival = asyncio.create_task(asyncio.to_thread(asyncio.run, recover_for(harness, 3.5)))
    async with harness.worker(profile=SHORT):
        [job] = await harness.ended(*ids)
    await rival
    assert (job.result, job.stalls) == ("done", 0)
    assert runs == ids
    assert harness.metric("corral_outcomes_lost_total") == 0


async def recover_for(harness, seconds):
    """Sweep for abandoned jobs as another worker would."""
    async with harness.connections(SHORT)() as connections:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await connections.broker.recover()
            await outlast(0.3)


async def test_two_jobs_that_block_for_four_locks_each_complete_once(harness):
    runs = []

    @harness.handle("block")
    async def handle(job):
        runs.append(job.id)
        block(2)

    ids = await harness.submit("block", 1, 2, options=AT_ONCE)
    profile = Profile(name="w", lock_ms=500, recover_ms=200)
    async with harness.worker(profile=profile), harness.worker(profile=profile):
        jobs = await harness.ended(*ids, seconds=15)
    assert [job.state for job in jobs] == [JobState.COMPLETED] * 2
    assert sorted(runs) == sorted(ids)
    assert [job.stalls for job in jobs] == [0, 0]


async def test_a_renewal_that_fails_is_logged_and_counted_and_the_job_goes_on(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)
        release = asyncio.Event()

        @harness.handle("work")
        async def work(job):
            await release.wait()
            return "done"

        with capture_logs() as logs:
            async with harness.worker(profile=Profile(name="w", lock_ms=2000)):
                [job_id] = await harness.submit("work", {})
                assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
                proxy.go_away()
                assert await becomes_true(lambda: harness.metric("corral_lock_renewal_failures_total") >= 1)
                proxy.come_back()
                renewed = proxy.count(EXTEND)
                assert await becomes_true(lambda: proxy.count(EXTEND) > renewed)
                release.set()
                [job] = await harness.ended(job_id)
        assert job.result == "done"
        text = f"failed to extend lock for job {job_id}: "
        line = next(log for log in logs if log["event"].startswith(text))
        assert (line["log_level"], line["queue"]) == ("error", "work")
        assert harness.metric("corral_lock_renewals_total") > harness.metric(
            "corral_lock_renewal_failures_total"
        )
        await harness.close()


async def test_an_outage_while_every_slot_is_busy_shows_in_the_gauge_and_in_no_duration(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)
        release = asyncio.Event()

        @harness.handle("work")
        async def work(job):
            await release.wait()

        async with harness.worker(profile=Profile(name="w", lock_ms=2000), concurrency=1):
            [job_id] = await harness.submit("work", {})
            assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
            assert harness.metric("corral_redis_up") == 1
            proxy.go_away()
            assert await becomes_true(lambda: harness.metric("corral_redis_up") == 0)
            assert harness.metric("corral_redis_reconnects_total") >= 1
            proxy.come_back()
            assert await becomes_true(lambda: harness.metric("corral_redis_up") == 1)
            release.set()
            await harness.ended(job_id)
        tried = harness.metric("corral_lock_renewals_total")
        failed = harness.metric("corral_lock_renewal_failures_total")
        assert harness.metric("corral_lock_renewal_duration_seconds_count") == tried - failed
        await harness.close()


async def test_an_expired_lock_is_a_renewal_that_failed(harness, server):
    release, views = asyncio.Event(), []

    @harness.handle("work")
    async def work(job):
        views.append(job)
        await release.wait()

    async with harness.worker(profile=Profile(name="w", lock_ms=1000, recover_ms=60_000)):
        [job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: views)
        assert harness.metric("corral_lock_renewal_failures_total") == 0
        with server.connect() as client:
            client.delete(f"bull:work:{job_id}:lock")
        assert await becomes_true(lambda: views[0].lost)
        # counted by the heartbeat's thread after the handler can see it
        assert await becomes_true(lambda: harness.metric("corral_lock_renewal_failures_total") >= 1)
        release.set()


async def test_a_lost_lock_is_told_to_the_handler_and_the_late_outcome_is_refused_and_reported(
    harness, server
):
    release, views = asyncio.Event(), []

    @harness.handle("work")
    async def work(job):
        views.append(job)
        await release.wait()

    with capture_logs() as logs:
        async with harness.worker(profile=Profile(name="w", lock_ms=1000)):
            [job_id] = await harness.submit("work", {})
            assert await becomes_true(lambda: views)
            with server.connect() as client:
                client.set(f"bull:work:{job_id}:lock", "someone-else")
            assert await becomes_true(lambda: views[0].lost)
            release.set()
            assert await becomes_true(lambda: harness.reported(WorkerEventKind.LOST))
    [event] = harness.reported(WorkerEventKind.LOST)
    assert event.claim.job.id == job_id
    assert type(event.error).__name__ == "LockStolen"
    assert harness.metric("corral_outcomes_lost_total") == 1
    assert harness.metric("corral_locks_lost_total") == 1
    assert harness.metric("corral_jobs_total", outcome="completed") == 0
    assert any(log["event"].startswith("lost work") and log["job"] == job_id for log in logs)
    assert (await harness.read(job_id)).state is JobState.ACTIVE


async def test_after_a_gap_longer_than_the_lock_a_claim_is_renewed_before_it_is_settled(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)
        begun, release = asyncio.Event(), asyncio.Event()

        @harness.handle("work")
        async def work(job):
            begun.set()
            await release.wait()

        async with harness.worker(profile=Profile(name="w", lock_ms=30_000)):
            [job_id] = await harness.submit("work", {})
            await begun.wait()
            before = len(proxy.commands)
            harness.clock.offset_ms += 31_000  # the machine slept: only the wall clock saw it
            release.set()
            [job] = await harness.ended(job_id)
        assert job.state is JobState.COMPLETED
        sent = [c for c in proxy.commands[before:] if EXTEND(c) or TURN(c)]
        assert EXTEND(sent[0])
        assert harness.reported(WorkerEventKind.LOST) == []
        await harness.close()


async def test_a_lock_that_went_in_the_gap_is_lost_work_and_its_outcome_is_not_sent(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)
        begun, release = asyncio.Event(), asyncio.Event()

        @harness.handle("work")
        async def work(job):
            begun.set()
            await release.wait()

        async with harness.worker(profile=Profile(name="w", lock_ms=30_000)):
            [job_id] = await harness.submit("work", {})
            await begun.wait()
            with server.connect() as client:
                client.delete(f"bull:work:{job_id}:lock")
            harness.clock.offset_ms += 31_000
            release.set()
            assert await becomes_true(lambda: harness.reported(WorkerEventKind.LOST))
        assert harness.metric("corral_outcomes_lost_total") == 1
        await harness.close()


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_claim_whose_answer_came_late_is_renewed_before_its_handler_begins(server, kind):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)
        renewed = []

        if kind == "async":

            @harness.handle("work")
            async def work(job):
                renewed.append(proxy.count(EXTEND) - before)

        else:

            @harness.handle("work")
            def work_in_thread(job):
                renewed.append(proxy.count(EXTEND) - before)

        await harness.submit("work", 1, 2, 3)
        proxy.rule(TURN, ProxyFault.HELD)
        starting = asyncio.create_task(start(harness, lock_ms=30_000))
        assert await becomes_true(lambda: proxy.count(TURN))
        harness.clock.offset_ms += 31_000  # the machine slept while the answer was on its way
        before = proxy.count(EXTEND)
        proxy.let_go()
        worker = await starting
        assert await becomes_true(lambda: len(harness.reported(WorkerEventKind.SETTLED)) == 3)
        assert all(renewed)
        await worker.stop(0)
        await harness.close()


async def test_claims_whose_answer_is_on_its_way_are_renewed(server, each_harness):
    """As where a handler blocks the loop that should read it."""
    turn = runs_script(turn_script(each_harness.protocol.spec.name))
    starts = []

    async def work(job):
        starts.append(job.id)

    with Proxy(server.port) as proxy:
        harness = each_harness
        harness.worker_url = proxy.url
        harness.handlers.add(harness.job_name, work)
        rival = harness.broker("rival", lock_ms=400, recover_ms=100, max_stalls=5)
        await rival.turn([], 1)  # from now on the server knows the script, and its first call claims
        ids = await harness.submit(harness.job_name, {}, {}, {})
        proxy.rule(turn, ProxyFault.HELD)
        starting = asyncio.create_task(start(harness, lock_ms=400, recover_ms=100, max_stalls=5))
        assert await becomes_true(lambda: proxy.count(turn))
        for _ in range(10):
            await outlast(0.12)
            assert (await rival.recover()).requeued == []
        proxy.let_go()
        worker = await starting
        assert [job.state for job in await harness.ended(*ids)] == [JobState.COMPLETED] * 3
        await worker.stop(0)
    assert sorted(starts) == sorted(ids)
    assert harness.reported(WorkerEventKind.LOST) == []


def turn_script(protocol):
    scripts = {"bullmq": SCRIPTS, "streams": STREAMS_SCRIPTS, "bridgemq": BRIDGEMQ_SCRIPTS}
    return scripts[protocol]["turn"].sha


async def start(harness, **profile):
    worker = harness.new_worker(profile=Profile(name="w", **profile))
    await worker.start()
    return worker


async def test_a_claim_that_was_lost_before_its_handler_began_is_not_begun(harness, server):
    begun = []

    @harness.handle("work")
    async def work(job):
        begun.append(job.id)
        if len(begun) == 1:
            # the others are claimed, and wait for this to end
            with server.connect() as client:
                client.set(f"bull:work:{ids[2]}:lock", "someone-else")
            harness.clock.offset_ms += 31_000  # the machine sleeps
            block(0.01)

    ids = await harness.submit("work", 1, 2, 3, 4)
    async with harness.worker():
        assert await becomes_true(lambda: len(harness.reported(WorkerEventKind.SETTLED)) == 3)
        [event] = harness.reported(WorkerEventKind.LOST)
        assert (event.claim.job.id, event.outcome) == (ids[2], None)
        assert harness.metric("corral_locks_lost_total") == 1
        # its slot is free again
        await harness.ended(*await harness.submit("work", *range(10)))
    assert ids[2] not in begun
    assert (await harness.read(ids[2])).state is JobState.ACTIVE


async def test_a_late_claim_is_given_back_when_the_worker_stops(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)
        begun = []

        @harness.handle("work")
        async def work(job):
            begun.append(job.id)
            harness.clock.offset_ms += 31_000
            block(0.01)

        ids = await harness.submit("work", 1, 2)
        proxy.rule(EXTEND, ProxyFault.HELD)
        worker = await start(harness, lock_ms=30_000)
        assert await becomes_true(lambda: proxy.count(EXTEND))
        stopping = asyncio.create_task(worker.stop(grace=5))
        await outlast(0.05)
        proxy.let_go()
        await stopping
        assert begun == ids[:1]
        assert (await harness.read(ids[1])).state is JobState.WAITING
        await harness.close()


async def test_a_cancelled_job_is_told_and_may_end_itself(harness):
    begun = asyncio.Event()

    @harness.handle("work")
    async def work(job):
        begun.set()
        await job.wait_cancelled()
        assert job.cancelled
        raise JobCancelled

    async with harness.worker(profile=Profile(name="w", lock_ms=1000)):
        [job_id] = await harness.submit("work", {}, options=AT_ONCE)
        await begun.wait()
        assert await harness.operator.cancel([job_id]) == [job_id]
        [job] = await harness.ended(job_id)
    assert (job.state, job.reason) == (JobState.DEAD, "cancelled")


async def test_a_cancelled_job_in_a_thread_is_told_even_while_the_loop_is_blocked(harness):
    seen = []

    @harness.handle("work")
    def work(job):
        seen.append(job.wait_cancelled(8))

    @harness.handle("block")
    async def handle(job):
        seen.append(eventually(lambda: job.cancelled, 5))

    canceller = asyncio.create_task(asyncio.to_thread(asyncio.run, cancel_when_active(harness.worker_url, 2)))
    ids = await harness.submit("work", 1) + await harness.submit("block", 2)
    async with harness.worker(profile=Profile(name="w", lock_ms=1000)):
        await harness.ended(*ids)
    await canceller
    assert seen == [True, True]


async def cancel_when_active(url, count):
    """Cancel from another loop: the worker's own is blocked."""
    async with WorkerHarness(url) as harness:

        async def active() -> list[str]:
            ids = [job.id for job in await harness.inspector.jobs(JobState.ACTIVE)]
            return ids if len(ids) >= count else []

        await harness.operator.cancel(await until(active))
