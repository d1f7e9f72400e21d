"""What holds where nothing is said: attempts, backoff and its cap, what is kept of finished jobs."""

import asyncio
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral import Backoff, Corral, Job, JobState, Keep, Queue
from corral.errors import CorralWarning
from tests.support.apps import working
from tests.support.polling import until


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


async def test_defaults_are_three_attempts_and_exponential_backoff_from_a_second(app: Corral) -> None:
    options = (await app.queue("mail").add("greet")).job.options
    assert options.attempts == 3
    assert options.backoff == Backoff("exponential", 1000)
    assert (options.priority, options.delay, options.lifo) == (0, 0, False)
    assert (options.keep_completed, options.keep_dead) == (None, None)
    assert options.keep_logs == 1000


async def test_a_backoff_grows_to_an_hour_and_no_further(app: Corral) -> None:
    """The thirteenth attempt and each after it wait an hour, not 4096 s and more."""

    @app.job("flaky", queue="mail", attempts=50)
    async def flaky(job: Any) -> None:
        raise ConnectionError("away")

    waits = []
    async with working(app):
        for made in (0, 10, 11, 12, 30):
            job = await flaky.options(id=f"made-{made}").add({})
            waits.append(await _wait_after(app, flaky.queue, job, made))
    assert waits == [1000, 1_024_000, 2_048_000, 3_600_000, 3_600_000]


async def _wait_after(app: Corral, queue: Queue, job: Job, made: int) -> int:
    """How long the job waits after `made` attempts and one more."""
    store = app.store()
    deadline = asyncio.get_running_loop().time() + 10
    while asyncio.get_running_loop().time() < deadline:
        fields = await store.call("HMGET", f"bull:mail:{job.id}", "atm", "delay")
        if fields[0] == b"1" and made:
            # as if it had failed before, and is due now
            await store.call("HSET", f"bull:mail:{job.id}", "atm", made)
            await queue.promote([job.id])
        elif fields[0] == str(made + 1).encode():
            return int(fields[1])
        await asyncio.sleep(0.01)
    raise AssertionError(f"job {job.id} was not tried again: {fields}")


@pytest.mark.parametrize(("given", "kept"), [(True, 0), (0, 0), (1, 1), (2, 2), (False, 3)])
async def test_finished_jobs_are_kept_as_many_as_asked(app: Corral, given: Any, kept: int) -> None:
    @app.job("greet", queue="mail", remove_on_complete=given)
    async def greet(job: Any) -> None: ...

    @app.job("fail", queue="mail", remove_on_fail=given, attempts=1)
    async def fail(job: Any) -> None:
        raise ValueError("no")

    ids = [(await kind.add({})).id for kind in (greet, fail) for _ in range(3)]
    queue = app.queue("mail")
    async with working(app, concurrency=1):

        async def are_over() -> bool:
            counts = await queue.counts()
            return not counts[JobState.WAITING] + counts[JobState.ACTIVE]

        await until(are_over)
    counts = await queue.counts()
    assert (counts[JobState.COMPLETED], counts[JobState.DEAD]) == (kept, kept)
    alive = [job_id for job_id in ids if await queue.job(job_id) is not None]
    assert len(alive) == 2 * kept
    assert alive == [*ids[3 - kept : 3], *ids[6 - kept :]], "the newest are kept"


async def test_keeping_very_many_finished_jobs_is_allowed_with_a_warning(app: Corral) -> None:
    with pytest.warns(CorralWarning, match="keeps 10001 jobs"):
        job = await app.queue("mail").add("greet", {}, remove_on_complete=10_001)
    assert job.job.options.keep_completed == Keep(count=10_001)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await app.queue("mail").add("greet", {}, remove_on_complete=10_000)
