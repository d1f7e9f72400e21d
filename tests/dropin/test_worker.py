"""Worker: what a processor is given, what it may do, and what the worker tells."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import corral
from corral.bullmq import (
    DelayedError,
    Job,
    RateLimitError,
    UnrecoverableError,
    WaitingError,
    Worker,
)
from tests.dropin.factory import EventRecorder, Factory
from tests.dropin.node_queue import NodeQueue
from tests.support.polling import becomes_true, until

EVENTS = ("active", "completed", "failed", "error", "stalled", "drained", "progress", "closed")


async def test_a_processor_gets_its_job_and_returns_its_result(
    factory: Factory, node_queue: NodeQueue
) -> None:
    given: list[Any] = []

    async def process(job: Job, token: str) -> Any:
        given.append((job.name, job.data, job.attemptsStarted, job.attemptsMade, token == job.token))
        given.append(await factory.queue().store.call("GET", f"bull:mail:{job.id}:lock") == token.encode())
        await job.updateProgress({"half": True})
        await job.log("on it")
        return {"sent": job.data["to"]}

    job = await factory.queue().add("send", {"to": "a@b.c"})
    events = await factory.events()
    worker = factory.worker(process, called="packer")
    heard = EventRecorder(worker, *EVENTS)
    assert await job.waitUntilFinished(events, 10_000) == {"sent": "a@b.c"}
    assert given == [("send", {"to": "a@b.c"}, 1, 0, True), True]
    seen = await node_queue.read(job.id)
    assert (seen["returnvalue"], seen["progress"], seen["processedBy"]) == (
        {"sent": "a@b.c"}, {"half": True}, "packer",
    )  # fmt: skip
    assert (seen["attemptsMade"], seen["attemptsStarted"]) == (1, 1)
    assert (await node_queue("getJobLogs", job.id))["logs"] == ["on it"]
    await until(lambda: _has(heard, "drained"))
    assert heard.names() == ["active", "progress", "completed", "drained"]
    [[active, previous]] = heard.of("active")
    [[completed, result]] = heard.of("completed")
    assert (active is completed, previous, result) == (True, "waiting", {"sent": "a@b.c"})
    assert (completed.returnvalue, completed.attemptsMade, completed.processedBy) == (result, 1, "packer")


async def _has(heard: EventRecorder, event: str) -> bool:
    return event in heard.names()


@pytest.mark.parametrize("value", [None, 0, "", "text", [], {}, [1, {"ü": 2.5}], 2**50, {1: 2}, (1, 2)])
async def test_any_result_json_carries_is_written(
    factory: Factory, node_queue: NodeQueue, value: Any
) -> None:
    async def process(job: Job, token: str) -> Any:
        return value

    job = await factory.queue().add("send", {})
    events = await factory.events()
    worker = factory.worker(process)
    heard = EventRecorder(worker, "completed")
    result = await job.waitUntilFinished(events, 10_000)
    expected = {"1": 2} if value == {1: 2} else list(value) if isinstance(value, tuple) else value
    assert result == expected
    assert (await node_queue.read(job.id)).get("returnvalue") == expected
    await until(lambda: _has(heard, "completed"))
    assert heard.events[0][2] is value


async def test_a_result_json_cannot_carry_fails_the_attempt(factory: Factory, node_queue: NodeQueue) -> None:
    async def process(job: Job, token: str) -> Any:
        return object() if job.attemptsMade == 0 else "fine"

    job = await factory.queue().add("send", {}, {"attempts": 2})
    events = await factory.events()
    worker = factory.worker(process)
    heard = EventRecorder(worker, "failed")
    assert await job.waitUntilFinished(events, 10_000) == "fine"
    [[_, error]] = heard.of("failed")
    assert isinstance(error, TypeError)
    assert "JSON" in str(error)


async def test_a_failed_attempt_is_tried_again_by_the_jobs_options(
    factory: Factory, node_queue: NodeQueue
) -> None:
    began: list[float] = []

    async def process(job: Job, token: str) -> Any:
        began.append(time.monotonic())
        if job.attemptsMade < 2:
            raise ValueError(f"no {job.attemptsMade}")
        return "at last"

    backoff = {"type": "exponential", "delay": 30}
    job = await factory.queue().add("send", {}, {"attempts": 3, "backoff": backoff})
    events = await factory.events()
    worker = factory.worker(process)
    heard = EventRecorder(worker, "failed", "completed")
    assert await job.waitUntilFinished(events, 10_000) == "at last"
    assert began[1] - began[0] >= 0.03
    assert began[2] - began[1] >= 0.06
    seen = await node_queue.read(job.id)
    assert (seen["attemptsMade"], seen["attemptsStarted"], len(seen["stacktrace"])) == (3, 3, 2)
    assert "in process" in seen["stacktrace"][0]
    assert str(Path(corral.__file__).parent) not in seen["stacktrace"][0]
    await until(lambda: _has(heard, "completed"))
    assert [str(args[1]) for args in heard.of("failed")] == ["no 0", "no 1"]
    assert [args[0].attemptsMade for args in heard.of("failed")] == [1, 2]


@pytest.mark.parametrize(
    ("opts", "error", "attempts"),
    [
        ({}, ValueError("no"), 1),
        ({"attempts": 0}, KeyError("no"), 1),
        ({"attempts": 3}, UnrecoverableError("no"), 1),
        ({"attempts": 2}, TypeError("no"), 2),
        ({"attempts": 2}, TimeoutError("no"), 2),
    ],
)
async def test_everything_is_tried_again_but_what_says_otherwise(
    factory: Factory, node_queue: NodeQueue, opts: dict[str, Any], error: Exception, attempts: int
) -> None:
    async def process(job: Job, token: str) -> Any:
        raise error

    job = await factory.queue().add("send", {}, opts)
    events = await factory.events()
    factory.worker(process)
    with pytest.raises(Exception, match="no"):
        await job.waitUntilFinished(events, 10_000)
    assert (await node_queue.read(job.id))["attemptsMade"] == attempts


async def test_a_strategy_of_ones_own_is_asked_with_the_processors_job(factory: Factory) -> None:
    asked: list[Any] = []

    def strategy(made: int, kind: str, error: Exception, job: Job) -> int:
        asked.append((made, kind, str(error), job))
        return -1 if made == 2 else 5

    given: list[Job] = []

    async def process(job: Job, token: str) -> Any:
        given.append(job)
        raise ValueError("no")

    job = await factory.queue().add("send", {}, {"attempts": 9, "backoff": {"type": "mine"}})
    events = await factory.events()
    factory.worker(process, settings={"backoffStrategy": strategy})
    with pytest.raises(Exception, match=r"^no$"):
        await job.waitUntilFinished(events, 10_000)
    assert [each[:3] for each in asked] == [(1, "mine", "no"), (2, "mine", "no")]
    assert [each[3] for each in asked] == given


async def test_a_discarded_job_has_no_other_attempt(factory: Factory, node_queue: NodeQueue) -> None:
    async def process(job: Job, token: str) -> Any:
        job.discard()
        raise ValueError("no")

    job = await factory.queue().add("send", {}, {"attempts": 5})
    events = await factory.events()
    factory.worker(process)
    with pytest.raises(Exception, match=r"^no$"):
        await job.waitUntilFinished(events, 10_000)
    assert (await node_queue.read(job.id))["attemptsMade"] == 1


async def test_a_job_started_too_often_fails_unrun(factory: Factory) -> None:
    async def process(job: Job, token: str) -> Any:
        await job.moveToWait(token)
        raise WaitingError

    job = await factory.queue().add("send", {}, {"attempts": 5})
    events = await factory.events()
    factory.worker(process, maxStartedAttempts=2)
    with pytest.raises(Exception, match=r"^job started more than allowable limit$"):
        await job.waitUntilFinished(events, 10_000)
    found = await factory.queue().getJob(str(job.id))
    assert found is not None
    assert found.attemptsStarted == 3


# -- moved by the processor itself --------------------------------------------------------------------------


async def test_a_processor_puts_its_job_off(factory: Factory, node_queue: NodeQueue) -> None:
    async def process(job: Job, token: str) -> Any:
        if job.data.get("step") is None:
            await job.updateData({"step": "second"})
            await job.moveToDelayed(int(time.time() * 1000) + 40, token)
            raise DelayedError
        return job.data["step"]

    job = await factory.queue().add("send", {})
    events = await factory.events()
    delayed = EventRecorder(events, "delayed", "failed")
    worker = factory.worker(process)
    heard = EventRecorder(worker, *EVENTS)
    assert await job.waitUntilFinished(events, 10_000) == "second"
    seen = await node_queue.read(job.id)
    assert (seen["attemptsMade"], seen["attemptsStarted"]) == (1, 2)
    assert delayed.names() == ["delayed"]
    assert "error" not in heard.names()
    assert "failed" not in heard.names()


async def test_a_processor_gives_its_job_back(factory: Factory) -> None:
    order: list[str] = []

    async def process(job: Job, token: str) -> Any:
        order.append(job.name)
        if job.attemptsStarted == 1 and job.name == "first":
            await job.moveToWait(token)
            raise WaitingError

    queue, events = factory.queue(), await factory.events()
    jobs = await queue.addBulk([{"name": "first"}, {"name": "second"}])
    factory.worker(process)
    for job in jobs:
        await job.waitUntilFinished(events, 10_000)
    assert order == ["first", "first", "second"]


async def test_a_processor_holds_its_job_for_longer(factory: Factory) -> None:
    async def process(job: Job, token: str) -> Any:
        assert await job.extendLock(token, 90_000) == 1
        return await job.queue.store.call("PTTL", f"bull:mail:{job.id}:lock")

    queue, events = factory.queue(), await factory.events()
    factory.worker(process)
    # the worker renews its locks when it begins, and then not for a while
    await (await queue.add("first", {})).waitUntilFinished(events, 10_000)
    job = await queue.add("send", {})
    assert 80_000 < await job.waitUntilFinished(events, 10_000) <= 90_000


async def test_a_limit_that_a_processor_hits_holds_the_queue(factory: Factory, node_queue: NodeQueue) -> None:
    limited = False

    async def process(job: Job, token: str) -> Any:
        nonlocal limited
        if not limited:
            limited = True
            assert isinstance(job.queue, Worker)
            await job.queue.rateLimit(150)
            raise RateLimitError
        return job.attemptsMade

    job = await factory.queue().add("send", {})
    events = await factory.events()
    began = time.monotonic()
    factory.worker(process, limiter={"max": 5, "duration": 1000})
    assert await job.waitUntilFinished(events, 10_000) == 0
    assert time.monotonic() - began >= 0.14
    assert (await node_queue.read(job.id))["attemptsStarted"] == 2


# -- options ------------------------------------------------------------------------------------------------


async def test_no_more_jobs_run_at_a_time_than_asked(factory: Factory) -> None:
    running = most = 0

    async def process(job: Job, token: str) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    queue, events = factory.queue(), await factory.events()
    jobs = await queue.addBulk([{"name": "send"}] * 20)
    factory.worker(process, concurrency=4)
    for job in jobs:
        await job.waitUntilFinished(events, 10_000)
    assert most == 4


async def test_a_limiter_holds_back_the_claims(factory: Factory) -> None:
    began: list[float] = []

    async def process(job: Job, token: str) -> Any:
        began.append(time.monotonic())

    queue, events = factory.queue(), await factory.events()
    jobs = await queue.addBulk([{"name": "send"}] * 5)
    factory.worker(process, concurrency=10, limiter={"max": 2, "duration": 120})
    for job in jobs:
        await job.waitUntilFinished(events, 10_000)
    assert began[2] - began[0] >= 0.1
    assert began[4] - began[2] >= 0.1


async def test_ended_jobs_are_kept_as_the_worker_says_unless_they_say_so(
    factory: Factory, node_queue: NodeQueue
) -> None:
    async def process(job: Job, token: str) -> Any:
        if job.name == "fails":
            raise ValueError("no")

    queue, events = factory.queue(), await factory.events()
    heard = EventRecorder(events, "completed", "failed")
    factory.worker(process, removeOnComplete={"count": 1}, removeOnFail=True, metrics={"maxDataPoints": 5})
    await queue.addBulk([{"name": "works"}] * 3 + [{"name": "fails"}] * 2)
    await queue.add("works", {}, {"removeOnComplete": False})
    await until(lambda: _count(heard, 6))
    assert (await node_queue("getJobCounts", "completed", "failed")) == {"completed": 2, "failed": 0}
    assert (await queue.getMetrics("completed"))["meta"]["count"] == 4
    assert (await queue.getMetrics("failed"))["meta"]["count"] == 2


async def _count(heard: EventRecorder, count: int) -> bool:
    return len(heard.events) == count


async def test_a_blocked_loop_keeps_its_lock(factory: Factory) -> None:
    ran: list[Any] = []

    async def process(job: Job, token: str) -> Any:
        ran.append(job.id)
        time.sleep(0.7)

    job = await factory.queue().add("send", {})
    events = await factory.events()
    worker = factory.worker(process, lockDuration=200, stalledInterval=100)
    heard = EventRecorder(worker, "stalled", "error", "locksRenewed")
    await job.waitUntilFinished(events, 10_000)
    assert ran == ["1"]
    assert set(heard.names()) == {"locksRenewed"}
    assert heard.events[0][1] == {"count": 1, "jobIds": ["1"]}


async def test_a_stalled_job_is_found_told_and_run_again(factory: Factory) -> None:
    async def process(job: Job, token: str) -> Any:
        return job.stalledCounter

    job = await factory.queue().add("send", {})
    events = await factory.events()
    dead = factory.worker(None, lockDuration=100)
    assert await dead.getNextJob("token") is not None
    worker = factory.worker(process, stalledInterval=60)
    heard = EventRecorder(worker, "stalled")
    assert await job.waitUntilFinished(events, 10_000) == 1
    assert heard.events == [("stalled", "1", "active")]


async def test_a_lost_lock_is_told_and_the_outcome_refused(factory: Factory, node_queue: NodeQueue) -> None:
    async def process(job: Job, token: str) -> Any:
        await job.queue.store.call("SET", f"bull:mail:{job.id}:lock", "thief")
        return "mine"

    await factory.queue().add("send", {})
    worker = factory.worker(process)
    heard = EventRecorder(worker, "error", "completed")

    async def refused() -> list[tuple[Any, ...]]:
        # a heartbeat just then may say first, and of no job, that it could not renew the lock
        return [told for told in heard.of("error") if len(told) == 2]

    await until(refused)
    [[error, job]] = await refused()
    assert str(error) == "Lock mismatch for job 1. Cmd moveToFinished from active"
    assert (job.id, heard.of("completed")) == ("1", [])
    assert await node_queue.job("1", "getState") == "active"


async def test_a_lock_that_cannot_be_renewed_is_told_while_the_job_runs(factory: Factory) -> None:
    is_told = asyncio.Event()

    async def process(job: Job, token: str) -> Any:
        if job.data == "robbed":
            await job.queue.store.call("SET", f"bull:mail:{job.id}:lock", "thief")
            await asyncio.wait_for(is_told.wait(), 10)
        return "mine"

    worker = factory.worker(process, lockDuration=200)
    worker.on("lockRenewalFailed", lambda ids: is_told.set())
    heard = EventRecorder(worker, "lockRenewalFailed", "error", "completed")
    await factory.queue().add("send", "robbed")

    def last_words() -> list[str]:
        return [str(error) for error, *_ in heard.of("error")]

    async def is_refused() -> bool:
        return "Lock mismatch for job 1. Cmd moveToFinished from active" in last_words()[-1:]

    await until(is_refused)
    assert heard.of("lockRenewalFailed")[0] == (["1"],)
    assert set(last_words()[:-1]) == {"could not renew lock for job 1"}
    told = len(heard.events)
    for _ in range(50):
        job = await factory.queue().add("send", "quick")
        await until(job.isCompleted)
    assert set(heard.names()[told:]) == {"completed"}, "one that has ended has lost no lock"


# -- asked to end -------------------------------------------------------------------------------------------


async def test_a_processor_that_takes_a_signal_hears_that_it_should_end(factory: Factory) -> None:
    begun: list[str] = []

    async def process(job: Job, token: str, signal: Any) -> Any:
        begun.append(job.id or "")
        await signal.wait()
        return [signal.aborted, signal.reason]

    queue, events = factory.queue(), await factory.events()
    worker = factory.worker(process, concurrency=3)
    jobs = await queue.addBulk([{"name": "send"}] * 3)
    assert await becomes_true(lambda: len(begun) == 3)
    assert worker.cancelJob("1", "enough") is True
    assert worker.cancelJob("9") is False
    assert await jobs[0].waitUntilFinished(events, 10_000) == [True, "enough"]
    await queue.operator.cancel(["2"])
    worker.cancelAllJobs("all of you")
    assert await jobs[2].waitUntilFinished(events, 10_000) == [True, "all of you"]


async def _active(factory: Factory, count: int) -> bool:
    return await factory.queue().getActiveCount() == count


async def test_a_job_cancelled_from_elsewhere_aborts_its_signal(factory: Factory) -> None:
    async def process(job: Job, token: str, signal: Any) -> Any:
        await signal.wait()
        signal.throw_if_aborted()

    queue, events = factory.queue(), await factory.events()
    job = await queue.add("send", {})
    factory.worker(process, lockDuration=200)
    await until(lambda: _active(factory, 1))
    await queue.operator.cancel(["1"])
    with pytest.raises(Exception, match=r"^cancelled$"):
        await job.waitUntilFinished(events, 10_000)


async def test_a_processor_without_a_signal_has_none_to_abort(factory: Factory) -> None:
    going = asyncio.Event()

    async def process(job: Job, token: str) -> Any:
        await going.wait()

    worker = factory.worker(process)
    await factory.queue().add("send", {})
    await until(lambda: _active(factory, 1))
    assert worker.cancelJob("1") is False
    going.set()


async def test_a_paused_worker_ends_what_it_runs_and_begins_nothing(factory: Factory) -> None:
    going = asyncio.Event()

    async def process(job: Job, token: str) -> Any:
        await going.wait()

    queue, events = factory.queue(), await factory.events()
    worker = factory.worker(process)
    heard = EventRecorder(worker, "paused", "resumed")
    first = await queue.add("send", {})
    await until(lambda: _active(factory, 1))
    pausing = asyncio.create_task(worker.pause())
    await asyncio.sleep(0.02)
    assert (pausing.done(), worker.isPaused(), heard.events) == (False, True, [])
    going.set()
    await pausing
    assert await first.isCompleted()
    second = await queue.add("send", {})
    await asyncio.sleep(0.05)
    assert await second.getState() == "waiting"
    worker.resume()
    assert (await second.waitUntilFinished(events, 10_000), worker.isPaused()) == (None, False)
    assert heard.names() == ["paused", "resumed"]
    assert worker.isRunning()


async def test_a_worker_paused_without_waiting_returns_at_once(factory: Factory) -> None:
    going = asyncio.Event()

    async def process(job: Job, token: str) -> Any:
        await going.wait()
        return "fine"

    queue, events = factory.queue(), await factory.events()
    worker = factory.worker(process)
    job = await queue.add("send", {})
    await until(lambda: _active(factory, 1))
    await worker.pause(True)
    assert await job.isActive()
    going.set()
    assert await job.waitUntilFinished(events, 10_000) == "fine"


async def test_closing_waits_for_running_jobs(factory: Factory) -> None:
    async def process(job: Job, token: str) -> Any:
        await asyncio.sleep(0.1)

    queue = factory.queue()
    worker = factory.worker(process)
    heard = EventRecorder(worker, "closing", "closed", "completed")
    await queue.addBulk([{"name": "send"}] * 2)
    await until(lambda: _active(factory, 1))
    await asyncio.gather(worker.close(), worker.close())
    assert heard.names() == ["closing", "completed", "closed"]
    assert await queue.getJobCounts("active", "completed", "wait") == {"active": 0, "completed": 1, "wait": 1}
    assert (worker.closed, worker.running) == (True, False)


async def test_closing_by_force_gives_running_jobs_back(factory: Factory) -> None:
    begun, reasons = asyncio.Event(), list[Any]()

    async def process(job: Job, token: str, signal: Any) -> Any:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(signal.reason)

    queue = factory.queue()
    worker = factory.worker(process)
    await queue.add("send", {})
    await asyncio.wait_for(begun.wait(), 10)
    began = time.monotonic()
    await worker.close(force=True)
    assert time.monotonic() - began < 5
    assert reasons == ["worker force-closed"]
    assert await queue.getJobCounts("active", "wait") == {"active": 0, "wait": 1}


async def test_a_worker_closed_before_it_began_begins_nothing(factory: Factory) -> None:
    await factory.queue().add("send", {})
    worker = factory.worker()
    await worker.close()
    assert await factory.queue().getWaitingCount() == 1


# -- run ----------------------------------------------------------------------------------------------------


async def test_a_worker_runs_when_told_and_only_once(factory: Factory) -> None:
    queue, events = factory.queue(), await factory.events()
    worker = factory.worker(autorun=False)
    job = await queue.add("send", {})
    await asyncio.sleep(0.02)
    assert (await job.getState(), worker.isRunning()) == ("waiting", False)
    running = asyncio.create_task(worker.run())
    await job.waitUntilFinished(events, 10_000)
    with pytest.raises(Exception, match=r"^Worker is already running$"):
        await worker.run()
    await worker.close()
    await running
    with pytest.raises(Exception, match=r"^No process function is defined.$"):
        await factory.worker(None).run()


async def test_the_next_job_is_waited_for_after_a_call_that_found_none(factory: Factory) -> None:
    queue = factory.queue()
    worker = factory.worker(None)
    assert await worker.getNextJob("t1") is None
    waiting = asyncio.create_task(worker.getNextJob("t2"))
    await until(queue.getWorkers)
    added = await queue.add("send", {"a": 1})
    job = await waiting
    assert job is not None
    assert (job.id, job.data, job.token) == (added.id, {"a": 1}, "t2")
    assert await worker.getNextJob("t3", {"block": False}) is None
    assert await worker.getNextJob("t3", {"block": False}) is None
    await worker.close()
    assert await worker.getNextJob("t4") is None


async def test_callbacks_may_be_coroutines_and_their_errors_are_told(factory: Factory) -> None:
    worker = factory.worker()
    heard = EventRecorder(worker, "error")
    told: list[Any] = []

    async def completed(job: Job, result: Any) -> None:
        await asyncio.sleep(0)
        told.append(job.id)
        raise ValueError("in a task")

    worker.on("completed", completed)

    def breaks(job: Job, previous: str) -> None:
        raise ValueError("in a callback")

    worker.on("active", breaks)
    worker.once("drained", lambda: told.append("drained"))
    queue, events = factory.queue(), await factory.events()
    for _ in range(2):
        job = await queue.add("send", {})
        await job.waitUntilFinished(events, 10_000)
    await until(lambda: _count(heard, 4))
    assert sorted(str(error) for _, error in heard.events) == ["in a callback"] * 2 + ["in a task"] * 2
    assert told.count("drained") == 1
    worker.off("completed", completed)
    with pytest.raises(ValueError, match="not in list"):
        worker.off("completed", completed)


# -- with Node ----------------------------------------------------------------------------------------------


async def test_nodes_jobs_are_run_and_node_hears_of_it(factory: Factory, node_queue: NodeQueue) -> None:
    async def process(job: Job, token: str) -> Any:
        return {"python": job.data["node"]}

    factory.worker(process)
    await node_queue.node("openEvents", handle="events", **node_queue.where)
    job_id = await node_queue.add("send", {"node": "ü"}, attempts=2)
    ended = await node_queue.node("waitUntilFinished", queue="queue", events="events", id=job_id, ttl=10_000)
    assert ended == {"python": "ü"}
