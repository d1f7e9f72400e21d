"""Handlers as their writers know them: where they run, what they may say, and how they end."""

import os
import re
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral import (
    Corral,
    InvalidName,
    InvalidOptions,
    JobCancelled,
    JobState,
    Postpone,
    Release,
    Transient,
    Unrecoverable,
)
from corral.protocols import protocol_names
from tests.support import handlers
from tests.support.apps import ended, reached, working
from tests.support.polling import becomes_true, forever, until

SHORT_LOCK = {"lock_ms": 400}
"""A cancellation reaches its handler with the next renewal: a quarter of this."""
PROTOCOLS = pytest.mark.parametrize(("protocol", "name"), [("bullmq", "paint"), ("streams", "tool")])


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


# -- where they run -----------------------------------------------------------------------------------------


async def test_an_async_handler_runs_on_the_event_loop(app: Corral) -> None:
    @app.job("where")
    async def where(job: Any) -> str:
        return threading.current_thread().name

    async with working(app):
        job = await ended(where.queue, (await where.add()).id)
    assert job.result == threading.current_thread().name


async def test_a_sync_handler_runs_in_a_thread_and_the_loop_goes_on(app: Corral) -> None:
    is_told = threading.Event()

    @app.job("where")
    def where(job: Any) -> list[Any]:
        # only the event loop can set this: a handler that blocked it would wait in vain
        return [threading.current_thread().name, is_told.wait(10)]

    async with working(app):
        job = await where.add()
        await reached(where.queue, job.id, JobState.ACTIVE)
        is_told.set()
        thread, was_told = (await ended(where.queue, job.id)).result
    assert was_told
    assert thread.startswith("corral-handler")


async def test_a_heavy_handler_runs_in_a_spawned_process(app: Corral) -> None:
    where = app.job("where", process=True)(handlers.where_it_runs)
    async with working(app, concurrency=1):
        ran = [await ended(where.queue, (await where.add({"n": n})).id) for n in range(2)]
    assert [job.result["data"] for job in ran] == [{"n": 0}, {"n": 1}]
    pids = {job.result["pid"] for job in ran}
    assert os.getpid() not in pids
    assert len(pids) == 1, "the process is kept for the next job"


async def test_a_heavy_handler_fails_and_is_tried_again_like_any_other(app: Corral) -> None:
    retried = app.job("fail", process=True, backoff=10)(handlers.fail_once)
    async with working(app):
        job = await ended(retried.queue, (await retried.add()).id)
    assert (job.state, job.result, job.attempts_made) == (JobState.COMPLETED, "at last", 2)


async def test_a_heavy_handler_that_takes_too_long_is_killed(app: Corral) -> None:
    slow = app.job("sleep", process=True, attempts=1, timeout=0.2)(handlers.sleep_long)
    async with working(app):
        job = await ended(slow.queue, (await slow.add()).id)
    assert job.state is JobState.DEAD
    assert job.reason is not None
    assert "took longer than 0.2 s; its process was killed" in job.reason


async def test_a_handler_no_process_could_find_is_refused_where_it_is_written(app: Corral) -> None:
    with pytest.raises(InvalidOptions, match="use a function at the top of a module"):

        @app.job("local", process=True)
        def local(job: Any) -> None: ...


# -- what they hold -----------------------------------------------------------------------------------------


async def test_a_handler_holds_its_job(app: Corral) -> None:
    seen: dict[str, Any] = {}

    @app.job("look", queue="mail", attempts=2, backoff=10)
    async def look(job: Any) -> None:
        seen.update(id=job.id, name=job.name, data=job.data, queue=job.queue, attempts=job.options.attempts)
        seen.setdefault("tries", []).append(job.attempt)
        seen["created_at"] = job.created_at
        raise Transient("once more")

    async with working(app):
        added = await look.add({"n": 1})
        await ended(look.queue, added.id)
    assert seen == {
        "id": added.id,
        "name": "look",
        "data": {"n": 1},
        "queue": "mail",
        "attempts": 2,
        "tries": [1, 2],
        "created_at": added.job.created_at,
    }


async def test_a_worker_is_named_by_host_process_and_chance(app: Corral) -> None:
    @app.job("greet")
    async def greet(job: Any) -> None: ...

    async with working(app):
        job = await ended(greet.queue, (await greet.add()).id)
        [worker] = await greet.queue.workers()
    assert re.fullmatch(rf"{re.escape(socket.gethostname())}-{os.getpid()}-[0-9a-f]{{6}}", job.worker or "")
    assert worker.name == job.worker


async def test_a_worker_may_be_given_a_name(app: Corral) -> None:
    @app.job("greet")
    async def greet(job: Any) -> None: ...

    async with working(app, name="barn-1"):
        assert (await ended(greet.queue, (await greet.add()).id)).worker == "barn-1"
    for bad in ("", "two words", "new\nline", "é"):
        with pytest.raises(InvalidName, match="worker name"):
            app.workers(name=bad)


# -- what they say ------------------------------------------------------------------------------------------


@PROTOCOLS
async def test_progress_log_and_events_are_told_from_an_async_handler(
    app: Corral, protocol: str, name: str
) -> None:
    @app.job(name, protocol=protocol)
    async def tell(job: Any) -> None:
        await job.progress(25, "half a scene")
        await job.emit("scene", {"number": 1})
        await job.log("first line")

    await _check_words(app, tell)


@PROTOCOLS
async def test_the_same_words_are_plain_calls_in_a_sync_handler(
    app: Corral, protocol: str, name: str
) -> None:
    await _check_words(app, app.job(name, protocol=protocol)(handlers.tell_everything))


@PROTOCOLS
async def test_the_same_words_reach_the_server_from_a_process(app: Corral, protocol: str, name: str) -> None:
    await _check_words(app, app.job(name, protocol=protocol, process=True)(handlers.tell_everything))


async def _check_words(app: Corral, kind: Any) -> None:
    async with working(app):
        job = await ended(kind.queue, (await kind.add({})).id)
    assert job.state is JobState.COMPLETED, job.reason
    assert job.progress == {"progress": 25, "message": "half a scene"}
    assert await kind.queue.logs(job.id) == ["first line"]
    events = await kind.queue.events.range()
    [progress] = [event for event in events if event.kind == "progress"]
    assert progress.data["data"] == {"progress": 25, "message": "half a scene"}
    [emitted] = [event for event in events if "number" in str(event.data)]
    assert emitted.data["data"] == {"number": 1}
    assert "scene" in (emitted.kind, emitted.data.get("step"))
    assert emitted.job_id == job.id


@pytest.mark.parametrize("value", [0, 100, 99.5, -1, 100.5])
async def test_progress_goes_from_0_to_100(app: Corral, value: float) -> None:
    @app.job("tell", attempts=1)
    async def tell(job: Any) -> None:
        await job.progress(value)

    async with working(app):
        job = await ended(tell.queue, (await tell.add()).id)
    if 0 <= value <= 100:
        assert (job.state, job.progress) == (JobState.COMPLETED, value)
    else:
        assert (job.state, job.progress) == (JobState.DEAD, None)
        assert job.reason is not None
        assert job.reason.startswith(f"progress is {value}; use a number from 0 to 100")


async def test_progress_may_be_any_other_json(app: Corral) -> None:
    @app.job("tell")
    async def tell(job: Any) -> None:
        await job.progress({"scene": 3, "of": 5})

    async with working(app):
        assert (await ended(tell.queue, (await tell.add()).id)).progress == {"scene": 3, "of": 5}


async def test_a_thousand_lines_of_log_are_kept(app: Corral) -> None:
    @app.job("tell")
    async def tell(job: Any) -> list[int]:
        counts = [await job.log(f"line {number}") for number in range(1003)]
        return [counts[0], counts[999], counts[-1]]

    async with working(app):
        job = await ended(tell.queue, (await tell.add()).id)
    lines = await tell.queue.logs(job.id, 0, 2000)
    assert (len(lines), lines[0], lines[-1]) == (1000, "line 3", "line 1002")
    assert job.result == [1, 1000, 1000]


async def test_a_handler_cannot_speak_in_the_contracts_own_words(app: Corral) -> None:
    @app.job("tell", attempts=1)
    async def tell(job: Any) -> None:
        await job.emit("completed", {})

    async with working(app):
        job = await ended(tell.queue, (await tell.add()).id)
    assert job.state is JobState.DEAD
    assert [event.kind for event in await tell.queue.events.range()].count("completed") == 0


# -- cancellation -------------------------------------------------------------------------------------------


@PROTOCOLS
async def test_a_running_handler_is_told_of_a_cancellation(app: Corral, protocol: str, name: str) -> None:
    seen: list[bool] = []

    @app.job(name, protocol=protocol)
    async def paint(job: Any) -> None:
        seen.append(job.cancelled)
        await job.wait_cancelled()
        seen.append(job.cancelled)
        raise JobCancelled

    async with working(app, **SHORT_LOCK):
        added = await paint.add({})
        await reached(paint.queue, added.id, JobState.ACTIVE)
        assert await paint.queue.cancel([added.id]) == [added.id]
        assert await becomes_true(lambda: seen == [False, True])
        job = await ended(paint.queue, added.id)
    if protocol == "bullmq":  # this contract has no such state
        assert (job.state, job.reason) == (JobState.DEAD, "cancelled")
    else:
        assert job.state is JobState.CANCELLED


@pytest.mark.parametrize("process", [False, True])
async def test_sync_handlers_are_told_too(app: Corral, process: bool) -> None:
    paint = app.job("paint", process=process)(handlers.until_cancelled)
    async with working(app, **SHORT_LOCK):
        added = await paint.add()
        await reached(paint.queue, added.id, JobState.ACTIVE)
        await paint.queue.cancel([added.id])
        job = await ended(paint.queue, added.id)
    assert (job.state, job.result) == (JobState.COMPLETED, "cancelled"), "the handler decides how it ends"


async def test_a_cancelled_job_that_has_not_started_is_gone(app: Corral) -> None:
    queue = app.queue("mail")
    job = await queue.add("greet", delay=60_000)
    assert await queue.cancel([job.id]) == [job.id]
    assert await queue.job(job.id) is None


# -- how they end -------------------------------------------------------------------------------------------


async def test_an_attempt_that_takes_too_long_fails_and_may_be_tried_again(app: Corral) -> None:
    @app.job("slow", attempts=2, backoff=10, timeout=0.1)
    async def slow(job: Any) -> str:
        if job.attempt == 1:
            await forever()
        return "quick"

    async with working(app):
        job = await ended(slow.queue, (await slow.add()).id)
    assert (job.state, job.result, job.attempts_made) == (JobState.COMPLETED, "quick", 2)
    assert "took longer than 0.1 s" in job.trace[0]


async def test_transient_is_tried_again_and_unrecoverable_is_not(app: Corral) -> None:
    @app.job("flaky", backoff=10)
    async def flaky(job: Any) -> None:
        raise Transient("the mail server is busy") if job.data else Unrecoverable("no such person")

    async with working(app):
        again = await ended(flaky.queue, (await flaky.add(1)).id)
        never = await ended(flaky.queue, (await flaky.add(0)).id)
    assert (again.state, again.attempts_made, again.reason) == (JobState.DEAD, 3, "the mail server is busy")
    assert (never.state, never.attempts_made, never.reason) == (JobState.DEAD, 1, "no such person")


async def test_what_the_table_calls_permanent_is_not_tried_again_unless_the_app_says_so(url: str) -> None:
    async with Corral(url, retry_on=[KeyError], give_up_on=["builtins.ConnectionError"]) as app:

        @app.job("flaky", attempts=2, backoff=10)
        async def flaky(job: Any) -> None:
            raise {"key": KeyError("to"), "value": ValueError("to"), "line": ConnectionError("cut")}[job.data]

        async with working(app):
            ran = [await ended(flaky.queue, (await flaky.add(kind)).id) for kind in ("key", "value", "line")]
    assert [job.attempts_made for job in ran] == [2, 1, 1]


async def test_a_backoff_rule_of_the_apps_own_says_when_to_try_again(url: str) -> None:
    def rule(made: int, kind: str, error: BaseException, job: Any) -> int:
        return -1 if made == 3 else 10 * made

    async with Corral(url, backoff=rule) as app:

        @app.job("flaky", attempts=9, backoff="custom")
        async def flaky(job: Any) -> None:
            raise Transient("no")

        async with working(app):
            job = await ended(flaky.queue, (await flaky.add()).id)
    assert job.attempts_made == 3


async def test_postponing_and_giving_back_spend_no_attempt(app: Corral) -> None:
    starts: list[str] = []

    @app.job("later", attempts=1)
    async def later(job: Any) -> str:
        starts.append(job.data)
        if starts.count(job.data) == 1:
            raise Postpone(20) if job.data == "postpone" else Release
        return "done"

    async with working(app):
        for how in ("postpone", "give back"):
            job = await ended(later.queue, (await later.add(how)).id)
            assert (job.state, job.result, job.attempts_made) == (JobState.COMPLETED, "done", 1)
    assert sorted(starts) == ["give back", "give back", "postpone", "postpone"]


async def test_a_result_that_is_no_json_ends_the_job_with_the_reason(app: Corral) -> None:
    @app.job("strange")
    async def strange(job: Any) -> object:
        return {"seen": {1, 2}}

    async with working(app):
        job = await ended(strange.queue, (await strange.add()).id)
    assert (job.state, job.attempts_made) == (JobState.DEAD, 1)
    assert job.reason is not None
    assert "result.seen is {1, 2} (set); use a list" in job.reason


@pytest.mark.parametrize("protocol", protocol_names())
async def test_jobs_are_run_by_the_worker_that_has_a_handler_for_them(
    app: Corral, url: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = ("embed", "rag") if protocol == "streams" else ("old", "new")
    app.job(old, protocol=protocol)(handlers.where_it_runs)
    async with Corral(url) as other:
        other.job(new, protocol=protocol)(handlers.where_it_runs)
        queue = app.queue(protocol=protocol)
        names = [old, new, new, old, new]
        async with working(app, name="first"):
            ids = [(await queue.add(name, {})).id for name in names]
            await ended(queue, ids[3])
            assert await becomes_true(
                lambda: any("without a handler" in one.message for one in caplog.records)
            )
            async with working(other, name="second"):
                jobs = [await ended(queue, job_id, 30) for job_id in ids]
                late = await ended(queue, (await queue.add(new, {})).id, 30)
    workers = {old: "first", new: "second"}
    assert {(job.state, job.attempts_made) for job in jobs} == {(JobState.COMPLETED, 1)}
    if protocol != "streams":  # whose jobs have no worker
        assert [job.worker for job in jobs] == [workers[name] for name in names]
    assert late.started_at is not None
    # bullmq: its first postponement; the others: within a second
    assert late.started_at - late.created_at < (1500 if protocol == "bullmq" else 1000)
    warned = [record for record in caplog.records if "without a handler" in record.message]
    assert len([record for record in warned if f"'{new}'" in record.getMessage()]) == 1


async def test_a_worker_records_the_names_it_has_no_handler_for(app: Corral) -> None:
    app.job("known")(handlers.where_it_runs)
    queue = app.queue()
    await queue.add("unknown", {})
    async with working(app, lock_ms=400):

        async def names() -> list[str]:
            records = [worker.record for worker in await queue.workers()]
            return [name for record in records if record is not None for name in record.unhandled]

        await until(lambda: names(), "the worker's record names what it has no handler for")
        assert await names() == ["unknown"]


@PROTOCOLS
async def test_a_job_without_a_handler_ends_with_a_clear_reason(
    app: Corral, protocol: str, name: str
) -> None:
    other = "rag" if protocol == "streams" else "other"
    app.job(other, protocol=protocol)(handlers.where_it_runs)
    async with working(app, unknown_after=0):
        job = await ended(app.queue(protocol=protocol), (await app.queue(protocol=protocol).add(name, {})).id)
    assert job.state is JobState.DEAD
    assert job.reason == f"no handler for job name {name!r}; this worker knows {other!r}"
