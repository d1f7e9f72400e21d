"""What workers write about themselves: who they are, what they run, and what they did in each minute."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis

from corral import Corral, JobContext, Unrecoverable
from corral.core.ports import MINUTE_BOUNDS_MS, Minute, WorkerInfo
from corral.protocols.records import percentile
from tests.support.polling import until

PROTOCOLS = ["bullmq", "streams", "bridgemq"]
FAST = {"lock_ms": 400}
"""Beats every 100 ms."""


@asynccontextmanager
async def working(app: Corral) -> AsyncIterator[None]:
    workers = app.workers(concurrency=3, name="w-1", **FAST)
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        await asyncio.gather(*(worker.stop(5) for worker in workers))
        await asyncio.gather(*tasks)


@pytest.fixture
async def app(url: str, protocol: str) -> AsyncIterator[Corral]:
    async with Corral(url, protocol=protocol) as app:
        yield app


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_worker_says_who_it_is_and_what_it_runs(app: Corral, client: redis.Redis) -> None:
    go = asyncio.Event()

    @app.job("embed")
    async def film(job: JobContext, title: str, seconds: int = 90) -> None:
        await go.wait()

    async def record() -> WorkerInfo | None:
        workers = await film.queue.workers()
        is_complete = bool(workers and workers[0].record and workers[0].record.running)
        return workers[0] if is_complete else None

    async with working(app):
        handle = await film.add("a title")
        worker = await until(record)
        assert worker is not None
        assert worker.record is not None
        seen = worker.record
        assert (seen.name, seen.host, seen.process) == ("w-1", socket.gethostname(), os.getpid())
        assert (seen.concurrency, seen.running_count) == (3, 1)
        assert [(job.id, job.name) for job in seen.running] == [(handle.id, "embed")]
        assert seen.since <= seen.running[0].since <= seen.at
        [arguments] = seen.handlers["embed"]["$defs"].values()
        assert arguments["properties"].keys() == {"title", "seconds"}
        assert arguments["required"] == ["title"]
        go.set()
    assert await film.queue.workers() == []
    assert not [key for key in client.keys("corral:*") if b":worker" in key], (
        "a worker that stops leaves no record"
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_workers_did_is_counted_by_minute(app: Corral, client: redis.Redis) -> None:
    @app.job("embed")
    async def divide(job: JobContext, by: int) -> float:
        await asyncio.sleep(0.02)
        if not by:
            raise Unrecoverable("zero")
        return 1 / by

    async def counted() -> list[Minute]:
        minutes = await divide.queue.minutes(5)
        return minutes if sum(one.completed for one in minutes) == 6 else []

    async with working(app):
        await divide.add_many([1, 2, 3, 4, 5, 6, 0, 0])
        minutes = await until(counted)
    minutes = await divide.queue.minutes(5)
    assert len(minutes) == 5
    assert sum(one.dead for one in minutes) == 2
    runs = [sum(each) for each in zip(*(one.runs for one in minutes if one.runs), strict=True)]
    waits = [sum(each) for each in zip(*(one.waits for one in minutes if one.waits), strict=True)]
    assert sum(runs) == 8
    assert not any(runs[: MINUTE_BOUNDS_MS.index(10) + 1]), "each took 20 ms"
    assert sum(waits) > 0
    assert percentile(runs, 0.5) in MINUTE_BOUNDS_MS
    keys = client.keys("corral:*")
    assert 1 <= len(keys) <= 2, "one key for each hour"
    assert all(client.pttl(key) > 0 for key in keys)


@pytest.mark.parametrize("protocol", ["bullmq"])
async def test_added_jobs_are_computed_from_what_ended_and_what_waits(
    app: Corral, client: redis.Redis
) -> None:
    queue = app.queue("mail")
    now = app.clock() // 60_000 * 60_000
    for at, fields in (
        (now - 60_000, {"depth": 10, "completed": 5}),
        (now, {"depth": 14, "completed": 20, "dead": 1}),
    ):
        minute = at % 3_600_000 // 60_000
        key = f"corral:bullmq:bull:mail:minutes:{at // 3_600_000 * 3_600_000}"
        client.hset(key, mapping={f"{minute}:{name}": value for name, value in fields.items()})
    before, last = await queue.minutes(2)
    assert (before.added, last.added) == (None, 25)


@pytest.mark.parametrize("protocol", ["bullmq"])
async def test_records_that_others_wrote_are_passed_over(app: Corral, client: redis.Redis) -> None:
    client.sadd("corral:bullmq:bull:mail:workers", "odd", "gone")
    client.set("corral:bullmq:bull:mail:worker:odd", b"\xff{not json")
    assert await app.queue("mail").workers() == []
    assert client.smembers("corral:bullmq:bull:mail:workers") == {b"odd"}
