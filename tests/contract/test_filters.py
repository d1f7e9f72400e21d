"""Writes over a filter, and the difference between retry and replay."""

import pytest

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.options import Capability
from corral.core.outcome import Dead
from corral.core.ports import Added
from corral.errors import InvalidPayload, Refused, Unsupported
from tests.support.harness import QueueHarness
from tests.support.jobs import submit


async def dead_jobs(harness: QueueHarness, count: int, reason: str = "boom") -> list[str]:
    """Jobs that have died."""
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}) for n in range(count)])
    claims = (await broker.turn([], count)).claims
    await broker.turn([harness.settle(claim, Dead(reason)) for claim in claims], 0)
    return ids


async def test_a_search_finds_what_its_filter_selects(harness: QueueHarness) -> None:
    lost = await dead_jobs(harness, 2, "connection lost")
    await dead_jobs(harness, 3, "no such user")
    selected = JobFilter(states=frozenset({JobState.DEAD}), reason="lost")
    assert {job.id for job in await harness.inspector.search(selected)} == set(lost)
    one = JobFilter(states=frozenset({JobState.DEAD}), limit=1)
    assert len(await harness.inspector.search(one)) == 1
    assert await harness.inspector.search(JobFilter(names=frozenset({"other"}))) == []


async def test_a_retry_keeps_the_attempts_made_and_a_replay_does_not(harness: QueueHarness) -> None:
    retried, replayed = await dead_jobs(harness, 2)
    if not harness.can(Capability.RETRY):
        for act in (harness.operator.retry, harness.operator.replay):
            with pytest.raises(Unsupported, match="submit its payload as a new job"):
                await act([retried])
        return
    assert await harness.operator.retry([retried]) == [retried]
    assert await harness.operator.replay([replayed]) == [replayed]
    claims = {claim.job.id: claim.job for claim in (await harness.broker().turn([], 2)).claims}
    assert (claims[retried].attempts_made, claims[replayed].attempts_made) == (1, 0)


async def test_a_filter_replays_dead_jobs_and_no_more_than_its_limit(harness: QueueHarness) -> None:
    if not harness.can(Capability.RETRY):
        pytest.skip("this protocol has no retry")
    ids = await dead_jobs(harness, 5)
    first = await harness.operator.replay(JobFilter(limit=2))
    rest = await harness.operator.replay(JobFilter(reason="boom"))
    assert (len(first), sorted([*first, *rest])) == (2, sorted(ids))
    assert await harness.operator.replay(JobFilter()) == []


async def test_clean_deletes_ended_jobs_of_the_states_it_names(harness: QueueHarness) -> None:
    ids = await dead_jobs(harness, 3)
    assert await harness.operator.clean(JobFilter()) == [], "completed ones, where it names none"
    dead = JobFilter(states=frozenset({JobState.DEAD}), ended_until=harness.now + 1000, limit=2)
    assert len(await harness.operator.clean(dead)) == 2
    others = JobFilter(states=frozenset({JobState.DEAD}), reason="something else")
    assert await harness.operator.clean(others) == []
    assert len(await harness.operator.clean(JobFilter(states=frozenset({JobState.DEAD})))) == len(ids) - 2


async def test_a_refusal_leaves_others_alone_unless_they_stand_together(
    harness: QueueHarness,
) -> None:
    broker = harness.broker()
    jobs = [harness.job({"n": 1}), harness.job({"n": object()}), harness.job({"n": 3})]
    with pytest.raises(InvalidPayload) as refusal:
        await broker.submit(jobs)
    assert refusal.value.position == 1
    assert (await broker.turn([], 3)).claims == []
    first, second, third = await broker.submit(jobs, together=False)
    assert isinstance(first, Added)
    assert isinstance(second, Refused)
    assert isinstance(third, Added)
    assert [claim.job.id for claim in (await broker.turn([], 3)).claims] == [first.id, third.id]


async def test_an_answer_says_whether_the_job_existed(harness: QueueHarness) -> None:
    broker = harness.broker()
    chosen = "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55"
    job = harness.job(id=chosen)
    assert await broker.submit([job, harness.job(), job]) == [
        Added(chosen),
        Added((await harness.inspector.jobs(JobState.WAITING))[1].id),
        Added(chosen, existed=True),
    ]
