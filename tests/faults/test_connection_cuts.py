"""A connection cut at every point of a turn: nothing lost, nothing doubled, no attempt spent twice."""

import asyncio

import pytest

from tests.faults.connection_cuts import add_work, expected, finish, storm, through, work
from tests.faults.trips import CUTS, Trip, cut_every, cuts, is_adoption, is_trip
from tests.support.polling import becomes_true
from tests.support.proxy import LATE_S, ProxyFault
from tests.support.worker_processes import scaled, seeded

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(("fault", "number"), cuts(2, 3, 7))
async def test_trips_that_settle_and_claim_may_be_cut_anywhere(harness, proxy, fault, number):
    rule = cut_every(proxy, number, is_trip(harness.protocol, Trip.BOTH), fault)
    await add_work(harness, scaled(120, least=60))
    async with harness.worker(work, through(proxy), concurrency=4):
        await finish(harness)
    assert rule.met >= 3
    harness.assert_attempts(expected(harness))


@pytest.mark.parametrize(("fault", "number"), cuts(2, 3))
async def test_trips_that_only_claim_may_be_cut_anywhere(harness, proxy, fault, number):
    rule = cut_every(proxy, number, is_trip(harness.protocol, Trip.CLAIM), fault)
    async with harness.worker(work, through(proxy)):
        for _ in range(scaled(15, least=8)):
            await add_work(harness, 3)
            await finish(harness)
    assert rule.met >= 3
    harness.assert_attempts(expected(harness))


@pytest.mark.parametrize(("fault", "number"), cuts(2, 3))
async def test_trips_that_only_settle_may_be_cut_anywhere(harness, proxy, fault, number):
    held = 8
    rule = cut_every(proxy, number, is_trip(harness.protocol, Trip.SETTLE), fault)
    for _ in range(scaled(3, least=2)):
        begun, may_end = [], asyncio.Semaphore(0)

        async def hold(job, begun=begun, may_end=may_end):
            begun.append(job.id)
            await may_end.acquire()
            return await work(job)

        await add_work(harness, held)
        async with harness.worker(hold, through(proxy), concurrency=held) as worker:
            assert await becomes_true(lambda begun=begun: len(begun) == held)
            # a worker that stops claims no more: from here on it only settles
            stopping = asyncio.create_task(worker.stop(grace=30))
            for _ in range(held):
                await asyncio.sleep(0.005)
                may_end.release()
            await stopping
        async with harness.worker(work):
            await finish(harness)
    assert rule.met >= 3
    harness.assert_attempts(expected(harness))


@pytest.mark.parametrize("fault", [*CUTS, ProxyFault.SILENCE])
async def test_asking_for_the_claims_of_a_lost_answer_may_be_cut_anywhere(harness, proxy, fault):
    lost = cut_every(proxy, 3, is_trip(harness.protocol, Trip.BOTH), ProxyFault.SWALLOW)
    rule = cut_every(proxy, 2, is_adoption(harness.protocol), fault)
    await add_work(harness, scaled(120, least=60))
    async with harness.worker(work, through(proxy), concurrency=4):
        await finish(harness)
    assert lost.met >= 3
    assert rule.met >= 3
    harness.assert_attempts(expected(harness))


@pytest.mark.parametrize("trip", [Trip.CLAIM, Trip.BOTH])
async def test_a_trip_that_arrives_when_its_worker_has_gone_on_runs_nothing_twice(harness, proxy, trip):
    async def nap_and_work(job):
        await asyncio.sleep(LATE_S / 6)
        return await work(job)

    rule = cut_every(proxy, 3, is_trip(harness.protocol, trip), ProxyFault.LATE)
    async with harness.worker(nap_and_work, through(proxy), concurrency=3):
        for _ in range(scaled(8, least=6)):
            # more than can be claimed before the late trip is there
            await add_work(harness, 24)
            await finish(harness)
    assert rule.met >= 2
    harness.assert_attempts(expected(harness))


@pytest.mark.timeout(300)
async def test_any_command_on_any_connection_may_be_cut_anywhere(harness, proxy):
    cut = await storm(harness, proxy, jobs=scaled(10_000, least=500), random=seeded())
    print(f"{cut} commands were cut")
    assert cut >= scaled(100, least=10)
    harness.assert_attempts(expected(harness))
