"""Every job as it stands while the queue works on, and many jobs in at once, once."""

import asyncio
from uuid import uuid4

import pytest

from corral.core.bulk import Ledger, Wanted
from corral.core.capability import Capability
from corral.core.job import Job, JobState
from corral.core.outcome import Completed, Dead, Released
from corral.errors import InvalidName, InvalidPayload
from tests.contract.conftest import House, settle

ALL = Wanted()
LEDGER = Ledger("query/7", 60)


def census(house: House):
    return house.protocol.census(house.binding())


def intake(house: House):
    return house.protocol.intake(house.binding("producer"))


async def everyone(house: House, wanted: Wanted = ALL) -> list[Job]:
    """One pass over all records, each read once."""
    taken, seen, cursor = census(house), set(), "0"
    jobs: list[Job] = []
    while True:
        ids, cursor = await taken.ids(cursor)
        fresh = [job_id for job_id in dict.fromkeys(ids) if job_id not in seen]
        seen.update(fresh)
        jobs += await taken.read(fresh, wanted)
        if cursor == "0":
            return jobs


async def shelves(house: House) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    taken, cursor = census(house), "0"
    while True:
        page, cursor = await taken.listed(cursor)
        for place, job_id in page:
            found.setdefault(place, set()).add(job_id)
        if cursor == "0":
            return found


async def mixed(house: House) -> dict[JobState, set[str]]:
    """Jobs in every state that every protocol has."""
    broker = house.broker()
    ids = await broker.submit([house.job({"n": n}) for n in range(9)])
    claims = list((await broker.turn([], 6)).claims)
    await broker.turn([settle(claim, Completed(b'{"ok":1}')) for claim in claims[:2]], 0)
    await broker.turn([settle(claims[2], Dead("boom"))], 0)
    return {
        JobState.COMPLETED: {claim.job.id for claim in claims[:2]},
        JobState.DEAD: {claims[2].job.id},
        JobState.ACTIVE: {claim.job.id for claim in claims[3:]},
        JobState.WAITING: set(ids) - {claim.job.id for claim in claims},
    }


async def test_a_census_meets_every_job_in_its_state(house: House):
    expected = await mixed(house)
    jobs = await everyone(house)
    found: dict[JobState, set[str]] = {}
    for job in jobs:
        assert job.state is not None
        assert job.queue == house.queue
        found.setdefault(job.state, set()).add(job.id)
    assert found == expected
    assert len(jobs) == 9


async def test_a_census_reads_what_the_inspector_reads(house: House):
    await mixed(house)
    for job in await everyone(house):
        seen = await house.inspector.job(job.id)
        assert seen is not None
        assert (job.name, job.data, job.state, job.result, job.reason) == (
            seen.name, seen.data, seen.state, seen.result, seen.reason,
        )  # fmt: skip


async def test_a_census_of_nothing_is_empty(house: House):
    assert await everyone(house) == []
    assert await shelves(house) == {}
    assert await census(house).leaks() == []


async def test_only_wanted_jobs_are_read(house: House):
    expected = await mixed(house)

    async def ids(wanted: Wanted) -> set[str]:
        return {job.id for job in await everyone(house, wanted)}

    assert await ids(Wanted(states=frozenset({JobState.DEAD}))) == expected[JobState.DEAD]
    assert await ids(Wanted(states=frozenset({JobState.WAITING, JobState.ACTIVE}))) == (
        expected[JobState.WAITING] | expected[JobState.ACTIVE]
    )
    assert len(await ids(Wanted(names=frozenset({house.job_name, "other"})))) == 9
    assert await ids(Wanted(names=frozenset({"other"}))) == set()
    assert await ids(Wanted(since=house.clock() + 60_000)) == set()
    assert len(await ids(Wanted(since=house.clock() - 60_000, until=house.clock() + 60_000))) == 9
    assert await ids(Wanted(until=house.clock() - 60_000)) == set()


async def test_shelves_hold_what_is_not_over_once_each(house: House):
    expected = await mixed(house)
    listed = await shelves(house)
    alive = expected[JobState.WAITING] | expected[JobState.ACTIVE]
    assert alive <= set().union(*listed.values())
    for found in await census(house).locate(sorted(alive)):
        assert found.has_record
        assert len(found.places) == 1
        assert found.id in listed[found.places[0]]


async def test_a_job_that_is_nowhere_is_told_so(house: House):
    await mixed(house)
    unknown = str(uuid4())
    [found] = await census(house).locate([unknown])
    assert (found.id, found.has_record, found.places) == (unknown, False, ())


async def test_a_long_queue_is_listed_to_its_end(house: House):
    ids = await house.broker().submit([house.job() for _ in range(2500)])
    await house.broker().turn([], 3)
    listed = await shelves(house)
    assert set(ids) <= set().union(*listed.values())


async def test_a_census_under_load_meets_each_job_that_stays_exactly_once(house: House):
    broker = house.broker()
    staying = set(await broker.submit([house.job({"n": n}) for n in range(1500)]))
    stop = asyncio.Event()

    async def churn() -> None:
        hand = house.broker("worker-b")
        while not stop.is_set():
            # claimed and given back: every job changes its state all the time, and none ends
            claims = (await hand.turn([], 50)).claims
            await hand.turn([settle(claim, Released()) for claim in claims], 0)

    working = asyncio.create_task(churn())
    try:
        for _ in range(5):
            jobs = await everyone(house)
            assert sorted(job.id for job in jobs) == sorted(staying)
            assert {job.state for job in jobs} <= {JobState.WAITING, JobState.ACTIVE}
    finally:
        stop.set()
        await working


async def test_nothing_leaks_while_jobs_are_worked(house: House):
    await mixed(house)
    assert await census(house).leaks() == []


# -- intake -------------------------------------------------------------------------------------------------


def fresh(house: House, count: int) -> list[Job]:
    return [house.job({"n": n}, id=str(uuid4())) for n in range(count)]


async def test_what_is_sent_twice_is_added_once(house: House):
    jobs = fresh(house, 20)
    assert await intake(house).submit_once(jobs, LEDGER) == 20
    assert await intake(house).submit_once(jobs, LEDGER) == 0
    claims = (await house.broker().turn([], 100)).claims
    assert sorted(claim.job.id for claim in claims) == sorted(job.id for job in jobs)
    assert [claim.job.data["n"] for claim in claims] == list(range(20))


async def test_what_has_ended_and_is_gone_is_not_added_again(house: House):
    jobs = fresh(house, 3)
    await intake(house).submit_once(jobs, LEDGER)
    broker = house.broker()
    claims = (await broker.turn([], 3)).claims
    await broker.turn([settle(claim) for claim in claims], 0)
    assert sorted(await house.operator.remove([job.id for job in jobs])) == sorted(job.id for job in jobs)
    assert await intake(house).submit_once(jobs, LEDGER) == 0
    assert (await broker.turn([], 3)).claims == []


async def test_the_rest_of_a_half_written_batch_is_added(house: House):
    jobs = fresh(house, 10)
    assert await intake(house).submit_once(jobs[:4], LEDGER) == 4
    assert await intake(house).submit_once(jobs, LEDGER) == 6
    assert len((await house.broker().turn([], 100)).claims) == 10


async def test_batches_of_any_size_are_added_once(house: House):
    jobs = fresh(house, 1234)
    assert await intake(house).submit_once(jobs[:700], LEDGER) == 700
    assert await intake(house).submit_once(jobs, LEDGER) == 534
    assert (await house.inspector.counts())[JobState.WAITING] == 1234


async def test_one_id_twice_in_one_call_is_one_job(house: House):
    [job] = fresh(house, 1)
    assert await intake(house).submit_once([job, job], LEDGER) == 1
    assert len((await house.broker().turn([], 5)).claims) == 1


async def test_another_ledger_knows_nothing_of_it(house: House):
    [job] = fresh(house, 1)
    await intake(house).submit_once([job], LEDGER)
    broker = house.broker()
    await broker.turn([settle(claim) for claim in (await broker.turn([], 1)).claims], 0)
    await house.operator.remove([job.id])
    await intake(house).forget(LEDGER)
    assert await intake(house).submit_once([job], LEDGER) == 1
    assert len((await broker.turn([], 5)).claims) == 1


async def test_a_ledger_goes_by_itself_in_the_end(house: House, server):
    await intake(house).submit_once(fresh(house, 1), Ledger("query/8", 60))
    with server.connect() as client:
        [key] = list(client.scan_iter("*ledger:query/8"))
        assert 0 < client.ttl(key) <= 60
        await intake(house).forget(Ledger("query/8", 60))
        assert client.exists(key) == 0


async def test_a_job_without_an_id_is_refused(house: House):
    with pytest.raises(InvalidName, match="has no id") as refusal:
        await intake(house).submit_once([*fresh(house, 2), house.job()], LEDGER)
    assert refusal.value.position == 2
    assert (await house.inspector.counts())[JobState.WAITING] == 0


async def test_a_refused_job_of_many_is_named_by_its_place_and_nothing_is_written(house: House):
    jobs = fresh(house, 5)
    bad = house.job({"n": {1, 2}}, id=str(uuid4()))
    with pytest.raises(InvalidPayload) as refusal:
        await intake(house).submit_once([jobs[0], jobs[0], *jobs[1:3], bad, *jobs[3:]], LEDGER)
    assert refusal.value.position == 4
    assert (await house.inspector.counts())[JobState.WAITING] == 0


async def test_options_of_the_protocol_are_kept_on_the_way_in(house: House):
    own = {"delay": 60_000} if house.can(Capability.DELAY) else {"extra": {"ttl_s": 77}}
    job = house.job({"n": 1}, id=str(uuid4()), **own)
    await intake(house).submit_once([job], LEDGER)
    [kept] = await everyone(house)
    assert (kept.state is JobState.DELAYED) == house.can(Capability.DELAY)
    assert house.can(Capability.DELAY) or kept.options.extra["ttl_s"] == 77
