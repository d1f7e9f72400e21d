"""Every job as it stands while the queue works on, and many jobs in at once, once."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import pytest

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.options import Capability
from corral.core.outcome import Completed, Dead, Released
from corral.core.ports import Broker, Ledger
from corral.errors import InvalidName, InvalidPayload
from tests.support.harness import QueueHarness
from tests.support.jobs import submit

ALL = JobFilter()
LEDGER = Ledger("query/7", 60)


def snapshot(harness: QueueHarness):
    return harness.protocol.bind(harness.binding()).snapshot


def producer(harness: QueueHarness) -> Broker:
    return harness.protocol.bind(harness.binding("producer")).broker


async def submit_once(harness: QueueHarness, jobs: Sequence[Job], ledger: Ledger = LEDGER) -> int:
    """How many of these jobs were new."""
    answers = await producer(harness).submit(jobs, ledger)
    assert [answer.id for answer in answers] == [job.id for job in jobs]  # type: ignore[union-attr]
    return sum(not answer.existed for answer in answers)  # type: ignore[union-attr]


async def everyone(harness: QueueHarness, wanted: JobFilter = ALL) -> list[Job]:
    """One pass over all records, each read once."""
    taken, seen, cursor = snapshot(harness), set(), "0"
    jobs: list[Job] = []
    while True:
        ids, cursor = await taken.ids(cursor)
        fresh = [job_id for job_id in dict.fromkeys(ids) if job_id not in seen]
        seen.update(fresh)
        jobs += await taken.read(fresh, wanted)
        if cursor == "0":
            return jobs


async def shelves(harness: QueueHarness) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    taken, cursor = snapshot(harness), "0"
    while True:
        page, cursor = await taken.listed(cursor)
        for place, job_id in page:
            found.setdefault(place, set()).add(job_id)
        if cursor == "0":
            return found


async def mixed(harness: QueueHarness) -> dict[JobState, set[str]]:
    """Jobs in every state that every protocol has."""
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}) for n in range(9)])
    claims = list((await broker.turn([], 6)).claims)
    await broker.turn([harness.settle(claim, Completed(b'{"ok":1}')) for claim in claims[:2]], 0)
    await broker.turn([harness.settle(claims[2], Dead("boom"))], 0)
    return {
        JobState.COMPLETED: {claim.job.id for claim in claims[:2]},
        JobState.DEAD: {claims[2].job.id},
        JobState.ACTIVE: {claim.job.id for claim in claims[3:]},
        JobState.WAITING: set(ids) - {claim.job.id for claim in claims},
    }


async def test_a_census_meets_every_job_in_its_state(harness: QueueHarness):
    expected = await mixed(harness)
    jobs = await everyone(harness)
    found: dict[JobState, set[str]] = {}
    for job in jobs:
        assert job.state is not None
        assert job.queue == harness.queue
        found.setdefault(job.state, set()).add(job.id)
    assert found == expected
    assert len(jobs) == 9


async def test_a_census_reads_what_the_inspector_reads(harness: QueueHarness):
    await mixed(harness)
    for job in await everyone(harness):
        seen = await harness.inspector.job(job.id)
        assert seen is not None
        assert (job.name, job.data, job.state, job.result, job.reason) == (
            seen.name, seen.data, seen.state, seen.result, seen.reason,
        )  # fmt: skip


async def test_a_census_of_nothing_is_empty(harness: QueueHarness):
    assert await everyone(harness) == []
    assert await shelves(harness) == {}
    assert await snapshot(harness).leaks() == []


async def test_only_wanted_jobs_are_read(harness: QueueHarness):
    expected = await mixed(harness)

    async def ids(wanted: JobFilter) -> set[str]:
        return {job.id for job in await everyone(harness, wanted)}

    assert await ids(JobFilter(states=frozenset({JobState.DEAD}))) == expected[JobState.DEAD]
    assert await ids(JobFilter(states=frozenset({JobState.WAITING, JobState.ACTIVE}))) == (
        expected[JobState.WAITING] | expected[JobState.ACTIVE]
    )
    assert len(await ids(JobFilter(names=frozenset({harness.job_name, "other"})))) == 9
    assert await ids(JobFilter(names=frozenset({"other"}))) == set()
    assert await ids(JobFilter(since=harness.clock() + 60_000)) == set()
    assert len(await ids(JobFilter(since=harness.clock() - 60_000, until=harness.clock() + 60_000))) == 9
    assert await ids(JobFilter(until=harness.clock() - 60_000)) == set()


async def test_shelves_hold_what_is_not_over_once_each(harness: QueueHarness):
    expected = await mixed(harness)
    listed = await shelves(harness)
    alive = expected[JobState.WAITING] | expected[JobState.ACTIVE]
    assert alive <= set().union(*listed.values())
    for found in await snapshot(harness).locate(sorted(alive)):
        assert found.has_record
        assert len(found.places) == 1
        assert found.id in listed[found.places[0]]


async def test_a_job_that_is_nowhere_is_told_so(harness: QueueHarness):
    await mixed(harness)
    unknown = str(uuid4())
    [found] = await snapshot(harness).locate([unknown])
    assert (found.id, found.has_record, found.places) == (unknown, False, ())


async def test_a_long_queue_is_listed_to_its_end(harness: QueueHarness):
    ids = await submit(harness.broker(), [harness.job() for _ in range(2500)])
    await harness.broker().turn([], 3)
    listed = await shelves(harness)
    assert set(ids) <= set().union(*listed.values())


async def test_a_census_under_load_meets_each_job_that_stays_exactly_once(harness: QueueHarness):
    broker = harness.broker()
    staying = set(await submit(broker, [harness.job({"n": n}) for n in range(1500)]))
    stop = asyncio.Event()

    async def churn() -> None:
        hand = harness.broker("worker-b")
        while not stop.is_set():
            # claimed and given back: every job changes its state all the time, and none ends
            claims = (await hand.turn([], 50)).claims
            await hand.turn([harness.settle(claim, Released()) for claim in claims], 0)

    working = asyncio.create_task(churn())
    try:
        for _ in range(5):
            jobs = await everyone(harness)
            assert sorted(job.id for job in jobs) == sorted(staying)
            assert {job.state for job in jobs} <= {JobState.WAITING, JobState.ACTIVE}
    finally:
        stop.set()
        await working


async def test_nothing_leaks_while_jobs_are_worked(harness: QueueHarness):
    await mixed(harness)
    assert await snapshot(harness).leaks() == []


# -- submitting under a ledger ------------------------------------------------------------------------------


def fresh(harness: QueueHarness, count: int) -> list[Job]:
    return [harness.job({"n": n}, id=str(uuid4())) for n in range(count)]


async def test_what_is_sent_twice_is_added_once(harness: QueueHarness):
    jobs = fresh(harness, 20)
    assert await submit_once(harness, jobs) == 20
    assert await submit_once(harness, jobs) == 0
    claims = (await harness.broker().turn([], 100)).claims
    assert sorted(claim.job.id for claim in claims) == sorted(job.id for job in jobs)
    assert [claim.job.data["n"] for claim in claims] == list(range(20))


async def test_what_has_ended_and_is_gone_is_not_added_again(harness: QueueHarness):
    jobs = fresh(harness, 3)
    await submit_once(harness, jobs)
    broker = harness.broker()
    claims = (await broker.turn([], 3)).claims
    await broker.turn([harness.settle(claim) for claim in claims], 0)
    assert sorted(await harness.operator.remove([job.id for job in jobs])) == sorted(job.id for job in jobs)
    assert await submit_once(harness, jobs) == 0
    assert (await broker.turn([], 3)).claims == []


async def test_the_rest_of_a_half_written_batch_is_added(harness: QueueHarness):
    jobs = fresh(harness, 10)
    assert await submit_once(harness, jobs[:4]) == 4
    assert await submit_once(harness, jobs) == 6
    assert len((await harness.broker().turn([], 100)).claims) == 10


async def test_batches_of_any_size_are_added_once(harness: QueueHarness):
    jobs = fresh(harness, 1234)
    assert await submit_once(harness, jobs[:700]) == 700
    assert await submit_once(harness, jobs) == 534
    assert (await harness.inspector.counts())[JobState.WAITING] == 1234


async def test_one_id_twice_in_one_call_is_one_job(harness: QueueHarness):
    [job] = fresh(harness, 1)
    assert await submit_once(harness, [job, job]) == 1
    assert len((await harness.broker().turn([], 5)).claims) == 1


async def test_another_ledger_knows_nothing_of_it(harness: QueueHarness):
    [job] = fresh(harness, 1)
    await submit_once(harness, [job])
    broker = harness.broker()
    await broker.turn([harness.settle(claim) for claim in (await broker.turn([], 1)).claims], 0)
    await harness.operator.remove([job.id])
    await producer(harness).drop_ledger(LEDGER)
    assert await submit_once(harness, [job]) == 1
    assert len((await broker.turn([], 5)).claims) == 1


async def test_a_ledger_goes_by_itself_in_the_end(harness: QueueHarness, server):
    await submit_once(harness, fresh(harness, 1), Ledger("query/8", 60))
    with server.connect() as client:
        [key] = list(client.scan_iter("*ledger:query/8"))
        assert 0 < client.ttl(key) <= 60
        await producer(harness).drop_ledger(Ledger("query/8", 60))
        assert client.exists(key) == 0


async def test_a_job_without_an_id_is_refused(harness: QueueHarness):
    with pytest.raises(InvalidName, match="has no id") as refusal:
        await submit_once(harness, [*fresh(harness, 2), harness.job()])
    assert refusal.value.position == 2
    assert (await harness.inspector.counts())[JobState.WAITING] == 0


async def test_a_refused_job_of_many_is_named_by_its_place_and_nothing_is_written(harness: QueueHarness):
    jobs = fresh(harness, 5)
    bad = harness.job({"n": {1, 2}}, id=str(uuid4()))
    with pytest.raises(InvalidPayload) as refusal:
        await submit_once(harness, [jobs[0], jobs[0], *jobs[1:3], bad, *jobs[3:]])
    assert refusal.value.position == 4
    assert (await harness.inspector.counts())[JobState.WAITING] == 0


async def test_options_of_the_protocol_are_kept_on_the_way_in(harness: QueueHarness):
    own = {"delay": 60_000} if harness.can(Capability.DELAY) else {"extra": {"ttl_s": 77}}
    job = harness.job({"n": 1}, id=str(uuid4()), **own)
    await submit_once(harness, [job])
    [kept] = await everyone(harness)
    assert (kept.state is JobState.DELAYED) == harness.can(Capability.DELAY)
    assert harness.can(Capability.DELAY) or kept.options.extra["ttl_s"] == 77
