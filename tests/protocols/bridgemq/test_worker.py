"""The one worker runtime in this protocol: handlers, retries, routing, limits, schedules."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import redis

from corral import Corral, Job, JobState, Transient, Unrecoverable
from corral.errors import InvalidName, InvalidOptions
from corral.store.client import Store
from tests.support.apps import ended, reached, working
from tests.support.bridgemq_harness import BridgemqHarness
from tests.support.polling import becomes_true, outlast
from tests.support.servers import Server

LABELS = {"protocol": "bridgemq", "queue": "default"}


@pytest.fixture
async def app(server: Server) -> AsyncIterator[Corral]:
    async with Corral(server.url, protocol="bridgemq") as app:
        yield app


async def test_a_handler_runs_and_its_result_is_there(app: Corral):
    @app.job("double")
    async def double(job):
        await job.progress(50, "half")
        await job.log("a line")
        return {"is": job.data["n"] * 2}

    async with working(app):
        added = await double.add({"n": 21})
        done = await ended(double.queue, added.id)
    assert (done.state, done.result, done.attempts_made) == (JobState.COMPLETED, {"is": 42}, 1)
    assert done.progress == {"progress": 50, "message": "half"}
    assert await double.queue.logs(added.id) == ["a line"]


async def test_a_failing_handler_is_tried_again_and_ends_in_the_dead_letters(app: Corral):
    @app.job("flaky", attempts=3, backoff=1)
    async def flaky(job):
        raise Transient(f"attempt {job.attempt}")

    async with working(app):
        added = await flaky.add()
        dead = await ended(flaky.queue, added.id)
    assert (dead.state, dead.attempts_made, dead.reason) == (JobState.DEAD, 3, "attempt 3")
    assert len(dead.trace) == 3


async def test_an_unrecoverable_error_spends_no_more_attempts(app: Corral):
    @app.job("hopeless", attempts=9)
    async def hopeless(job):
        raise Unrecoverable("no")

    async with working(app):
        dead = await ended(hopeless.queue, (await hopeless.add()).id)
    assert (dead.state, dead.attempts_made) == (JobState.DEAD, 1)


async def test_a_job_is_run_by_the_worker_that_fits(server: Server):
    ran: list[tuple[str, str]] = []

    def made(name: str) -> Corral:
        app = Corral(server.url, protocol="bridgemq")

        @app.job("transcode", target={"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"})
        async def transcode(job):
            ran.append((name, job.id))

        return app

    plain, gpu = made("plain"), made("gpu")
    async with plain, gpu:
        identity = {"capabilities": ["gpu"], "region": "us-east"}
        async with working(plain, name="p1"), working(gpu, name="g1", extra=identity):
            job = await plain.queue().add("transcode", {}, target={"capabilities": ["gpu"], "mode": "all"})
            await ended(plain.queue(), job.id)
    assert ran == [("gpu", job.id)]


async def test_no_more_run_at_a_time_than_the_rate_says(app: Corral):
    running = most = 0

    @app.job("sms", rate={"concurrent": 2})
    async def sms(job):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    async with working(app, concurrency=10):
        ids = [handle.id for handle in await sms.add_many([{}] * 20)]
        for job_id in ids:
            await ended(sms.queue, job_id)
    assert most == 2


async def test_a_delayed_job_of_an_idle_queue_runs_when_it_is_due(app: Corral):
    @app.job("later")
    async def later(job):
        return "done"

    async with working(app):
        await ended(later.queue, (await later.add()).id)
        done = await ended(later.queue, (await later.options(delay=200).add()).id)
    assert done.started_at is not None
    assert done.started_at - done.created_at >= 200


@pytest.mark.parametrize(("options", "within"), [({}, 1.5), ({"promote_ms": 100}, 0.6)])
async def test_what_becomes_due_while_all_hands_are_full_waits_for_a_stranger_within_a_second(
    app: Corral, server: Server, options: dict[str, int], within: float
):
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.job("long")
    async def long(job):
        begun.set()
        await may_end.wait()

    with server.connect() as client:
        async with working(app, concurrency=1, **options):
            await long.add()
            await begun.wait()
            await long.options(delay=200).add()
            added = time.monotonic()
            assert await becomes_true(lambda: client.llen("bridge:jobs:waiting") == 1)
            assert time.monotonic() - added < within + 0.5, "half a second for a busy machine"
            may_end.set()


async def test_a_schedule_fires_while_a_worker_works(app: Corral):
    fired: list[Job] = []

    @app.job("tick")
    async def tick(job):
        fired.append(job.job)

    await app.queue().add("tick", {"n": 1}, id="every-second", cron="* * * * * *")
    async with working(app):
        assert await becomes_true(lambda: len(fired) >= 2)
    assert all(job.id.startswith("every-second@") and job.data == {"n": 1} for job in fired)
    assert len({job.id for job in fired}) == len(fired)
    assert await app.queue().schedules.remove("every-second")


async def test_the_worker_stands_in_the_registry_while_it_works(app: Corral, server: Server):
    @app.job("work")
    async def work(job): ...

    with server.connect() as client:
        async with working(app, name="w1", extra={"region": "eu"}):
            assert await becomes_true(lambda: client.exists("bridge:workers:heartbeat:w1"))
            [worker] = await app.queue().workers()
            assert (worker.name, worker.extra["region"]) == ("w1", "eu")
        assert await becomes_true(lambda: not client.exists("bridge:workers:w1"))
        assert client.scard("bridge:workers:active") == 0
        assert not client.exists("bridge:scheduler:lock"), "it led, and resigned"


async def test_a_busy_worker_beats_within_a_short_lifetime_of_its_heartbeat(app: Corral, server: Server):
    @app.job("nap")
    async def nap(job):
        await outlast(1.5)

    with server.connect() as client:
        async with working(app, name="w1", concurrency=1, extra={"heartbeat_ms": 450}):
            job = await nap.add()
            await reached(nap.queue, job.id, JobState.ACTIVE)
            while (await nap.queue.job(job.id)).state is JobState.ACTIVE:
                assert client.exists("bridge:workers:heartbeat:w1")
                await asyncio.sleep(0.02)
    assert app.metrics.registry.get_sample_value("corral_jobs_stalled_total", LABELS) == 0


async def test_jobs_that_the_leader_finds_abandoned_are_counted(app: Corral, server: Server):
    @app.job("work")
    async def work(job):
        pass

    job = await work.add()
    async with BridgemqHarness(Store(server.url), server.connect()) as harness:
        await harness.claim(harness.broker("dead"))
        async with working(app, extra={"heartbeat_ms": 600}):
            with server.connect() as client:
                assert await becomes_true(lambda: client.exists("bridge:scheduler:lock"))
                client.delete("bridge:workers:heartbeat:dead", f"bridge:jobs:lock:{job.id}")
                await ended(work.queue, job.id, seconds=5)
        harness.client.close()
        await harness.store.close()
    assert app.metrics.registry.get_sample_value("corral_jobs_stalled_total", LABELS) == 1


async def test_a_wrong_option_among_many_names_the_job(app: Corral, server: Server):
    with pytest.raises(InvalidOptions, match="job 1 of this call: target mode is 'some'"):
        await app.queue().add_many([("a", {}), ("b", {}, {"target": {"mode": "some"}})])
    with server.connect() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("job_id", ["report@1732376323000", "a:b", "7", "waiting", "active", "events"])
async def test_an_id_that_means_something_else_is_refused(app: Corral, server: Server, job_id: str):
    with pytest.raises(InvalidName):
        await app.queue().add("work", {}, id=job_id)
    with server.connect() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("has_others_jobs", [False, True])
async def test_an_idle_worker_does_not_spin_while_a_schedule_is_due_that_another_must_fire(
    app: Corral, server: Server, has_others_jobs: bool
):
    @app.job("tick")
    async def tick(job):
        pass

    schedule = app.schedule("tick", cron="* * * * * *")
    await app.start_schedules()
    with server.connect() as client:
        client.set("bridge:scheduler:lock", "a-scheduler-of-another-kind", ex=30)
        client.zadd("bridge:jobs:cron", {schedule.id: 1})
        if has_others_jobs:
            await app.queue("elsewhere").add("other")
        async with working(app, name="w1"):
            assert await becomes_true(lambda: client.get("bridge:workers:heartbeat:w1") is not None)
            before, start = scripts_run(client), time.monotonic()
            await outlast(1.0)
            seconds = time.monotonic() - start
            # 20 a second, and the two of a beat
            assert scripts_run(client) - before <= 20 * seconds + 2
            delayed = await tick.options(delay=300).add()
            start = time.monotonic()
            await ended(tick.queue, delayed.id)
            assert time.monotonic() - start < 15, "delayed jobs are not held up"


def scripts_run(client: redis.Redis) -> int:
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))
