"""Unique, throttled and debounced jobs: in every protocol that can, and refused in those that cannot."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from corral import Capability, Corral, InvalidOptions, JobState, JobType, Unsupported
from corral.protocols import names_with, protocol_names
from tests.support.apps import working
from tests.support.polling import until
from tests.support.servers import Server

ABLE = names_with(Capability.UNIQUE)
DEBOUNCING = [name for name in ABLE if name in names_with(Capability.DELAY)]
UNABLE = [name for name in protocol_names() if name not in DEBOUNCING]
HOUR = timedelta(hours=1)
SOON = timedelta(milliseconds=150)


debouncing = pytest.mark.parametrize("protocol", DEBOUNCING)


@pytest.fixture(params=ABLE)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def app(url: str, protocol: str) -> AsyncIterator[Corral]:
    async with Corral(url, protocol=protocol) as app:
        yield app


def echoing(app: Corral, ran: list[int], **options: Any) -> JobType[[int], int]:
    @app.job("tool", **options)
    async def echo(n: int) -> int:
        ran.append(n)
        return n

    return echo


async def test_a_key_has_one_job_until_it_has_ended(app: Corral) -> None:
    ran: list[int] = []
    echo = echoing(app, ran)
    keyed = echo.options(unique="order-17")
    first, second = await keyed.add(1), await keyed.add(2)
    assert (first.existed, second.existed, second.id) == (False, True, first.id)
    assert second.data == {"n": 1}, "a duplicate shows what is stored"
    assert not (await echo.options(unique="order-18").add(3)).existed
    async with working(app):
        assert await second.result(timeout=30) == 1
        third = await keyed.add(4)
        assert await third.result(timeout=30) == 4
    assert not third.existed
    assert sorted(ran) == [1, 3, 4]


async def test_a_dead_or_removed_job_frees_its_key_too(app: Corral) -> None:
    @app.job("tool", unique="one", attempts=1)
    async def failing(n: int) -> None:
        raise ValueError(n)

    first = await failing.add(1)
    await failing.queue.remove([first.id])
    second = await failing.add(2)
    assert not second.existed
    async with working(app):
        assert await second.wait(timeout=30) is JobState.DEAD
    assert not (await failing.add(3)).existed


async def test_true_is_by_name_and_data_whatever_their_order(app: Corral) -> None:
    @app.job("tool", unique=True)
    async def plan(a: int, b: int) -> None: ...

    @app.job("code", unique=True)
    async def other(a: int, b: int) -> None: ...

    first = await plan.add(a=1, b=2)
    assert (await plan.add(b=2, a=1)).id == first.id
    assert (await plan.queue.add("tool", {"b": 2, "a": 1})).existed, "the handler's options hold by name too"
    assert not (await plan.add(1, 3)).existed
    assert not (await other.add(1, 2)).existed
    assert not (await plan.options(unique=None).add(1, 2)).existed


async def test_for_a_time_a_key_is_taken_although_its_job_has_ended(app: Corral, protocol: str) -> None:
    ran: list[int] = []
    kept = {"keep_data": True} if protocol == "bridgemq" else {}  # where a completed job has none else
    echo = echoing(app, ran, **kept)
    for_a_time = echo.options(unique={"key": "k", "period": HOUR})
    for_a_moment = echo.options(unique={"key": "m", "period": timedelta(milliseconds=400)})
    async with working(app):
        await for_a_moment.add(1)
        first = await for_a_time.add(1)
        assert await first.result(timeout=30) == 1
        again = await for_a_time.add(2)
        assert (again.existed, again.id, again.data) == (True, first.id, {"n": 1})
        assert await again.result(timeout=30) == 1

        async def anew() -> bool:
            return not (await for_a_moment.add(3)).existed

        await until(anew, "the period is over")


async def test_a_throttled_name_runs_the_first_of_a_period(app: Corral) -> None:
    ran: list[int] = []
    throttled = echoing(app, ran, throttle=HOUR)
    handles = [await throttled.add(n) for n in range(5)]
    assert [handle.existed for handle in handles] == [False, True, True, True, True]
    per_user = throttled.options(throttle={"key": "user-7", "period": HOUR})
    assert [(await per_user.add(n)).existed for n in (5, 6)] == [False, True]
    async with working(app):
        await handles[4].result(timeout=30)
        await until(lambda: _is(ran, [0, 5]), "the first of each key ran")


@debouncing
async def test_a_debounced_name_runs_the_last_when_no_more_come(app: Corral) -> None:
    ran: list[int] = []
    debounced = echoing(app, ran, debounce=HOUR)
    async with working(app):
        handles = [await debounced.add(n) for n in range(5)]
        assert [handle.existed for handle in handles] == [False] * 5
        await debounced.queue.promote([handles[-1].id])
        assert await handles[-1].result(timeout=30) == 4
        alone = await debounced.options(debounce={"key": "alone", "period": SOON}).add(5)
        assert await alone.result(timeout=30) == 5
    assert ran == [4, 5]
    assert [await handle.state() for handle in handles[:4]] == [None] * 4, "each was replaced by the next"


@debouncing
async def test_what_comes_while_the_debounced_job_runs_is_not_lost(app: Corral) -> None:
    ran: list[int] = []
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.job("tool", debounce={"key": "doc-7", "period": SOON})
    async def index(n: int) -> None:
        ran.append(n)
        begun.set()
        await may_end.wait()

    async with working(app):
        await index.add(1)
        # its key lives a little longer than its delay: the next comes while it is taken, and its job runs
        await index.queue.promote([job.id for job in await index.queue.jobs(JobState.DELAYED)])
        await begun.wait()
        last = await index.add(2)
        may_end.set()
        assert await last.wait(timeout=30) is JobState.COMPLETED
    assert (last.existed, ran) == (False, [1, 2])


async def test_many_jobs_in_one_call_count_as_one_by_one(app: Corral) -> None:
    ran: list[int] = []
    echo = echoing(app, ran)
    handles = await echo.options(unique=True).add_many([1, 2, 1, 3, 2])
    assert [handle.existed for handle in handles] == [False, False, True, False, True]
    assert [handle.data["n"] for handle in handles] == [1, 2, 1, 3, 2]
    assert handles[2].id == handles[0].id
    ids = await echo.queue.add_many(
        [("tool", {"n": 4}, {"unique": "k"}), ("tool", {"n": 5}, {"unique": "k"})]
    )
    assert ids[0] == ids[1]


ADDING = """
import asyncio, sys
from corral import Corral

async def main(url, protocol, count):
    async with Corral(url, protocol=protocol) as app:
        queue = app.queue()
        await queue.counts()
        print("ready", flush=True)
        sys.stdin.readline()
        adds = [queue.add("tool", {"n": n}, unique="order-17") for n in range(count)]
        print(sum(not handle.existed for handle in await asyncio.gather(*adds)), flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def test_200_adds_at_once_from_3_processes_are_one_job(app: Corral, url: str, protocol: str) -> None:
    pipe = asyncio.subprocess.PIPE
    adders = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", ADDING, url, protocol, str(count), stdin=pipe, stdout=pipe
        )
        for count in (67, 67, 66)
    ]
    for adder in adders:
        assert adder.stdout is not None
        assert await adder.stdout.readline() == b"ready\n"
    answers = await asyncio.gather(*(adder.communicate(b"go\n") for adder in adders))
    assert sorted(int(out) for out, _ in answers) == [0, 0, 1]
    assert len(await app.queue().jobs(JobState.WAITING)) == 1


@pytest.mark.parametrize("protocol", UNABLE)
async def test_a_protocol_without_delay_cannot_debounce_and_says_so(
    url: str, protocol: str, server: Server
) -> None:
    sentence = (
        f"protocol {protocol!r} has no delay, so debounce of 500 ms cannot be kept; "
        f"leave it out, or use a protocol that has it"
    )
    async with Corral(url, protocol=protocol) as app:
        with pytest.raises(Unsupported) as refusal:
            await app.queue().add("tool", {}, debounce=500)
        assert str(refusal.value) == sentence
        with pytest.raises(Unsupported, match="has no delay"):
            app.job("tool", debounce=timedelta(seconds=1))
    with server.connect() as client:
        assert client.dbsize() == 0


async def test_keys_that_corral_adds_end_by_themselves(app: Corral, server: Server, protocol: str) -> None:
    await app.queue().add("tool", {}, unique="order-17")
    await app.queue().add("tool", {}, throttle={"key": "user-7", "period": 60_000})
    with server.connect() as client:
        lives = {key: client.pttl(key) for key in client.keys("*:unique:*")}
    if protocol == "bullmq":
        assert lives == {}, "it has keys of its own for this"
        return
    assert len(lives) == 2
    short, long = sorted(lives.values())
    assert 0 < short <= 60_000 < long <= 30 * 86_400_000


async def _is(ran: list[int], expected: list[int]) -> bool:
    return sorted(ran) == expected


@debouncing
async def test_a_schedule_is_not_unique(app: Corral) -> None:
    echo = echoing(app, [], unique=True)
    with pytest.raises(InvalidOptions, match="unique=None"):
        app.schedule(echo.call(1), cron="0 3 * * *")
    app.schedule(echo.call(1), cron="0 3 * * *", unique=None)
