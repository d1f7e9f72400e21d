"""Pages of jobs stay put while jobs move: nothing that stays in its state is left out or shown twice."""

import random

import pytest

from corral.core.job import JobState
from corral.core.options import Capability
from corral.core.outcome import Completed, Dead, Retry
from corral.core.ports import JobPage
from corral.errors import InvalidOptions
from tests.support.harness import QueueHarness
from tests.support.jobs import submit

JOBS = 30


def ids_of(page: JobPage) -> list[str]:
    return [job.id for job in page.jobs]


async def rest_of(harness: QueueHarness, state: JobState, page: JobPage, count: int = 10) -> list[str]:
    """The ids of all pages behind this one."""
    ids: list[str] = []
    cursor = page.cursor
    while cursor is not None:
        page = await harness.inspector.page(state, cursor, count)
        ids += ids_of(page)
        cursor = page.cursor
    return ids


async def ended(harness: QueueHarness, outcome: Completed | Dead, count: int) -> list[str]:
    """Jobs that have ended, each at a time of its own, the last first."""
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}, attempts=1) if harness.can(Capability.RETRY)
                                else harness.job({"n": n}) for n in range(count)])  # fmt: skip
    for claim in (await broker.turn([], count)).claims:
        harness.now += 1
        await broker.turn([harness.settle(claim, outcome)], 0)
    return ids[::-1]


async def test_pages_are_whole_and_the_last_has_no_cursor(harness: QueueHarness) -> None:
    ids = await submit(harness.broker(), [harness.job({"n": n}) for n in range(JOBS)])
    first = await harness.inspector.page(JobState.WAITING, count=10)
    assert [*ids_of(first), *await rest_of(harness, JobState.WAITING, first)] == ids
    assert (await harness.inspector.page(JobState.WAITING, count=JOBS)).cursor is None
    assert ids_of(await harness.inspector.page(JobState.WAITING, count=12)) == ids[:12]


@pytest.mark.parametrize("claimed", [3, 10, 14])
async def test_jobs_that_are_claimed_from_the_head_shift_nothing(harness: QueueHarness, claimed: int) -> None:
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}) for n in range(JOBS)])
    first = await harness.inspector.page(JobState.WAITING, count=10)
    await broker.turn([], claimed)
    added = await submit(broker, [harness.job({"n": n}) for n in range(3)])
    shown = await rest_of(harness, JobState.WAITING, first)
    assert shown == [*ids[max(claimed, 10) :], *added]


async def test_jobs_that_were_claimed_and_came_back_hide_none(harness: QueueHarness) -> None:
    if not harness.can(Capability.RETRY):
        pytest.skip("this protocol has no retry")
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}, attempts=3) for n in range(JOBS)])
    first = await harness.inspector.page(JobState.WAITING, count=10)
    claims = (await broker.turn([], 12)).claims
    await broker.turn([harness.settle(claim, Retry(0, "again")) for claim in claims[5:]], 0)
    harness.now += 10
    await broker.promote()
    shown = await rest_of(harness, JobState.WAITING, first)
    assert shown[: len(ids) - 12] == ids[12:], "behind those that were never claimed"
    assert len(shown) == len(set(shown))


async def test_a_removed_page_leaves_its_neighbours_alone(harness: QueueHarness) -> None:
    ids = await submit(harness.broker(), [harness.job({"n": n}) for n in range(JOBS)])
    first = await harness.inspector.page(JobState.WAITING, count=10)
    assert first.cursor is not None
    second = await harness.inspector.page(JobState.WAITING, first.cursor, 10)
    assert ids_of(second) == ids[10:20]
    await harness.operator.cancel(ids[5:20])
    assert await rest_of(harness, JobState.WAITING, first) == ids[20:]
    assert await rest_of(harness, JobState.WAITING, second) == ids[20:]


async def test_a_pause_does_not_begin_the_list_anew(harness: QueueHarness) -> None:
    if not harness.can(Capability.PAUSE):
        pytest.skip("this protocol has no pause")
    ids = await submit(harness.broker(), [harness.job({"n": n}) for n in range(JOBS)])
    first = await harness.inspector.page(JobState.WAITING, count=10)
    await harness.operator.pause()
    second = await harness.inspector.page(JobState.WAITING, str(first.cursor), 10)
    await harness.operator.resume()
    assert [*ids_of(second), *await rest_of(harness, JobState.WAITING, second)] == ids[10:]


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.DEAD])
async def test_ended_jobs_are_pushed_down_by_none_that_end_later(
    harness: QueueHarness, state: JobState
) -> None:
    outcome = Completed(b"1") if state is JobState.COMPLETED else Dead("boom")
    ids = await ended(harness, outcome, JOBS)
    first = await harness.inspector.page(state, count=10)
    assert ids_of(first) == ids[:10]
    await ended(harness, outcome, 15)
    await harness.operator.remove(ids[8:13])
    assert await rest_of(harness, state, first) == ids[13:]


async def test_active_jobs_that_end_shift_nothing(harness: QueueHarness) -> None:
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}) for n in range(JOBS)])
    claims = {claim.job.id: claim for claim in (await broker.turn([], 20)).claims}
    first = await harness.inspector.page(JobState.ACTIVE, count=8)
    gone = [*ids_of(first)[2:], ids[15]]
    await broker.turn([harness.settle(claims[job_id]) for job_id in gone], 5)
    shown = await rest_of(harness, JobState.ACTIVE, first, 8)
    assert set(ids[:20]) - set(ids_of(first)) - set(gone) <= set(shown)
    assert not set(shown) & set(ids_of(first))
    assert len(shown) == len(set(shown))


async def test_delayed_jobs_due_at_one_time_are_shown_once(harness: QueueHarness) -> None:
    if not harness.can(Capability.DELAY):
        pytest.skip("this protocol has no delay")
    harness.now = harness.now
    ids = await submit(harness.broker(), [harness.job({"n": n}, delay=60_000) for n in range(JOBS)])
    first = await harness.inspector.page(JobState.DELAYED, count=10)
    await harness.operator.promote([ids_of(first)[-1], ids_of(first)[0]])
    shown = await rest_of(harness, JobState.DELAYED, first)
    assert sorted([*ids_of(first), *shown]) == sorted(ids)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_moves_what_stays_is_shown_once(harness: QueueHarness, seed: int) -> None:
    chance = random.Random(seed)
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}) for n in range(60)])
    page = await harness.inspector.page(JobState.WAITING, count=7)
    shown = ids_of(page)
    while page.cursor is not None:
        for claim in (await broker.turn([], chance.randrange(5))).claims:
            await broker.turn([harness.settle(claim)], 0)
        await harness.operator.cancel(chance.sample(ids, 2))
        if chance.random() < 0.5:
            await submit(broker, [harness.job()])
        if harness.can(Capability.LIFO):
            await submit(broker, [harness.job(lifo=True)])
        page = await harness.inspector.page(JobState.WAITING, page.cursor, 7)
        shown += ids_of(page)
    stayed = [job.id for job in await harness.inspector.jobs(JobState.WAITING) if job.id in ids]
    assert [job_id for job_id in shown if job_id in stayed] == stayed
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("cursor", ["x", "after-100", "é", "A" * 20_000, "k6dkZWxheWVkAJNhegGhYQ"])
async def test_a_cursor_that_is_none_is_refused(harness: QueueHarness, cursor: str) -> None:
    with pytest.raises(InvalidOptions, match=r"cursor .*page before"):
        await harness.inspector.page(JobState.WAITING, cursor)
