"""Batches: a handler that takes many jobs at a time, each of which ends by itself."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from corral import (
    Corral,
    InvalidArguments,
    InvalidOptions,
    JobCancelled,
    JobContext,
    JobOutcome,
    JobState,
    Postpone,
    SyncJobContext,
    Transient,
    Unrecoverable,
)
from tests.support import process_app
from tests.support.apps import ended, reached, working
from tests.support.polling import becomes_true, block, forever

PROTOCOLS = pytest.mark.parametrize("protocol", ["bullmq", "streams", "bridgemq"])
QUICK = timedelta(milliseconds=1)


@dataclass
class Text:
    text: str


@dataclass
class Length:
    length: int


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


async def all_ended(handles: Any) -> list[Any]:
    return [await ended(handle.queue, handle.id) for handle in handles]


@PROTOCOLS
async def test_many_jobs_run_in_one_call_and_each_has_its_own_result(app: Corral, protocol: str) -> None:
    sizes: list[int] = []

    @app.job("embed", protocol=protocol, batch=64, linger=timedelta(milliseconds=20))
    async def measure(texts: list[Text]) -> list[Length]:
        sizes.append(len(texts))
        return [Length(len(text.text)) for text in texts]

    handles = await measure.add_many([Text("x" * n) for n in range(150)])
    assert handles[3].data == {"text": "xxx"}, "a job's data is one item"
    async with working(app, concurrency=1):
        results = [await handle.result(timeout=30) for handle in handles]
    assert results == [Length(n) for n in range(150)]
    assert len(sizes) <= 6, f"one slot runs whole batches: {sizes}"
    assert max(sizes) == 64


@PROTOCOLS
async def test_one_jobs_failure_does_not_touch_its_neighbours(app: Corral, protocol: str) -> None:
    calls: list[list[str]] = []

    @app.job("tool", protocol=protocol, batch=10, linger=timedelta(milliseconds=50))
    def work(jobs: list[SyncJobContext], texts: list[Text]) -> list[JobOutcome[int]]:
        calls.append([text.text for text in texts])
        jobs[0].log(f"with {len(jobs)} others")
        return [Unrecoverable("not this one") if text.text == "bad" else len(text.text) for text in texts]

    queue = work.queue
    handles = await work.add_many([Text("a"), Text("bad"), Text("ccc")])
    async with Corral(app.url) as stranger:
        odd = await stranger.queue(queue.name, protocol).add("tool", {"wrong": 1})
    async with working(app):
        jobs = await all_ended(handles)
        unfit = await ended(queue, odd.id)
    assert [(job.state, job.result) for job in jobs if job.state is not JobState.DEAD] == [
        (JobState.COMPLETED, 1),
        (JobState.COMPLETED, 3),
    ]
    assert (jobs[1].state, jobs[1].reason, jobs[1].attempts_made) == (JobState.DEAD, "not this one", 1)
    assert (unfit.state, calls) == (JobState.DEAD, [["a", "bad", "ccc"]])
    assert "does not fit" in str(unfit.reason)
    with pytest.raises(InvalidArguments):
        await work.add(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["bullmq", "bridgemq"])
async def test_what_a_handler_may_raise_it_may_return_for_one_job(app: Corral, protocol: str) -> None:
    """Retries keep their own count of attempts, and what is postponed spends none."""
    seen: list[tuple[str, int]] = []

    @app.job("tool", protocol=protocol, batch=10, linger=QUICK, attempts=3, backoff=1)
    async def work(jobs: list[JobContext]) -> list[JobOutcome[int]]:
        outcomes: list[JobOutcome[int]] = []
        for job in jobs:
            seen.append((job.data["kind"], job.attempt))
            again = len([kind for kind, _ in seen if kind == job.data["kind"]]) < 3
            error = Transient("again") if job.data["kind"] == "retry" else Postpone(1)
            outcomes.append(error if again else job.attempt)
        return outcomes

    async with working(app):
        jobs = await all_ended([await work.add({"kind": "retry"}), await work.add({"kind": "postpone"})])
    assert [job.result for job in jobs] == [3, 1]


@PROTOCOLS
async def test_an_error_that_is_raised_fails_the_whole_batch(app: Corral, protocol: str) -> None:
    @app.job("tool", protocol=protocol, batch=3, linger=QUICK)
    async def work(jobs: list[JobContext]) -> None:
        raise Unrecoverable("all of them")

    handles = [await work.add({"n": n}) for n in range(3)]
    async with working(app):
        jobs = await all_ended(handles)
    assert {(job.state, job.reason) for job in jobs} == {(JobState.DEAD, "all of them")}


async def test_a_list_of_another_length_is_refused(app: Corral) -> None:
    @app.job(batch=3, linger=QUICK)
    async def work(items: list[int]) -> list[int]:
        return [1]

    handles = await work.add_many([1, 2, 3])
    async with working(app):
        jobs = await all_ended(handles)
    assert {job.reason for job in jobs} == {
        "the handler of 'work' returned 1 results for 3 jobs; return a list with the result or the "
        "exception of each, in their order, or None"
    }


async def test_none_completes_every_job(app: Corral) -> None:
    @app.job(batch=3, linger=QUICK)
    def store(rows: list[int]) -> None:
        assert sorted(rows) == [1, 2]

    handles = await store.add_many([1, 2])
    async with working(app):
        assert [job.state for job in await all_ended(handles)] == [JobState.COMPLETED] * 2


async def test_a_batch_takes_one_slot_and_others_run_beside_it(app: Corral) -> None:
    running = 0
    most = 0
    go = asyncio.Event()

    @app.job(batch=8, linger=timedelta(milliseconds=50))
    async def many(items: list[int]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    @app.job
    async def single(number: int) -> int:
        return number

    handles = await many.add_many(range(32))
    others = await single.add_many(range(3))
    async with working(app, concurrency=3):
        assert await becomes_true(lambda: running >= 2)
        go.set()
        await all_ended([*handles, *others])
    assert most <= 3


async def test_a_timeout_ends_the_batch_and_the_slot(app: Corral) -> None:
    calls = 0

    @app.job(batch=2, linger=QUICK, timeout=timedelta(milliseconds=50), attempts=1)
    async def work(items: list[int]) -> None:
        nonlocal calls
        calls += 1
        if 0 in items:
            await forever()

    handles = await work.add_many([0, 1, 2, 3])
    async with working(app, concurrency=1):
        jobs = await all_ended(handles)
    assert [job.state for job in jobs[:2]] == [JobState.DEAD] * 2
    assert [job.state for job in jobs[2:]] == [JobState.COMPLETED] * 2
    assert (jobs[0].reason, calls) == ("'work' took longer than 0.05 s", 2)


async def test_a_thread_that_outlasts_its_timeout_keeps_its_slot(app: Corral) -> None:
    times: list[float] = []

    @app.job(batch=2, linger=QUICK, timeout=timedelta(milliseconds=50), attempts=1)
    def work(items: list[int]) -> None:
        times.append(time.monotonic())
        if 0 in items:
            block(0.3)

    handles = await work.add_many([0, 1, 2])
    async with working(app, concurrency=1):
        jobs = await all_ended(handles)
    assert [job.state for job in jobs] == [JobState.DEAD, JobState.DEAD, JobState.COMPLETED]
    assert times[1] - times[0] >= 0.3


@PROTOCOLS
async def test_one_job_of_a_batch_is_cancelled(app: Corral, protocol: str) -> None:
    @app.job("tool", protocol=protocol, batch=2, linger=timedelta(milliseconds=50))
    async def work(jobs: list[JobContext]) -> list[JobOutcome[str]]:
        while not any(job.cancelled for job in jobs):
            await asyncio.sleep(0.01)
        return [JobCancelled() if job.cancelled else "done" for job in jobs]

    first, second = [await work.add({"n": n}) for n in range(2)]
    async with working(app, lock_ms=1000, heartbeat=0.1):
        await reached(work.queue, first.id, JobState.ACTIVE)
        await work.queue.cancel([first.id])
        jobs = await all_ended([second, first])
    assert jobs[0].result == "done"
    assert jobs[1].state in (JobState.CANCELLED, JobState.DEAD)
    assert jobs[1].attempts_made <= 1


@PROTOCOLS
async def test_what_was_collected_and_what_runs_is_given_back_at_the_end(app: Corral, protocol: str) -> None:
    started = asyncio.Event()

    @app.job("tool", protocol=protocol, batch=2, linger=timedelta(seconds=2), concurrency=1)
    async def work(jobs: list[JobContext]) -> None:
        started.set()
        await forever()

    handles = [await work.add({"n": n}) for n in range(3)]
    async with working(app):
        await asyncio.wait_for(started.wait(), 10)
    counts = await work.queue.counts()
    assert counts[JobState.WAITING] == 3
    job = await work.queue.job(handles[0].id)
    assert job is not None
    assert job.attempts_made == 0


async def test_locks_of_a_batch_are_renewed_while_it_runs(app: Corral) -> None:
    runs = 0

    @app.job(batch=5, linger=QUICK)
    async def work(items: list[int]) -> list[int]:
        nonlocal runs
        runs += len(items)
        await asyncio.sleep(0.9)
        return items

    handles = await work.add_many(range(5))
    async with working(app, lock_ms=300, recover_ms=100):
        jobs = await all_ended(handles)
    assert ([job.result for job in jobs], runs) == ([0, 1, 2, 3, 4], 5)


async def test_a_batch_runs_in_a_process(url: str) -> None:
    app = process_app.app_at(url)
    handles = [await process_app.batch.add(n) for n in range(3)]
    async with working(app, queues=["heavy-batches"]):
        jobs = await all_ended(handles)
        logs = await process_app.batch.queue.logs(handles[2].id)
    await app.close()
    assert [job.result for job in jobs if job.state is JobState.COMPLETED] == [
        {"text": "0 bank, through middleware"},
        {"text": "2 bank, through middleware"},
    ]
    assert (jobs[1].state, jobs[1].reason) == (JobState.DEAD, "not one")
    assert logs == [f"job {handles[2].id} of 3"]


async def test_middleware_is_around_each_job_of_a_batch(app: Corral) -> None:
    seen: list[Any] = []

    @app.middleware
    async def noted(job: Any, call_next: Any) -> Any:
        if job.data == 4:
            return "not called"
        try:
            result = await call_next(job)
        except Transient:
            return await call_next(job)
        seen.append((job.data, result))
        return result * 10

    calls: list[list[int]] = []

    @app.job(batch=3, linger=timedelta(milliseconds=20))
    async def work(items: list[int]) -> list[JobOutcome[int]]:
        calls.append(items)
        return [Transient("again") if item == 1 and len(calls) == 1 else item for item in items]

    @app.job("threaded", batch=3, linger=timedelta(milliseconds=20))
    def threaded(items: list[int]) -> list[int]:
        return items

    handles = await work.add_many([1, 2, 4])
    others = await threaded.add_many([5, 6])
    async with working(app):
        jobs = await all_ended([*handles, *others])
    assert [job.result for job in jobs] == [1, 20, "not called", 50, 60]
    assert calls == [[1, 2], [1]]
    assert sorted(seen) == [(2, 2), (5, 5), (6, 6)]


async def test_a_def_middleware_is_around_each_job_in_the_handlers_thread(app: Corral) -> None:
    threads: set[int] = set()
    calls: list[list[int]] = []
    tenant: ContextVar[int] = ContextVar("tenant")

    @app.middleware
    async def first(job: Any, call_next: Any) -> Any:
        tenant.set(job.data)
        return await call_next(job)

    @app.middleware
    def noted(job: Any, call_next: Any) -> Any:
        threads.add(threading.get_ident())
        if job.data == 3:
            return "not called"
        try:
            return call_next(job)
        except Transient:
            return call_next(job) + 100

    @app.job(batch=200, linger=timedelta(milliseconds=50))
    def work(items: list[int]) -> list[JobOutcome[int]]:
        threads.add(threading.get_ident())
        calls.append([*items, tenant.get()])
        return [Transient("again") if item == 2 and len(items) > 1 else item for item in items]

    handles = await work.add_many([1, 2, 3, 4])
    async with working(app):
        jobs = await all_ended(handles)
        assert [job.result for job in jobs] == [1, 102, "not called", 4]
        assert (calls, len(threads)) == ([[1, 2, 4, 1], [2, 1]], 1)
        calls.clear()
        jobs = await all_ended(await work.add_many(range(10, 160)))
    assert [job.result for job in jobs] == list(range(10, 160))
    assert max(len(call) for call in calls) <= 101


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "batch=0 is no whole number from 1 to 10000"),
        ({"batch": "5"}, "batch='5' is no whole number"),
        ({"batch": 5, "linger": -1}, "linger=-1: give seconds from 0"),
        ({"batch": 5, "linger": "x"}, "linger='x': give seconds from 0"),
        ({"linger": 1}, "linger=1 is for batches; give their size too: batch=64"),
        ({"batch": 5, "data": "whole"}, "data='whole': the data of a batch's job is always the whole"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused_where_it_is_written(
    app: Corral, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidOptions) as refusal:
        app.job(**options)
    assert words in str(refusal.value)


def one(item: int) -> list[int]:
    return [item]


def two(items: list[int], more: list[int]) -> list[int]:
    return items


def text(items: list[int]) -> str:
    return ""


def contexts(jobs: list[JobContext]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (one, "takes batches: give it one list"),
        (two, "takes batches: give it one list"),
        (text, "takes batches and returns <class 'str'>"),
        (contexts, "is a `def` and takes JobContexts; use list[SyncJobContext]"),
    ],
)
async def test_a_handler_that_cannot_take_batches_is_refused(app: Corral, fn: Any, words: str) -> None:
    with pytest.raises(InvalidOptions) as refusal:
        app.job(batch=5)(fn)
    assert words in str(refusal.value)


async def test_a_linger_that_locks_do_not_outlast_is_refused(app: Corral) -> None:
    @app.job(batch=5, linger=timedelta(seconds=10))
    async def work(items: list[int]) -> None: ...

    with pytest.raises(InvalidOptions, match="longer than a quarter of lock_ms=30000"):
        app.workers()
