"""Answers that never came: nothing is lost, nothing runs twice, no attempt is spent twice."""

import asyncio

import pytest

from corral.core.job import JobState
from corral.core.ports import Profile
from corral.errors import RedisConnectionError, RedisReadOnlyError, RedisResponseError, Transient
from corral.protocols.bullmq.keys import BullmqKeys
from corral.protocols.bullmq.scripts import SCRIPTS
from corral.store.client import Reconnect
from corral.worker import WorkerEventKind
from tests.support.logs import capture_logs
from tests.support.polling import becomes_true
from tests.support.proxy import ProxyFault, runs, runs_script
from tests.support.servers import free_port, start_valkey
from tests.support.worker_harness import AT_ONCE, WorkerHarness

TURN = runs_script(SCRIPTS["turn"].sha)
ADOPT = runs_script(SCRIPTS["adopt"].sha)


@pytest.fixture
async def harness(server, proxy):
    async with WorkerHarness(server.url, proxy.url) as harness:
        yield harness


def settles(command):
    """A turn that carries settlements: it declares their locks beside the fixed keys."""
    return TURN(command) and int(command[2]) > len(BullmqKeys("bull", "").fixed)


def claims(command):
    return TURN(command) and int(command[2]) == len(BullmqKeys("bull", "").fixed)


CUTS = [ProxyFault.CUT_BEFORE, ProxyFault.CUT_INSIDE, ProxyFault.SWALLOW, ProxyFault.CUT_REPLY]


@pytest.mark.parametrize("fault", CUTS)
async def test_a_settlement_whose_answer_is_lost_is_applied_once(harness, proxy, fault):
    runs_of_job = []

    @harness.handle("work")
    async def work(job):
        runs_of_job.append(job.attempt)
        return "done"

    rule = proxy.rule(settles, fault)
    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("work", {}, options=AT_ONCE))
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.SETTLED))
    assert rule.met == 1
    assert (job.state, job.result, job.attempts_made) == (JobState.COMPLETED, "done", 1)
    assert runs_of_job == [1]
    assert harness.reported(WorkerEventKind.LOST) == harness.reported(WorkerEventKind.UNKNOWN) == []
    assert harness.metric("corral_jobs_total", outcome="completed") == 1


@pytest.mark.parametrize("fault", CUTS)
async def test_a_retry_whose_answer_is_lost_spends_one_attempt(harness, proxy, fault):
    attempts = []

    @harness.handle("work")
    async def work(job):
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise Transient("again")

    rule = proxy.rule(settles, fault)
    async with harness.worker():
        [job] = await harness.ended(*await harness.submit("work", {}, options=AT_ONCE))
    assert rule.met == 1
    assert attempts == [1, 2, 3]
    assert (job.state, job.attempts_made) == (JobState.COMPLETED, 3)
    assert harness.reported(WorkerEventKind.LOST) == harness.reported(WorkerEventKind.UNKNOWN) == []


@pytest.mark.parametrize("fault", CUTS)
async def test_jobs_claimed_in_a_trip_whose_answer_is_lost_are_taken_over_at_once(harness, proxy, fault):
    ran = []

    @harness.handle("work")
    async def work(job):
        ran.append(job.id)

    async with harness.worker():
        assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")))
        rule = proxy.rule(claims, fault)
        ids = await harness.submit("work", 1, 2, 3)
        jobs = await harness.ended(*ids, seconds=5)
    assert rule.met == 1
    assert sorted(ran) == sorted(ids)
    assert [(job.attempts_made, job.stalls, job.starts) for job in jobs] == [(1, 0, 1)] * 3
    assert proxy.count(ADOPT) == 1


async def test_a_trip_that_settles_and_claims_and_is_lost_does_both_once(harness, proxy):
    ran = []

    @harness.handle("work")
    async def work(job):
        ran.append(job.data)

    rule = proxy.rule(settles, ProxyFault.SWALLOW, times=2)
    ids = await harness.submit("work", *range(6))
    async with harness.worker(concurrency=2):
        await harness.ended(*ids)
    assert rule.met == 2
    assert sorted(ran) == list(range(6))
    assert harness.reported(WorkerEventKind.LOST) == harness.reported(WorkerEventKind.UNKNOWN) == []


async def test_two_trips_that_are_lost_together_do_both_once(harness, proxy):
    ends, ran = asyncio.Event(), []

    @harness.handle("work")
    async def work(job):
        ran.append(job.data)
        if job.data == "first":
            await ends.wait()

    async with harness.worker(concurrency=2):
        [first] = await harness.submit("work", "first")
        assert await becomes_true(lambda: ran and runs("BZPOPMIN")(proxy.commands[-1]))
        held = proxy.rule(claims, ProxyFault.HELD)
        [second] = await harness.submit("work", "second")
        assert await becomes_true(lambda: held.met)
        ends.set()
        # it is settled although the answer to the trip before it is not here
        [job] = await harness.ended(first)
        assert (job.state, ran) == (JobState.COMPLETED, ["first"])
        proxy.cut()
        [job] = await harness.ended(second)
        assert (job.state, job.attempts_made, job.starts) == (JobState.COMPLETED, 1, 1)
        assert await becomes_true(lambda: len(harness.reported(WorkerEventKind.SETTLED)) == 2)
    assert ran == ["first", "second"]
    assert harness.reported(WorkerEventKind.LOST) == harness.reported(WorkerEventKind.UNKNOWN) == []
    assert proxy.count(ADOPT) == 1


async def test_a_settlement_answered_only_after_its_lock_could_have_gone_is_reported_as_unknown(
    harness, proxy
):
    @harness.handle("work")
    async def work(job):
        return "done"

    rule = proxy.rule(settles, ProxyFault.SWALLOW)
    with capture_logs() as logs:
        async with harness.worker(profile=Profile(name="w", lock_ms=30_000)):

            async def go_to_sleep():
                await becomes_true(lambda: rule.met)
                harness.clock.offset_ms += 40_000

            sleeping = asyncio.create_task(go_to_sleep())
            [job_id] = await harness.submit("work", {})
            await sleeping
            assert await becomes_true(
                lambda: harness.reported(WorkerEventKind.UNKNOWN) or harness.reported(WorkerEventKind.SETTLED)
            )
    # the first trip was applied, but 40 s later nobody can tell it from another worker's settlement
    assert len(harness.reported(WorkerEventKind.UNKNOWN)) == 1
    assert harness.metric("corral_outcomes_unknown_total") == 1
    assert any(log["event"].startswith("unknown") and log["job"] == job_id for log in logs)
    assert (await harness.read(job_id)).state is JobState.COMPLETED


async def test_while_the_server_is_away_running_jobs_go_on_and_settle_after_its_return(harness, proxy):
    begun, release, ran = asyncio.Event(), asyncio.Event(), []

    @harness.handle("work")
    async def work(job):
        ran.append(job.data)
        begun.set()
        await release.wait()
        return job.data

    async with harness.worker():
        [first] = await harness.submit("work", 1)
        await begun.wait()
        proxy.go_away()
        assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")) >= 1)
        release.set()
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.UNAVAILABLE))
        [second] = await harness.submit("work", 2)
        assert await becomes_true(lambda: harness.metric("corral_redis_reconnects_total") >= 2)
        assert ran == [1]
        assert harness.metric("corral_redis_up") == 0
        proxy.come_back()
        jobs = await harness.ended(first, second)
        assert await becomes_true(lambda: harness.metric("corral_redis_up") == 1)
    assert [job.result for job in jobs] == [1, 2]
    assert [job.attempts_made for job in jobs] == [1, 1]
    assert harness.reported(WorkerEventKind.AVAILABLE)


async def test_a_worker_with_limited_tries_ends_with_the_error(harness, proxy):
    worker = harness.new_worker(delays=Reconnect(first_ms=5, most_ms=10).delay, max_tries=3)
    running = asyncio.create_task(worker.run())
    assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")))
    proxy.go_away()
    with pytest.raises(RedisConnectionError):
        await asyncio.wait_for(running, 10)


async def test_a_limit_of_0_tries_is_none(harness, proxy):
    async with harness.worker(delays=Reconnect(first_ms=5, most_ms=10).delay, max_tries=0):
        assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")))
        proxy.go_away()
        assert await becomes_true(lambda: harness.metric("corral_redis_reconnects_total") >= 5)
        proxy.come_back()
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.AVAILABLE))


async def test_a_server_that_has_become_a_replica_is_waited_for():
    server = start_valkey()
    harness = WorkerHarness(server.url)
    begun, release = asyncio.Event(), asyncio.Event()

    @harness.handle("work")
    async def work(job):
        begun.set()
        await release.wait()

    try:
        async with harness.worker():
            [job_id] = await harness.submit("work", {})
            await begun.wait()
            with server.connect() as client:
                client.replicaof("127.0.0.1", free_port())
                release.set()
                assert await becomes_true(lambda: harness.reported(WorkerEventKind.UNAVAILABLE))
                assert isinstance(harness.reported(WorkerEventKind.UNAVAILABLE)[0].error, RedisReadOnlyError)
                client.replicaof("NO", "ONE")
            [job] = await harness.ended(job_id)
        assert (job.state, job.attempts_made) == (JobState.COMPLETED, 1)
        assert harness.reported(WorkerEventKind.LOST) == []
    finally:
        await harness.close()
        server.stop()


async def test_a_server_that_refuses_for_good_is_asked_again_slowly_and_said_to_be_so(harness, proxy, server):
    waits = []

    def delays(tries):
        waits.append(tries)
        return 0.02

    @harness.handle("work")
    async def work(job):
        pass

    with capture_logs() as logs:
        async with harness.worker(delays=delays):
            assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")))
            with server.connect() as client:
                client.set("bull:work:wait", "not a list")
            assert await becomes_true(lambda: harness.reported(WorkerEventKind.UNAVAILABLE))
            assert isinstance(harness.reported(WorkerEventKind.UNAVAILABLE)[0].error, RedisResponseError)
            with server.connect() as client:
                client.delete("bull:work:wait")
            await harness.ended(*await harness.submit("work", {}))
    assert 32 in waits
    assert any(log["log_level"] == "error" and "is unavailable" in log["event"] for log in logs)


async def test_forgotten_scripts_are_taught_again(harness, server):
    @harness.handle("work")
    async def work(job):
        return job.data

    async with harness.worker(concurrency=2):
        for number in range(5):
            with server.connect() as client:
                client.script_flush()
            [job] = await harness.ended(*await harness.submit("work", number))
            assert job.result == number
    assert harness.reported(WorkerEventKind.UNAVAILABLE) == []
