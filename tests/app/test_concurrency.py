"""`concurrency=` and `limit=` of a job type: how many run at a time in a worker, and begin in a time."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral import Corral, InvalidOptions, JobFilter, JobState, Limit
from tests.support.apps import ended, working
from tests.support.polling import becomes_true, block

PROTOCOLS = pytest.mark.parametrize("protocol", ["bullmq", "streams", "bridgemq"])


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


class Gauge:
    """How many run now, and ran at most."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    async def run(self, seconds: float) -> None:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(seconds)
        self.now -= 1


async def all_ended(handles: Any) -> list[Any]:
    return [await ended(handle.queue, handle.id) for handle in handles]


@PROTOCOLS
async def test_a_handler_runs_so_often_at_a_time_and_others_use_the_slots(app: Corral, protocol: str) -> None:
    heavy, light = Gauge(), Gauge()

    @app.job("tool", protocol=protocol, concurrency=2)
    async def tool(n: int) -> None:
        await heavy.run(0.02)

    @app.job("chat", protocol=protocol)
    async def chat(n: int) -> None:
        await light.run(0.02)

    handles = [*await tool.add_many(range(12)), *await chat.add_many(range(12))]
    async with working(app, concurrency=8):
        jobs = await all_ended(handles)
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert (heavy.most, heavy.total) == (2, 12)
    assert light.most > 2, "what waits for its handler takes no slot"
    assert {job.attempts_made for job in jobs} == {1}, "no attempt was spent by waiting"


@pytest.mark.parametrize("protocol", ["bullmq", pytest.param("bridgemq", marks=pytest.mark.faults)])
async def test_others_pass_jobs_whose_handler_is_busy_for_long(app: Corral, protocol: str) -> None:
    """What would wait for long is put back: it takes no slot, spends no attempt, and comes again."""
    gauge, go = Gauge(), asyncio.Event()
    passed = 0

    @app.job("tool", protocol=protocol, concurrency=1)
    async def tool(n: int) -> None:
        gauge.most = max(gauge.most, gauge.now + 1)
        gauge.now += 1
        await go.wait()
        gauge.now -= 1

    @app.job("chat", protocol=protocol)
    async def chat(n: int) -> None:
        nonlocal passed
        passed += 1

    first = await tool.add_many(range(12))
    await chat.add_many(range(3))
    async with working(app, concurrency=2):
        assert await becomes_true(lambda: passed == 3), "they waited behind the others"
        counts = await tool.queue.counts()
        assert counts[JobState.ACTIVE] <= 3
        assert counts[JobState.DELAYED] >= 6
        go.set()
        await tool.queue.promote(JobFilter())
        jobs = await all_ended(first)
    assert ({job.attempts_made for job in jobs}, gauge.most) == ({1}, 1)


async def test_a_worker_claims_nothing_while_its_only_handler_is_busy(app: Corral) -> None:
    gauge = Gauge()

    @app.job(concurrency=2)
    async def tool(n: int) -> None:
        await gauge.run(0.3)

    await tool.add_many(range(6))
    async with working(app, concurrency=10):
        assert await becomes_true(lambda: gauge.now == 2)
        counts = await tool.queue.counts()
        assert (counts[JobState.ACTIVE], counts[JobState.WAITING]) == (2, 4), "others may have them"


async def test_a_thread_that_outlasts_its_timeout_counts(app: Corral) -> None:
    times: list[float] = []

    @app.job(concurrency=1, timeout=0.05, attempts=1)
    def tool(n: int) -> None:
        times.append(time.monotonic())
        if n == 0:
            block(0.3)

    handles = await tool.add_many(range(2))
    async with working(app, concurrency=10):
        jobs = await all_ended(handles)
    assert [job.state for job in jobs] == [JobState.DEAD, JobState.COMPLETED]
    assert times[1] - times[0] >= 0.3


@PROTOCOLS
async def test_so_many_begin_in_a_time_in_all_workers_together(app: Corral, url: str, protocol: str) -> None:
    begins: list[float] = []

    def register(app: Corral) -> Any:
        @app.job("tool", protocol=protocol, limit=Limit(5, 400))
        async def tool(n: int) -> None:
            begins.append(time.monotonic())

        return tool

    async with Corral(url) as other:
        register(other)
        tool = register(app)
        handles = await tool.add_many(range(15))
        async with working(app, concurrency=4), working(other, concurrency=4):
            jobs = await all_ended(handles)
    assert ({job.state for job in jobs}, {job.attempts_made for job in jobs}) == ({JobState.COMPLETED}, {1})
    windows = Counter(int((begin - begins[0]) / 0.35) for begin in begins)
    assert max(windows.values()) <= 10
    assert begins[-1] - begins[0] >= 0.7, "three windows"
    assert sum(begin - begins[0] < 0.35 for begin in begins) == 5


@pytest.mark.parametrize("protocol", ["bullmq", "bridgemq"])
async def test_others_pass_jobs_whose_limit_is_used_up(app: Corral, protocol: str) -> None:
    ran: Counter[str] = Counter()

    @app.job("tool", protocol=protocol, limit=Limit(2, 60_000))
    async def tool(n: int) -> None:
        ran["tool"] += 1

    @app.job("chat", protocol=protocol)
    async def chat(n: int) -> None:
        ran["chat"] += 1

    await tool.add_many(range(20))
    await chat.add_many(range(5))
    async with working(app, concurrency=2):
        assert await becomes_true(lambda: ran["chat"] == 5)
        assert ran["tool"] == 2
    counts = await tool.queue.counts()
    assert counts[JobState.DELAYED] + counts[JobState.WAITING] == 18
    assert [job.attempts_made for job in await tool.queue.jobs(JobState.DELAYED)] == [0] * counts[
        JobState.DELAYED
    ]


async def test_one_limited_handler_leaves_its_jobs_where_they_wait(app: Corral) -> None:
    ran = 0

    @app.job(limit=Limit(2, 60_000))
    async def tool(n: int) -> None:
        nonlocal ran
        ran += 1

    await tool.add_many(range(200))
    async with working(app, concurrency=10):
        assert await becomes_true(lambda: ran == 2)
        await asyncio.sleep(0.2)
    counts = await tool.queue.counts()
    assert counts[JobState.WAITING] >= 180
    assert ran == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency=0 is no whole number from 1"),
        ({"concurrency": True}, "concurrency=True is no whole number from 1"),
        ({"limit": 5}, "limit=5: give a Limit(count, milliseconds)"),
        ({"limit": Limit(0, 5)}, "its count is no whole number from 1"),
        ({"limit": Limit(1, 0)}, "its duration is no whole number from 1"),
    ],
)
async def test_rules_that_cannot_be_are_refused_where_they_are_written(
    app: Corral, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidOptions) as refusal:
        app.job(**options)
    assert words in str(refusal.value)
