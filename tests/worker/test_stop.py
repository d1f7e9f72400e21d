"""A worker ends without losing anything: gracefully on `stop`, at once on `kill`."""

import asyncio
import threading
import time

import pytest
import redis

from corral.core.job import JobState
from corral.core.ports import Profile
from corral.errors import JobCancelled, Release
from corral.protocols.bullmq.scripts import SCRIPTS
from corral.worker import WorkerEventKind
from tests.support import process_handlers
from tests.support.polling import becomes_true, block, forever, outlast, until
from tests.support.proxy import Proxy, ProxyFault, runs_script
from tests.support.worker_harness import ONCE, WorkerHarness


async def test_running_jobs_end_and_the_stop_with_them_and_no_more_are_claimed(harness):
    begun, release = asyncio.Event(), asyncio.Event()

    @harness.handle("work")
    async def work(job):
        begun.set()
        await release.wait()
        return "done"

    async with harness.worker(concurrency=1) as worker:
        first, second = await harness.submit("work", 1, 2)
        await begun.wait()
        stopping = asyncio.create_task(worker.stop(grace=3600))
        await outlast(0.1)
        assert not stopping.done()
        release.set()
        await asyncio.wait_for(stopping, 10)
    done, left = await harness.read(first), await harness.read(second)
    assert (done.state, done.result) == (JobState.COMPLETED, "done")
    assert (left.state, left.attempts_made) == (JobState.WAITING, 0)


async def test_what_does_not_end_in_time_is_cancelled_and_given_back_without_an_attempt_spent(harness):
    ends = []

    @harness.handle("work")
    async def work(job):
        try:
            await forever()
        except asyncio.CancelledError:
            ends.append(job.cancelled)
            raise

    async with harness.worker() as worker:
        [job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
        await worker.stop(grace=0.1)
    job = await harness.read(job_id)
    assert (job.state, job.attempts_made) == (JobState.WAITING, 0)
    assert ends == [True]
    assert harness.metric("corral_jobs_total", outcome="released") == 1


async def test_what_was_claimed_and_has_not_started_is_given_back(harness):
    started = []

    @harness.handle("work")
    async def work(job):
        started.append(job.id)
        if len(started) == 1:
            # while this blocks the loop the others wait for it, claimed
            stopping.append(asyncio.create_task(worker.stop(grace=5)))
            block(0.05)

    stopping = []
    ids = await harness.submit("work", *range(5))
    async with harness.worker(concurrency=5) as worker:
        assert await becomes_true(lambda: stopping)
        await stopping[0]
    jobs = [await harness.read(job_id) for job_id in ids]
    given_back = [job for job in jobs if job.id not in started]
    assert given_back
    assert {(job.state, job.attempts_made) for job in given_back} == {(JobState.WAITING, 0)}
    assert all(job.state is JobState.COMPLETED for job in jobs if job.id in started)


async def test_given_back_jobs_keep_their_place_at_the_head_of_the_queue(harness):
    order = []

    @harness.handle("work")
    async def work(job):
        order.append(job.data)
        if len(order) <= 1:
            await forever()

    ids = await harness.submit("work", 1, 2, 3)
    async with harness.worker(concurrency=1) as worker:
        assert await becomes_true(lambda: order)
        await worker.stop(grace=0)
    async with harness.worker(concurrency=1):
        await harness.ended(*ids)
    assert order == [1, 1, 2, 3]


async def test_a_kill_ends_the_grace(harness):
    @harness.handle("work")
    async def work(job):
        await forever()

    async with harness.worker() as worker:
        [job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
        stopping = asyncio.create_task(worker.stop(grace=60))
        await outlast(0.1)
        began = time.monotonic()
        worker.kill()
        await stopping
    assert time.monotonic() - began < 30
    assert (await harness.read(job_id)).state is JobState.WAITING


async def test_a_handler_that_will_not_be_cancelled_is_given_back_all_the_same(harness):
    release = asyncio.Event()

    @harness.handle("stubborn")
    async def stubborn(job):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with harness.worker() as worker:
        [job_id] = await harness.submit("stubborn", {})
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
        await worker.stop(grace=0)
        release.set()
    assert (await harness.read(job_id)).state is JobState.WAITING
    assert harness.metric("corral_jobs_total", outcome="completed") == 0


async def test_a_thread_that_runs_on_is_told_and_its_job_given_back(harness):
    release, cancelled = threading.Event(), []

    @harness.handle("work")
    def work(job):
        cancelled.append(job.wait_cancelled(10))
        release.wait(10)

    async with harness.worker() as worker:
        [job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
        await worker.stop(grace=0)
    assert (await harness.read(job_id)).state is JobState.WAITING
    # its thread may begin after the worker has stopped
    assert await becomes_true(lambda: cancelled == [True])
    release.set()


async def test_a_cancelled_run_gives_its_jobs_back(harness):
    @harness.handle("work")
    async def work(job):
        await forever()

    worker = harness.new_worker()
    running = asyncio.create_task(worker.run())
    [job_id] = await harness.submit("work", {})
    assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await harness.read(job_id)).state is JobState.WAITING


async def test_stopping_while_the_server_is_away_ends_in_seconds_and_says_what_is_left(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)

        @harness.handle("work")
        async def work(job):
            await forever()

        worker = harness.new_worker()
        await worker.start()
        [job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
        proxy.go_away()
        began = time.monotonic()
        await worker.stop(grace=0)
        assert time.monotonic() - began < 8
        assert [event.claim.job.id for event in harness.reported(WorkerEventKind.UNKNOWN)] == [job_id]
        # its lock is still there, and will run out
        assert (await harness.read(job_id)).state is JobState.ACTIVE
        await harness.close()


async def test_what_a_dead_worker_left_is_recovered_and_counted(harness, server):
    @harness.handle("work")
    async def work(job):
        return job.job.stalls

    [job_id] = await harness.submit("work", {}, options=ONCE)
    async with harness.connections(Profile(name="dead", lock_ms=100))() as connections:
        [claim] = (await connections.broker.turn([], 1)).claims
    assert claim.job.id == job_id
    async with harness.worker(profile=Profile(name="w", recover_ms=200)):
        [job] = await harness.ended(job_id)
        assert await becomes_true(lambda: harness.metric("corral_jobs_stalled_total") == 1)
    assert (job.state, job.result, job.attempts_made) == (JobState.COMPLETED, 1, 1)


async def test_a_worker_cannot_be_started_twice(harness):
    async with harness.worker() as worker:
        with pytest.raises(ValueError, match="was started before"):
            await worker.start()


async def test_stopping_a_worker_that_never_started_is_nothing(harness):
    worker = harness.new_worker()
    worker.kill()
    await worker.stop()
    assert harness.worker_events == []


async def test_threads_and_connections_are_gone_after_a_stop(harness, server):
    @harness.handle("work")
    async def work(job):
        pass

    with server.connect() as client:
        before = connections(client)
        async with harness.worker():
            await harness.ended(*await harness.submit("work", {}))
            assert connections(client) > before
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("corral-heartbeat")]
        # the server learns of a closed connection later than its client
        assert await becomes_true(lambda: connections(client) <= before), "connections are left open"


def connections(client: redis.Redis) -> set[str]:
    """Return the connections of workers, by their ids and names."""
    lines = client.client_list()
    return {f"{line['id']} {line['name']}" for line in lines if line["name"].startswith("bull:")}


# -- a stop is not a cancel -------------------------------------------------------------------------------


async def test_a_handler_that_ends_as_cancelled_because_of_a_stop_gives_its_job_back(each_harness):
    begun = []

    async def work(job):
        begun.append(job)
        try:
            await job.wait_cancelled()
        finally:
            raise JobCancelled

    each_harness.handlers.add(each_harness.job_name, work)
    async with each_harness.worker() as worker:
        [job_id] = await each_harness.submit(each_harness.job_name, {})
        assert await becomes_true(lambda: begun)
        await worker.stop(grace=0.05)
    job = await each_harness.read(job_id)
    assert (job.state, job.attempts_made) == (JobState.WAITING, 0)
    assert each_harness.metric("corral_jobs_total", outcome="released") == 1


@pytest.mark.parametrize("end", [JobCancelled, Release])
async def test_an_async_handler_sees_the_stop_and_may_end_before_the_grace_is_over(each_harness, end):
    seen = []

    async def work(job):
        seen.append((job.stopping, job.cancelled))
        await job.wait_stopping()
        seen.append((job.stopping, job.cancelled))
        raise end

    each_harness.handlers.add(each_harness.job_name, work)
    async with each_harness.worker() as worker:
        [job_id] = await each_harness.submit(each_harness.job_name, {})
        assert await becomes_true(lambda: seen)
        await asyncio.wait_for(worker.stop(grace=60), 5)
    job = await each_harness.read(job_id)
    assert (job.state, job.attempts_made) == (JobState.WAITING, 0)
    assert seen == [(False, False), (True, False)]


async def test_a_thread_sees_the_stop_and_may_end_before_the_grace_is_over(harness):
    seen = []

    @harness.handle("work")
    def work(job):
        seen.append(job.stopping)
        seen.append((job.wait_stopping(10), job.stopping, job.cancelled))
        raise JobCancelled

    async with harness.worker() as worker:
        [job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: seen)
        await asyncio.wait_for(worker.stop(grace=60), 5)
    job = await harness.read(job_id)
    assert (job.state, job.attempts_made) == (JobState.WAITING, 0)
    assert seen == [False, (True, True, False)]


@pytest.mark.parametrize("fn", [process_handlers.cancel_on_stop, process_handlers.cancel_on_stop_async])
async def test_a_process_sees_the_stop_and_may_end_before_the_grace_is_over(harness, fn, tmp_path):
    harness.handlers.add("work", fn, process=True)
    async with harness.worker() as worker:
        [job_id] = await harness.submit("work", str(tmp_path / "begun"))
        assert await becomes_true((tmp_path / "begun").exists, 30)
        await asyncio.wait_for(worker.stop(grace=60), 10)
    job = await harness.read(job_id)
    assert (job.state, job.attempts_made) == (JobState.WAITING, 0)


@pytest.mark.parametrize("ends_by_itself", [True, False])
async def test_a_job_that_somebody_cancelled_is_not_given_back_by_a_stop(harness, ends_by_itself):
    contexts = []

    @harness.handle("work")
    async def work(job):
        contexts.append(job)
        await job.wait_stopping()
        if ends_by_itself:
            raise JobCancelled
        await forever()

    async with harness.worker(profile=Profile(name="w", lock_ms=400)) as worker:
        [job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: contexts)
        await harness.operator.cancel([job_id])
        assert await becomes_true(lambda: contexts[0].cancelled)
        await worker.stop(grace=0.1)
    assert (await harness.read(job_id)).reason == "cancelled"
    assert harness.metric("corral_jobs_total", outcome="cancelled") == 1


async def test_a_handler_that_ends_as_cancelled_because_its_time_is_over_has_timed_out(harness):
    @harness.handle("work", timeout=0.05)
    async def work(job):
        try:
            await forever()
        finally:
            raise JobCancelled

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("work", {}))
    assert (job.state, job.reason) == (JobState.DEAD, "'work' took longer than 0.05 s")


async def test_claims_that_arrive_while_the_worker_stops_are_given_back(server, harness):
    begun = []

    @harness.handle("work")
    async def work(job):
        begun.append(job.id)

    turn = runs_script(SCRIPTS["turn"].sha)
    with Proxy(server.port) as proxy:
        harness.worker_url = proxy.url
        async with harness.worker() as worker:
            sent = proxy.count(turn)
            proxy.rule(turn, ProxyFault.HELD)
            [job_id] = await harness.submit("work", {})
            assert await becomes_true(lambda: proxy.count(turn) > sent)
            await until(lambda: is_in(harness, job_id, JobState.ACTIVE), "the job is claimed")
            stopping = asyncio.create_task(worker.stop(5))
            await asyncio.sleep(0)
            proxy.let_go()
            await stopping
    assert (await harness.read(job_id)).state is JobState.WAITING
    assert begun == []


async def is_in(harness, job_id, state):
    return (await harness.read(job_id)).state is state
