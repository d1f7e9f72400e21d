"""Answers that never came: nothing is lost, nothing runs twice, no attempt is spent twice."""

import asyncio

import pytest
from structlog.testing import capture_logs

from corral.core.job import JobState
from corral.core.ports import Profile
from corral.errors import Away, ReadOnly, StoreRefused, Transient
from corral.protocols.bullmq.broker import SCRIPTS
from corral.store.client import Reconnect
from corral.worker import Happening
from tests.support.polling import becomes_true
from tests.support.proxy import Fate, Proxy, runs, runs_script
from tests.support.servers import free_port, start_valkey
from tests.support.workers import AT_ONCE, Shop

TURN = runs_script(SCRIPTS["turn"].sha)
ADOPT = runs_script(SCRIPTS["adopt"].sha)


@pytest.fixture
def proxy(server):
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def shop(server, proxy):
    shop = Shop(server.url, proxy.url)
    yield shop
    await shop.close()


def settles(command):
    """A turn that carries settlements: it declares their locks beside the fixed keys."""
    return TURN(command) and int(command[2]) > len(SCRIPT_KEYS)


def claims(command):
    return TURN(command) and int(command[2]) == len(SCRIPT_KEYS)


SCRIPT_KEYS = Shop("redis://127.0.0.1:1").broker._keys.fixed

CUTS = [Fate.CUT_BEFORE, Fate.CUT_INSIDE, Fate.SWALLOW, Fate.CUT_REPLY]


@pytest.mark.parametrize("fate", CUTS)
async def test_a_settlement_whose_answer_is_lost_is_applied_once(shop, proxy, fate):
    runs_of_job = []

    @shop.handle("work")
    async def work(job):
        runs_of_job.append(job.attempt)
        return "done"

    rule = proxy.rule(settles, fate)
    async with shop.worker():
        [job] = await shop.ended(*await shop.submit("work", {}, options=AT_ONCE))
        assert await becomes_true(lambda: shop.told(Happening.SETTLED))
    assert rule.met == 1
    assert (job.state, job.result, job.attempt) == (JobState.COMPLETED, "done", 1)
    assert runs_of_job == [1]
    assert shop.told(Happening.LOST) == shop.told(Happening.UNKNOWN) == []
    assert shop.metric("corral_jobs_total", outcome="completed") == 1


@pytest.mark.parametrize("fate", CUTS)
async def test_a_retry_whose_answer_is_lost_spends_one_attempt(shop, proxy, fate):
    attempts = []

    @shop.handle("work")
    async def work(job):
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise Transient("again")

    rule = proxy.rule(settles, fate)
    async with shop.worker():
        [job] = await shop.ended(*await shop.submit("work", {}, options=AT_ONCE))
    assert rule.met == 1
    assert attempts == [1, 2, 3]
    assert (job.state, job.attempt) == (JobState.COMPLETED, 3)
    assert shop.told(Happening.LOST) == shop.told(Happening.UNKNOWN) == []


@pytest.mark.parametrize("fate", CUTS)
async def test_jobs_claimed_in_a_trip_whose_answer_is_lost_are_taken_over_at_once(shop, proxy, fate):
    ran = []

    @shop.handle("work")
    async def work(job):
        ran.append(job.id)

    async with shop.worker():
        assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")))
        rule = proxy.rule(claims, fate)
        ids = await shop.submit("work", 1, 2, 3)
        jobs = await shop.ended(*ids, seconds=5)
    assert rule.met == 1
    assert sorted(ran) == sorted(ids)
    assert [(job.attempt, job.stalls, job.starts) for job in jobs] == [(1, 0, 1)] * 3
    assert proxy.count(ADOPT) == 1


async def test_a_trip_that_settles_and_claims_and_is_lost_does_both_once(shop, proxy):
    ran = []

    @shop.handle("work")
    async def work(job):
        ran.append(job.data)

    rule = proxy.rule(settles, Fate.SWALLOW, times=2)
    ids = await shop.submit("work", *range(6))
    async with shop.worker(concurrency=2):
        await shop.ended(*ids)
    assert rule.met == 2
    assert sorted(ran) == list(range(6))
    assert shop.told(Happening.LOST) == shop.told(Happening.UNKNOWN) == []


async def test_two_trips_that_are_lost_together_do_both_once(shop, proxy):
    ends, ran = asyncio.Event(), []

    @shop.handle("work")
    async def work(job):
        ran.append(job.data)
        if job.data == "first":
            await ends.wait()

    async with shop.worker(concurrency=2):
        [first] = await shop.submit("work", "first")
        assert await becomes_true(lambda: ran and runs("BZPOPMIN")(proxy.commands[-1]))
        held = proxy.rule(claims, Fate.HELD)
        [second] = await shop.submit("work", "second")
        assert await becomes_true(lambda: held.met)
        ends.set()
        # it is settled although the answer to the trip before it is not here
        [job] = await shop.ended(first)
        assert (job.state, ran) == (JobState.COMPLETED, ["first"])
        proxy.cut()
        [job] = await shop.ended(second)
        assert (job.state, job.attempt, job.starts) == (JobState.COMPLETED, 1, 1)
        assert await becomes_true(lambda: len(shop.told(Happening.SETTLED)) == 2)
    assert ran == ["first", "second"]
    assert shop.told(Happening.LOST) == shop.told(Happening.UNKNOWN) == []
    assert proxy.count(ADOPT) == 1


async def test_a_settlement_answered_only_after_its_lock_could_have_gone_is_reported_as_unknown(shop, proxy):
    @shop.handle("work")
    async def work(job):
        return "done"

    rule = proxy.rule(settles, Fate.SWALLOW)
    with capture_logs() as logs:
        async with shop.worker(profile=Profile(name="w", lock_ms=30_000)):

            async def go_to_sleep():
                await becomes_true(lambda: rule.met)
                shop.offset_ms += 40_000

            sleeping = asyncio.create_task(go_to_sleep())
            [job_id] = await shop.submit("work", {})
            await sleeping
            assert await becomes_true(lambda: shop.told(Happening.UNKNOWN) or shop.told(Happening.SETTLED))
    # the first trip was applied, but 40 s later nobody can tell it from another worker's settlement
    assert len(shop.told(Happening.UNKNOWN)) == 1
    assert shop.metric("corral_settle_unknown_total") == 1
    assert any(log["event"].startswith("unknown") and log["job"] == job_id for log in logs)
    assert (await shop.job(job_id)).state is JobState.COMPLETED


async def test_while_the_server_is_away_running_jobs_go_on_and_settle_after_its_return(shop, proxy):
    begun, release, ran = asyncio.Event(), asyncio.Event(), []

    @shop.handle("work")
    async def work(job):
        ran.append(job.data)
        begun.set()
        await release.wait()
        return job.data

    async with shop.worker():
        [first] = await shop.submit("work", 1)
        await begun.wait()
        proxy.go_away()
        assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")) >= 1)
        release.set()
        assert await becomes_true(lambda: shop.told(Happening.AWAY))
        [second] = await shop.submit("work", 2)
        assert await becomes_true(lambda: shop.metric("bullmq_redis_reconnect_attempts_total") >= 2)
        assert ran == [1]
        assert shop.metric("bullmq_redis_connection_status") == 0
        proxy.come_back()
        jobs = await shop.ended(first, second)
        assert await becomes_true(lambda: shop.metric("bullmq_redis_connection_status") == 1)
    assert [job.result for job in jobs] == [1, 2]
    assert [job.attempt for job in jobs] == [1, 1]
    assert shop.told(Happening.BACK)


async def test_a_worker_with_limited_tries_ends_with_the_error(shop, proxy):
    worker = shop.new_worker(delays=Reconnect(first_ms=5, most_ms=10).delay, max_tries=3)
    running = asyncio.create_task(worker.run())
    assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")))
    proxy.go_away()
    with pytest.raises(Away):
        await asyncio.wait_for(running, 10)


async def test_a_server_that_has_become_a_replica_is_waited_for():
    server = start_valkey()
    shop = Shop(server.url)
    begun, release = asyncio.Event(), asyncio.Event()

    @shop.handle("work")
    async def work(job):
        begun.set()
        await release.wait()

    try:
        async with shop.worker():
            [job_id] = await shop.submit("work", {})
            await begun.wait()
            with server.connect() as client:
                client.replicaof("127.0.0.1", free_port())
                release.set()
                assert await becomes_true(lambda: shop.told(Happening.AWAY))
                assert isinstance(shop.told(Happening.AWAY)[0].error, ReadOnly)
                client.replicaof("NO", "ONE")
            [job] = await shop.ended(job_id)
        assert (job.state, job.attempt) == (JobState.COMPLETED, 1)
        assert shop.told(Happening.LOST) == []
    finally:
        await shop.close()
        server.stop()


async def test_a_server_that_refuses_for_good_is_asked_again_slowly_and_said_to_be_so(shop, proxy, server):
    waits = []

    def delays(tries):
        waits.append(tries)
        return 0.02

    @shop.handle("work")
    async def work(job):
        pass

    with capture_logs() as logs:
        async with shop.worker(delays=delays):
            assert await becomes_true(lambda: proxy.count(runs("BZPOPMIN")))
            with server.connect() as client:
                client.set("bull:work:wait", "not a list")
            assert await becomes_true(lambda: shop.told(Happening.AWAY))
            assert isinstance(shop.told(Happening.AWAY)[0].error, StoreRefused)
            with server.connect() as client:
                client.delete("bull:work:wait")
            await shop.ended(*await shop.submit("work", {}))
    assert 32 in waits
    assert any(log["log_level"] == "error" and "does not serve" in log["event"] for log in logs)


async def test_forgotten_scripts_are_taught_again(shop, server):
    @shop.handle("work")
    async def work(job):
        return job.data

    async with shop.worker(concurrency=2):
        for number in range(5):
            with server.connect() as client:
                client.script_flush()
            [job] = await shop.ended(*await shop.submit("work", number))
            assert job.result == number
    assert shop.told(Happening.AWAY) == []
