"""What a worker does with the jobs it claims, on a real BullMQ queue."""

import asyncio
import threading
import time

import pytest

from corral.core.job import Backoff, JobOptions, JobState
from corral.core.ports import Profile
from corral.errors import (
    InvalidOptions,
    InvalidPayload,
    JobCancelled,
    Postpone,
    RedisConnectionError,
    Release,
    Transient,
)
from corral.protocols.bullmq.scripts import SCRIPTS
from corral.worker import WorkerEventKind
from tests.support.polling import becomes_true, block, outlast
from tests.support.proxy import Proxy, ProxyFault, runs, runs_script
from tests.support.servers import free_port
from tests.support.worker_harness import AT_ONCE, WorkerHarness

TURN = runs_script(SCRIPTS["turn"].sha)


async def test_a_job_is_run_and_its_result_written_down(harness):
    seen = []

    @harness.handle("greet")
    async def greet(job):
        seen.append((job.id, job.name, job.queue, job.data, job.attempt, job.options.attempts))
        return {"hello": job.data["to"]}

    async with harness.worker():
        [job_id] = await harness.submit("greet", {"to": "you"})
        [job] = await harness.ended(job_id)
    assert job.state is JobState.COMPLETED
    assert job.result == {"hello": "you"}
    assert seen == [(job_id, "greet", "work", {"to": "you"}, 1, 1)]


async def test_a_handler_may_return_nothing(harness):
    @harness.handle("quiet")
    async def quiet(job):
        await asyncio.sleep(0)

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("quiet", {}))
    assert (job.state, job.result) == (JobState.COMPLETED, None)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_no_more_jobs_run_at_once_than_the_concurrency_allows(harness, kind):
    lock, running, peak = threading.Lock(), 0, 0

    def enter():
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)

    def leave():
        nonlocal running
        with lock:
            running -= 1

    if kind == "async":

        @harness.handle("step")
        async def step(job):
            enter()
            await asyncio.sleep(0.01)
            leave()

    else:

        @harness.handle("step")
        def step(job):
            enter()
            block(0.01)
            leave()

    ids = await harness.submit("step", *range(60))
    most_held = 0
    async with harness.worker(concurrency=4) as worker:

        async def watch():
            nonlocal most_held
            while True:
                most_held = max(most_held, len(worker._turns.held))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await harness.ended(*ids)
        watching.cancel()
    assert peak == 4
    assert most_held == 4


async def test_the_first_job_to_end_is_settled_before_its_neighbour_blocks_the_loop_again(harness, server):
    client = server.connect()
    settled_when_begun = []

    @harness.handle("block")
    async def handle(job):
        settled_when_begun.append(client.zcard("bull:work:completed"))
        block(0.05)

    ids = await harness.submit("block", 1, 2, 3)
    async with harness.worker(concurrency=3):
        await harness.ended(*ids)
    assert settled_when_begun == [0, 1, 2]
    client.close()


async def test_many_short_jobs_share_few_round_trips(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)

        @harness.handle("noop")
        async def noop(job):
            pass

        ids = await harness.submit("noop", *range(1000))
        async with harness.worker(concurrency=100):
            await harness.ended(*ids)
        assert proxy.count(TURN) < 60
        await harness.close()


async def test_large_results_are_spread_over_several_trips(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)

        @harness.handle("large")
        async def large(job):
            return "x" * 1_000_000

        ids = await harness.submit("large", *range(20))
        async with harness.worker(concurrency=20):
            await harness.ended(*ids)
        assert max(sum(map(len, command)) for command in proxy.commands if TURN(command)) < 6_000_000
        await harness.close()


async def test_an_idle_worker_waits_without_polling_and_starts_a_new_job_in_two_trips(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)
        started = asyncio.Event()

        @harness.handle("noop")
        async def noop(job):
            started.set()

        async with harness.worker():
            assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")))
            await outlast(0.3)
            turns, waits = proxy.count(TURN), proxy.count(runs("BZPOPMIN"))
            await outlast(0.7)
            assert (proxy.count(TURN), proxy.count(runs("BZPOPMIN"))) == (turns, waits)
            began = time.perf_counter()
            await harness.submit("noop", {})
            await started.wait()
            took = time.perf_counter() - began
            # the wake-up it was waiting for, and one turn that claims
            assert proxy.count(TURN) <= turns + 2
            assert took < 4, "not the end of its block"
        await harness.close()


async def test_what_ends_while_the_worker_is_told_that_all_places_are_taken_makes_protocol_at_once(server):
    with Proxy(server.port) as proxy, server.connect() as client:
        harness = WorkerHarness(server.url, proxy.url)
        end, ran = asyncio.Event(), []

        @harness.handle("work")
        async def work(job):
            ran.append(job.data)
            await end.wait()

        await harness.operator.set_concurrency(1)
        ids = await harness.submit("work", 1, 2)
        async with harness.worker(concurrency=2):
            # the first wait took the marker with it
            assert await becomes_true(lambda: ran and proxy.count(runs("BZPOPMIN")) == 2)
            held = proxy.rule(TURN, ProxyFault.HELD)
            client.zadd("bull:work:marker", {"0": 0})
            assert await becomes_true(lambda: held.met)
            end.set()
            await harness.ended(ids[0])
            # the answers that come now: every place is taken; then, the first job is settled
            proxy.let_go()
            assert await becomes_true(lambda: ran == [1, 2], 3)
            await harness.ended(*ids)
        await harness.close()


async def test_a_failing_neighbour_does_not_touch_the_others(harness):
    @harness.handle("maybe")
    async def maybe(job):
        if job.data % 3 == 0:
            raise ValueError(f"no {job.data}")
        if job.data % 3 == 1:
            await asyncio.sleep(0.01)
        return job.data

    ids = await harness.submit("maybe", *range(30))
    async with harness.worker():
        jobs = await harness.ended(*ids)
    for number, job in enumerate(jobs):
        if number % 3 == 0:
            assert (job.state, job.reason) == (JobState.DEAD, f"no {number}")
            assert "in maybe" in job.trace[-1]
            assert "executor.py" not in job.trace[-1]
        else:
            assert (job.state, job.result) == (JobState.COMPLETED, number)


async def test_a_transient_failure_is_tried_again_until_attempts_are_spent(harness):
    attempts = []

    @harness.handle("flaky")
    async def flaky(job):
        attempts.append(job.attempt)
        raise Transient("not today")

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("flaky", {}, options=AT_ONCE))
    assert attempts == [1, 2, 3]
    assert (job.state, job.reason, job.attempts_made) == (JobState.DEAD, "not today", 3)
    assert len(job.trace) == 3


async def test_a_retry_waits_for_its_backoff(harness):
    times = []

    @harness.handle("flaky")
    async def flaky(job):
        times.append(time.monotonic())
        if job.attempt == 1:
            raise Transient("once more")

    options = JobOptions(attempts=2, backoff=Backoff("fixed", 300))
    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("flaky", {}, options=options))
    assert job.state is JobState.COMPLETED
    assert 0.29 < times[1] - times[0] < 3


async def test_postponing_and_giving_back_spend_no_attempt(harness):
    calls = []

    @harness.handle("later")
    async def later(job):
        calls.append(job.attempt)
        if len(calls) == 1:
            raise Postpone(50)
        if len(calls) == 2:
            raise Release
        return "done"

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("later", {}))
    assert calls == [1, 1, 1]
    assert (job.result, job.attempts_made) == ("done", 1)


async def test_a_handler_that_says_cancelled_ends_the_job_as_cancelled(harness):
    @harness.handle("stop")
    async def stop(job):
        raise JobCancelled

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("stop", {}, options=AT_ONCE))
    assert (job.state, job.reason) == (JobState.DEAD, "cancelled")


async def test_a_job_without_a_handler_dies_with_a_reason_that_names_those_there_are(harness):
    @harness.handle("known")
    async def known(job):
        pass

    async with harness.worker(profile=Profile(name="w", unknown_ms=0)):
        [job] = await harness.ended(*await harness.submit("unknown", {}, options=AT_ONCE))
    assert job.state is JobState.DEAD
    assert job.reason == "no handler for job name 'unknown'; this worker knows 'known'"


async def test_the_star_handler_takes_every_name_that_has_none(harness):
    @harness.handle("*")
    async def anything(job):
        return job.name

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("whatever", {}))
    assert job.result == "whatever"


async def test_a_result_json_cannot_carry_ends_the_job_with_a_clear_reason(harness):
    @harness.handle("odd")
    async def odd(job):
        return object()

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("odd", {}, options=AT_ONCE))
    assert job.state is JobState.DEAD
    assert job.reason.startswith("the result of 'odd' cannot be written as JSON")
    assert job.attempts_made == 1


async def test_a_doomed_job_dies_without_being_run(harness, server):
    ran = []

    @harness.handle("work")
    async def work(job):
        ran.append(job.id)

    [job_id] = await harness.submit("work", {}, options=AT_ONCE)
    with server.connect() as client:
        client.hset(f"bull:work:{job_id}", "defa", "job stalled more than allowable limit")
    async with harness.worker():
        [job] = await harness.ended(job_id)
    assert (job.state, job.reason) == (JobState.DEAD, "job stalled more than allowable limit")
    assert ran == []


async def test_a_handler_speaks_while_it_runs(harness):
    counts = []

    @harness.handle("talk")
    async def talk(job):
        await job.progress(25)
        counts.append(await job.log("one"))
        await job.progress(50, "half a scene")
        counts.append(await job.log("two"))
        with pytest.raises(InvalidPayload, match="progress is 101; use a number from 0 to 100"):
            await job.progress(101)
        with pytest.raises(InvalidPayload):
            await job.progress(float("nan"))

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("talk", {}))
    assert (job.state, job.reason) == (JobState.COMPLETED, None)
    assert job.progress == {"progress": 50, "message": "half a scene"}
    assert await harness.inspector.logs(job.id) == ["one", "two"]
    assert counts == [1, 2]


async def test_a_sync_handler_runs_in_a_thread_and_speaks_by_plain_calls(harness):
    threads = []

    @harness.handle("talk")
    def talk(job):
        threads.append(threading.current_thread())
        job.progress(25)
        assert job.log("one") == 1
        return job.attempt

    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("talk", {}))
    assert (job.result, job.progress) == (1, 25)
    assert await harness.inspector.logs(job.id) == ["one"]
    assert threads[0] is not threading.main_thread()


async def test_a_paused_queue_is_left_alone_until_it_resumes(harness):
    ran = asyncio.Event()

    @harness.handle("work")
    async def work(job):
        ran.set()

    await harness.operator.pause()
    async with harness.worker():
        ids = await harness.submit("work", {})
        await outlast(0.3)
        assert not ran.is_set()
        await harness.operator.resume()
        await harness.ended(*ids)


async def test_two_workers_share_a_queue_and_run_each_job_once(harness):
    ran = []

    @harness.handle("work")
    async def work(job):
        ran.append(job.id)
        await asyncio.sleep(0.001)

    ids = await harness.submit("work", *range(200))
    async with harness.worker(concurrency=5), harness.worker(concurrency=5):
        await harness.ended(*ids)
    assert sorted(ran) == sorted(ids)


async def test_a_first_connection_that_fails_is_raised(url):
    nowhere = WorkerHarness(url, f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(RedisConnectionError, match=r"127\.0\.0\.1"):
        await nowhere.new_worker().start()
    await nowhere.close()


async def test_a_listener_hears_of_every_job(harness):
    @harness.handle("work")
    async def work(job):
        pass

    ids = await harness.submit("work", 1, 2)
    async with harness.worker():
        await harness.ended(*ids)
        assert await becomes_true(lambda: len(harness.reported(WorkerEventKind.SETTLED)) == 2)
    assert {event.claim.job.id for event in harness.reported(WorkerEventKind.ACTIVE)} == set(ids)
    assert {type(event.outcome).__name__ for event in harness.reported(WorkerEventKind.SETTLED)} == {
        "Completed"
    }
    assert harness.reported(WorkerEventKind.LOST) == []
    assert len(harness.reported(WorkerEventKind.DRAINED)) == 1


@pytest.mark.parametrize("concurrency", [0, -1, 100_001])
async def test_a_concurrency_that_makes_no_sense_is_refused(harness, concurrency):
    with pytest.raises(InvalidOptions, match=f"concurrency {concurrency}"):
        harness.new_worker(concurrency=concurrency)


async def test_a_thread_that_goes_on_after_its_timeout_keeps_its_slot(harness):
    running, go_on = [], threading.Event()

    @harness.handle("slow", timeout=0.05)
    def slow(job):
        running.append(job.data)
        go_on.wait(20)

    first, second = await harness.submit("slow", 1, 2)
    async with harness.worker(concurrency=1):
        await harness.ended(first)
        # its job has ended and its thread has not: there is no slot for the next
        assert not await becomes_true(lambda: len(running) > 1, 0.3)
        assert (await harness.read(second)).state is JobState.WAITING
        go_on.set()
        [job] = await harness.ended(second)
    assert (job.state, running) == (JobState.COMPLETED, [1, 2])
