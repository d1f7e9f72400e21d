"""Which errors are retried: rules of a job and of the app, unknown errors, and the worker's defaults."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from corral import Corral, InvalidOptions, Job, JobState, Keep, Postpone, SyncJobContext, Transient
from tests.support import handlers
from tests.support.apps import ended, working
from tests.support.logs import capture_logs


class GatewayDown(Exception):
    """An error that no table knows."""


class Refusal(ConnectionError):
    """An error that the table would retry."""


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


async def outcome(app: Corral, error: BaseException, **options: Any) -> Job:
    """Return the job of a handler that raises this error, once it has ended."""

    @app.job("work", attempts=3, backoff=1, **options)
    async def work() -> None:
        raise error

    async with working(app):
        return await ended(work.queue, (await work.add()).id)


async def test_an_unknown_error_ends_the_job_and_says_what_to_do(app: Corral) -> None:
    with capture_logs() as logs:
        job = await outcome(app, GatewayDown("no answer"))
    note = (
        "no answer [not retried, with 2 attempts left: no rule says that GatewayDown may go away; "
        "retry_on=[GatewayDown] on the job or the app retries it, give_up_on=[GatewayDown] ends this note]"
    )
    assert (job.state, job.attempts_made, job.reason) == (JobState.DEAD, 1, note)
    assert note in [line.get("reason") for line in logs], "the log line says so too"


async def test_a_known_permanent_error_needs_no_note(app: Corral) -> None:
    job = await outcome(app, KeyError("to"))
    assert (job.attempts_made, job.reason) == (1, "KeyError: 'to'")


@pytest.mark.parametrize(
    ("of_app", "of_job", "error", "attempts"),
    [
        ({}, {"retry_on": [GatewayDown]}, GatewayDown("x"), 3),
        ({}, {"retry_on": [f"{__name__}.GatewayDown"]}, GatewayDown("x"), 3),
        ({"retry_on": GatewayDown}, {}, GatewayDown("x"), 3),
        ({"retry_on": [GatewayDown]}, {"give_up_on": [GatewayDown]}, GatewayDown("x"), 1),
        ({"give_up_on": [Refusal]}, {"retry_on": [ConnectionError]}, Refusal("x"), 3),
        ({"give_up_on": [Refusal]}, {"retry_on": [KeyError]}, Refusal("x"), 1),
        ({"retry_unknown": True}, {}, GatewayDown("x"), 3),
        ({"retry_unknown": True}, {}, KeyError("x"), 1),
    ],
)
async def test_the_rules_of_a_job_come_before_those_of_its_app(
    url: str, of_app: dict[str, Any], of_job: dict[str, Any], error: BaseException, attempts: int
) -> None:
    async with Corral(url, **of_app) as app:
        job = await outcome(app, error, **of_job)
    assert (job.attempts_made, job.state) == (attempts, JobState.DEAD)
    assert "not retried" not in (job.reason or "")


async def test_the_rules_hold_for_errors_of_a_process(app: Corral) -> None:
    note = app.job("note", process=True, attempts=2, backoff=1)(handlers.raise_unknown)
    retried = app.job("retried", process=True, attempts=2, backoff=1, retry_on=[handlers.Unknown])(
        handlers.raise_unknown
    )
    async with working(app):
        noted = await ended(note.queue, (await note.add()).id)
        job = await ended(retried.queue, (await retried.add()).id)
    assert noted.attempts_made == 1
    assert "retry_on=[Unknown]" in (noted.reason or "")
    assert job.attempts_made == 2


async def test_a_rule_that_contradicts_itself_is_refused_where_it_is_written(app: Corral) -> None:
    with pytest.raises(InvalidOptions, match="is in both retry_on and give_up_on"):
        app.job(retry_on=[GatewayDown], give_up_on=[GatewayDown])
    with pytest.raises(InvalidOptions, match="5 is no exception; use a class, or its full name"):
        app.job(retry_on=[5])  # type: ignore[call-overload]


# -- jobs without options of their own ----------------------------------------------------------------------


def add_like_node(client: redis.Redis, opts: str) -> None:
    """Add a job with these options, as Node would."""
    client.hset("bull:mail:1", mapping={
        "name": "work", "data": "{}", "opts": opts, "timestamp": 1, "delay": 0, "priority": 0,
    })  # fmt: skip
    client.lpush("bull:mail:wait", "1")
    client.zadd("bull:mail:marker", {"0": 0})


@pytest.mark.parametrize(
    ("options", "opts", "attempts"),
    [
        ({}, "{}", 1),
        ({"default_attempts": 3, "default_backoff": timedelta(milliseconds=5)}, "{}", 3),
        ({"default_attempts": 3}, '{"attempts":2}', 2),
    ],
)
async def test_what_node_adds_without_options_has_the_apps_defaults(
    url: str, client: redis.Redis, options: dict[str, Any], opts: str, attempts: int
) -> None:
    async with Corral(url, **options) as app:

        @app.job("work", queue="mail")
        async def work() -> None:
            raise ConnectionError("always")

        add_like_node(client, opts)
        async with working(app):
            job = await ended(work.queue, "1")
        events = [event.kind for event in await work.queue.events.range()]
    assert (job.state, job.attempts_made) == (JobState.DEAD, attempts)
    assert ("retry" in events) == (attempts > 1)


async def test_the_app_says_which_ended_jobs_are_kept(url: str) -> None:
    async with Corral(url, keep_completed=2, keep_dead=timedelta(days=1)) as app:

        @app.job("work", queue="mail")
        async def work(number: int) -> int:
            return number

        [worker] = app.workers()
        assert worker.config.profile.keep_completed == Keep(count=2)
        assert worker.config.profile.keep_dead == Keep(age=86_400)
        [own] = app.workers(keep_completed=timedelta(minutes=1))
        assert own.config.profile.keep_completed == Keep(age=60)
        async with working(app):
            for handle in await work.add_many(range(5)):
                await handle.result(20)
        assert (await work.queue.counts())[JobState.COMPLETED] == 2
    with pytest.raises(InvalidOptions, match="keep_completed is True; use how many to keep"):
        Corral(url, keep_completed=True)


async def test_a_timedelta_is_taken_wherever_a_number_of_time_is(app: Corral) -> None:
    soon, second = timedelta(milliseconds=5), timedelta(seconds=1)

    @app.job("work", queue="mail", timeout=second, backoff={"type": "fixed", "delay": soon}, attempts=2)
    def work(job: SyncJobContext) -> bool:
        if job.job.starts == 1:
            raise Postpone(soon)
        if job.job.starts == 2:
            raise Transient("once more")
        return job.wait_cancelled(soon) or job.wait_stopping(soon)

    handle = await work.options(delay=soon).add({})
    await work.queue.update(handle.id, delay=soon)
    async with working(app, grace=second, recover_ms=second, promote_ms=second):
        assert await handle.result(timeout=timedelta(seconds=20)) is False


# -- options of workers -------------------------------------------------------------------------------------


async def test_an_unknown_option_of_a_worker_is_refused_with_the_nearest_name(app: Corral) -> None:
    @app.job("work", queue="mail")
    async def work() -> None: ...

    with pytest.raises(InvalidOptions, match=r"there is no option 'lock_sm'; did you mean 'lock_ms'\?"):
        app.workers(lock_sm=400)  # type: ignore[call-arg]
    with pytest.raises(
        InvalidOptions, match=r"there is no option 'conccurrency'; did you mean 'concurrency'\?"
    ):
        await app.run(conccurrency=400)  # type: ignore[call-arg]


async def test_heartbeat_and_max_events_are_options_of_a_worker(app: Corral, client: redis.Redis) -> None:
    @app.job("work", queue="mail")
    async def work() -> None: ...

    [worker] = app.workers(heartbeat=timedelta(seconds=0.05), lock_ms=timedelta(seconds=2))
    assert (worker.config.heartbeat_s, worker.config.profile.lock_ms) == (0.05, 2000)
    with pytest.raises(InvalidOptions, match=r"heartbeat=20 is not between 0 and 15\.0 seconds"):
        app.workers(heartbeat=20)
    with pytest.raises(InvalidOptions, match="max_events=0 is not a whole number"):
        app.workers(max_events=0)
    async with working(app, max_events=77, heartbeat=0.05):
        await (await work.add()).result(20)
    assert client.hget("bull:mail:meta", "opts.maxLenEvents") == b"77"
