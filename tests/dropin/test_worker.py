"""Worker: processors, retries, options, locks and events."""

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
from tests.dropin.factory import EventRecorder, Factory, until_workers
from tests.dropin.node_queue import NodeQueue
from tests.support.polling import block, until

ONCE = ("jobId", "deduplication")
EVENTS = ("active", "completed", "failed", "error", "stalled", "drained", "progress", "closed")


async def test_a_processor_gets_its_job_and_returns_its_result(
    factory: Factory, node_queue: NodeQueue
) -> None:
    checks: list[Any] = []

    async def process(job: Job, token: str) -> Any:
        checks.append((job.name, job.data, job.attemptsStarted, job.attemptsMade, token == job.token))
        checks.append(await factory.queue().store.call("GET", f"bull:mail:{job.id}:lock") == token.encode())
        await job.updateProgress({"half": True})
        await job.log("on it")
        return {"sent": job.data["to"]}

    job = await factory.queue().add("send", {"to": "a@b.c"})
    events = await factory.events()
    worker = factory.worker(process, called="packer")
    recorded = EventRecorder(worker, *EVENTS)
    assert await job.waitUntilFinished(events, 10_000) == {"sent": "a@b.c"}
    assert checks == [("send", {"to": "a@b.c"}, 1, 0, True), True]
    seen = await node_queue.read(job.id)
    assert (seen["returnvalue"], seen["progress"], seen["processedBy"]) == (
        {"sent": "a@b.c"}, {"half": True}, "packer",
    )  # fmt: skip
    assert (seen["attemptsMade"], seen["attemptsStarted"]) == (1, 1)
    assert (await node_queue("getJobLogs", job.id))["logs"] == ["on it"]
    await recorded.wait_for("drained")
    assert recorded.names() == ["active", "progress", "completed", "drained"]
    [[active, previous]] = recorded.of("active")
    [[completed, result]] = recorded.of("completed")
    assert (active is completed, previous, result) == (True, "waiting", {"sent": "a@b.c"})
    assert (completed.returnvalue, completed.attemptsMade, completed.processedBy) == (result, 1, "packer")


@pytest.mark.parametrize("value", [None, 0, "", "text", [], {}, [1, {"ü": 2.5}], 2**50, {1: 2}, (1, 2)])
async def test_any_result_json_can_represent_is_written(
    factory: Factory, node_queue: NodeQueue, value: Any
) -> None:
    async def process(job: Job, token: str) -> Any:
        return value

    job = await factory.queue().add("send", {})
    events = await factory.events()
    worker = factory.worker(process)
    recorded = EventRecorder(worker, "completed")
    result = await job.waitUntilFinished(events, 10_000)
    expected = {"1": 2} if value == {1: 2} else list(value) if isinstance(value, tuple) else value
    assert result == expected
    assert (await node_queue.read(job.id)).get("returnvalue") == expected
    await recorded.wait_for("completed")
    assert recorded.events[0][2] is value


async def test_a_result_json_cannot_represent_fails_the_attempt(
    factory: Factory, node_queue: NodeQueue
) -> None:
    async def process(job: Job, token: str) -> Any:
        return object() if job.attemptsMade == 0 else "fine"

    job = await factory.queue().add("send", {}, {"attempts": 2})
    events = await factory.events()
    worker = factory.worker(process)
    recorded = EventRecorder(worker, "failed")
    assert await job.waitUntilFinished(events, 10_000) == "fine"
    [[_, error]] = recorded.of("failed")
    assert isinstance(error, TypeError)
    assert "JSON" in str(error)


async def test_a_failed_attempt_is_retried_by_the_jobs_options(
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
    recorded = EventRecorder(worker, "failed", "completed")
    assert await job.waitUntilFinished(events, 10_000) == "at last"
    assert began[1] - began[0] >= 0.03
    assert began[2] - began[1] >= 0.06
    seen = await node_queue.read(job.id)
    assert (seen["attemptsMade"], seen["attemptsStarted"], len(seen["stacktrace"])) == (3, 3, 2)
    assert "in process" in seen["stacktrace"][0]
    assert str(Path(corral.__file__).parent) not in seen["stacktrace"][0]
    await recorded.wait_for("completed")
    assert [str(args[1]) for args in recorded.of("failed")] == ["no 0", "no 1"]
    assert [args[0].attemptsMade for args in recorded.of("failed")] == [1, 2]


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
async def test_every_error_but_an_unrecoverable_one_is_retried(
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


WRITTEN: list[dict[str, Any]] = [
    {},
    {"removeOnComplete": {"count": 10}, "removeOnFail": {"age": 60, "count": 0}},
    {"removeOnComplete": False, "removeOnFail": -1, "attempts": 1, "keepLogs": 5, "lifo": False},
    {"removeOnComplete": True, "removeOnFail": 7, "priority": 3, "lifo": True},
    {"backoff": 250, "attempts": 4, "stackTraceLimit": 0, "sizeLimit": 1000},
    {"backoff": {"type": "exponential", "delay": 10, "jitter": 0.5}, "jobId": "named"},
    {"deduplication": {"id": "a", "ttl": 60_000}, "telemetry": {"metadata": "trace", "omitContext": True}},
    {"failParentOnFailure": True, "custom": {"deep": [1, {"n": 2}]}, "delay": 0},
]


@pytest.mark.parametrize("opts", WRITTEN)
async def test_a_processor_sees_the_options_that_were_written(
    factory: Factory, node_queue: NodeQueue, opts: dict[str, Any]
) -> None:
    await factory.queue().add("send", {}, opts)
    await node_queue.add("send", {}, **{name: value for name, value in opts.items() if name not in ONCE})
    seen: list[dict[str, Any]] = []

    async def process(job: Job, token: str) -> None:
        read = await job.fromId(job.queue, job.key)
        assert read is not None
        seen.append(job.opts)
        assert job.opts == read.opts
        assert job.attempts == read.attempts
        job.opts.setdefault("custom", {}).clear()

    worker = factory.worker(process, removeOnComplete={"count": 3})
    failures = EventRecorder(worker, "failed", "error")

    async def are_seen() -> bool:
        return len(seen) == 2

    await until(are_seen, f"two jobs ({failures.events})")
    backoff = opts.get("backoff")
    written = {**opts, "backoff": {"type": "fixed", "delay": 250} if backoff == 250 else backoff}
    for name, value in written.items():
        assert name == "custom" or seen[0][name] == value, name
    assert not failures.events


async def test_a_backoff_strategy_gets_the_processors_job(factory: Factory) -> None:
    calls: list[Any] = []

    def strategy(made: int, kind: str, error: Exception, job: Job) -> int:
        calls.append((made, kind, str(error), job))
        return -1 if made == 2 else 5

    jobs: list[Job] = []

    async def process(job: Job, token: str) -> Any:
        jobs.append(job)
        raise ValueError("no")

    job = await factory.queue().add("send", {}, {"attempts": 9, "backoff": {"type": "mine"}})
    events = await factory.events()
    factory.worker(process, settings={"backoffStrategy": strategy})
    with pytest.raises(Exception, match=r"^no$"):
        await job.waitUntilFinished(events, 10_000)
    assert [each[:3] for each in calls] == [(1, "mine", "no"), (2, "mine", "no")]
    assert [each[3] for each in calls] == jobs


async def test_a_job_whose_backoff_has_no_strategy_is_left_active_as_in_node(
    factory: Factory, node_queue: NodeQueue
) -> None:
    """A worker that has the strategy gets it when it has stalled."""

    async def process(job: Job, token: str) -> Any:
        raise ValueError("no")

    opts = {"attempts": 3, "backoff": {"type": "mine"}}
    theirs = await node_queue.add("send", {}, **opts)
    await node_queue.works({"fail": -1}, stalledInterval=200)

    async def has_failed() -> Any:
        return (await node_queue.node("seen", handle="worker"))["errors"]

    [message] = await until(has_failed, "an error of Node's worker")
    await node_queue.node("close", handle="worker", force=True)
    ours = await factory.queue().add("send", {}, opts)
    worker = factory.worker(process, stalledInterval=200)
    recorder = EventRecorder(worker, "error", "failed", "stalled")
    await recorder.wait_for("error")
    assert message.split() == str(recorder.of("error")[0][0]).split()
    hashes = [await worker.read(job_id) or {} for job_id in (theirs, ours.key)]
    assert hashes[0].keys() == hashes[1].keys(), "neither an attempt nor its error was written"
    assert [fields["ats"] for fields in hashes] == ["1", "1"]
    assert {await node_queue.job(job_id, "getState") for job_id in (theirs, ours.id)} == {"active"}
    assert await worker.store.call("DEL", worker.toKey(f"{ours.id}:lock")) == 1, "it expires after 30 s"
    await recorder.wait_for("stalled")
    assert "failed" not in recorder.names()


async def test_a_strategy_that_fails_leaves_the_job_active(factory: Factory) -> None:
    def strategy(*_: Any) -> int:
        raise RuntimeError("a bug in the strategy")

    async def process(job: Job, token: str) -> Any:
        raise ValueError("no")

    worker = factory.worker(process, settings={"backoffStrategy": strategy})
    recorder = EventRecorder(worker, "error", "failed")
    job = await factory.queue().add("send", {}, {"attempts": 3, "backoff": {"type": "mine"}})
    await recorder.wait_for("error")
    assert [str(error) for (error,) in recorder.of("error")] == ["a bug in the strategy"]
    assert await job.isActive()


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


async def test_a_job_started_too_often_fails_without_running(factory: Factory) -> None:
    async def process(job: Job, token: str) -> Any:
        await job.moveToWait(token)
        raise WaitingError

    job = await factory.queue().add("send", {}, {"attempts": 5})
    events = await factory.events()
    factory.worker(process, maxStartedAttempts=2)
    with pytest.raises(Exception, match=r"^job started more than allowable limit$"):
        await job.waitUntilFinished(events, 10_000)
    failed = await factory.queue().getJob(str(job.id))
    assert failed is not None
    assert failed.attemptsStarted == 3


# -- moved by the processor itself --------------------------------------------------------------------------


async def test_a_processor_delays_its_job(factory: Factory, node_queue: NodeQueue) -> None:
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
    recorded = EventRecorder(worker, *EVENTS)
    assert await job.waitUntilFinished(events, 10_000) == "second"
    seen = await node_queue.read(job.id)
    assert (seen["attemptsMade"], seen["attemptsStarted"]) == (1, 2)
    assert delayed.names() == ["delayed"]
    assert "error" not in recorded.names()
    assert "failed" not in recorded.names()


async def test_a_processor_puts_its_job_back(factory: Factory) -> None:
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


async def test_a_processor_extends_its_lock(factory: Factory) -> None:
    async def process(job: Job, token: str) -> Any:
        assert await job.extendLock(token, 90_000) == 1
        return await job.queue.store.call("PTTL", f"bull:mail:{job.id}:lock")

    queue, events = factory.queue(), await factory.events()
    factory.worker(process)
    # the worker renews its locks when it begins, and then not for a while
    await (await queue.add("first", {})).waitUntilFinished(events, 10_000)
    job = await queue.add("send", {})
    assert 80_000 < await job.waitUntilFinished(events, 10_000) <= 90_000


async def test_a_rate_limit_error_holds_the_queue(factory: Factory, node_queue: NodeQueue) -> None:
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


async def test_no_more_jobs_run_at_a_time_than_the_concurrency(factory: Factory) -> None:
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


async def test_ended_jobs_are_kept_by_the_workers_options_unless_they_have_their_own(
    factory: Factory, node_queue: NodeQueue
) -> None:
    async def process(job: Job, token: str) -> Any:
        if job.name == "fails":
            raise ValueError("no")

    queue, events = factory.queue(), await factory.events()
    recorded = EventRecorder(events, "completed", "failed")
    factory.worker(process, removeOnComplete={"count": 1}, removeOnFail=True, metrics={"maxDataPoints": 5})
    await queue.addBulk([{"name": "works"}] * 3 + [{"name": "fails"}] * 2)
    await queue.add("works", {}, {"removeOnComplete": False})
    await recorded.wait_for_count(6)
    assert (await node_queue("getJobCounts", "completed", "failed")) == {"completed": 2, "failed": 0}
    assert (await queue.getMetrics("completed"))["meta"]["count"] == 4
    assert (await queue.getMetrics("failed"))["meta"]["count"] == 2


async def test_a_blocked_loop_keeps_its_lock(factory: Factory) -> None:
    ran: list[Any] = []

    async def process(job: Job, token: str) -> Any:
        ran.append(job.id)
        block(0.7)

    job = await factory.queue().add("send", {})
    events = await factory.events()
    worker = factory.worker(process, lockDuration=200, stalledInterval=100)
    recorded = EventRecorder(worker, "stalled", "error", "locksRenewed")
    await job.waitUntilFinished(events, 10_000)
    assert ran == ["1"]
    assert set(recorded.names()) == {"locksRenewed"}
    assert recorded.events[0][1] == {"count": 1, "jobIds": ["1"]}


async def test_a_stalled_job_is_emitted_and_run_again(factory: Factory) -> None:
    async def process(job: Job, token: str) -> Any:
        return job.stalledCounter

    job = await factory.queue().add("send", {})
    events = await factory.events()
    dead = factory.worker(None, lockDuration=100)
    assert await dead.getNextJob("token") is not None
    worker = factory.worker(process, stalledInterval=60)
    recorded = EventRecorder(worker, "stalled")
    assert await job.waitUntilFinished(events, 10_000) == 1
    assert recorded.events == [("stalled", "1", "active")]


async def test_a_lost_lock_is_an_error_and_the_outcome_is_refused(
    factory: Factory, node_queue: NodeQueue
) -> None:
    async def process(job: Job, token: str) -> Any:
        await job.queue.store.call("SET", f"bull:mail:{job.id}:lock", "thief")
        return "mine"

    await factory.queue().add("send", {})
    worker = factory.worker(process)
    recorded = EventRecorder(worker, "error", "completed")

    async def refused() -> list[tuple[Any, ...]]:
        # a heartbeat may emit before that it could not renew the lock, without a job
        return [args for args in recorded.of("error") if len(args) == 2]

    await until(refused)
    [[error, job]] = await refused()
    assert str(error) == "Lock mismatch for job 1. Cmd moveToFinished from active"
    assert (job.id, recorded.of("completed")) == ("1", [])
    assert await node_queue.job("1", "getState") == "active"


async def test_a_lock_that_cannot_be_renewed_is_emitted_while_the_job_runs(factory: Factory) -> None:
    is_emitted = asyncio.Event()

    async def process(job: Job, token: str) -> Any:
        if job.data == "robbed":
            await job.queue.store.call("SET", f"bull:mail:{job.id}:lock", "thief")
            await asyncio.wait_for(is_emitted.wait(), 10)
        return "mine"

    worker = factory.worker(process, lockDuration=200)
    worker.on("lockRenewalFailed", lambda ids: is_emitted.set())
    recorded = EventRecorder(worker, "lockRenewalFailed", "error", "completed")
    await factory.queue().add("send", "robbed")

    def messages() -> list[str]:
        return [str(error) for error, *_ in recorded.of("error")]

    async def is_refused() -> bool:
        return "Lock mismatch for job 1. Cmd moveToFinished from active" in messages()[-1:]

    await until(is_refused)
    assert recorded.of("lockRenewalFailed")[0] == (["1"],)
    assert set(messages()[:-1]) == {"could not renew lock for job 1"}
    before = len(recorded.events)
    for _ in range(50):
        job = await factory.queue().add("send", "quick")
        await until(job.isCompleted)
    assert set(recorded.names()[before:]) == {"completed"}, "one that has ended has lost no lock"


# -- with Node ----------------------------------------------------------------------------------------------


async def test_nodes_jobs_are_run_and_node_gets_the_result(factory: Factory, node_queue: NodeQueue) -> None:
    async def process(job: Job, token: str) -> Any:
        return {"python": job.data["node"]}

    factory.worker(process)
    await node_queue.node("openEvents", handle="events", **node_queue.where)
    job_id = await node_queue.add("send", {"node": "ü"}, attempts=2)
    ended = await node_queue.node("waitUntilFinished", queue="queue", events="events", id=job_id, ttl=10_000)
    assert ended == {"python": "ü"}


@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_a_job_that_ends_after_a_forced_obliterate_brings_no_key_back(
    factory: Factory, error: Exception | None
) -> None:
    has_started, may_end = asyncio.Event(), asyncio.Event()

    async def process(job: Job, token: str) -> None:
        has_started.set()
        await may_end.wait()
        if error:
            raise error

    queue = factory.queue()
    await queue.add("send", {}, {"attempts": 3})
    worker = factory.worker(process)
    recorder = EventRecorder(worker, "error")
    await has_started.wait()
    await queue.obliterate(True)
    may_end.set()
    await recorder.wait_for("error")
    await worker.close()
    assert await queue.store.call("KEYS", "*") == []


@pytest.mark.parametrize("reason", ["job stalled more than allowable limit", "child bull:photos:1 failed"])
async def test_a_job_that_must_fail_before_it_runs_has_nodes_stack_trace(
    factory: Factory, node_queue: NodeQueue, reason: str
) -> None:
    """Its field `defa` has the reason: its lock was lost too often, or a child has failed."""
    queue = factory.queue()

    async def doomed() -> Job:
        job = await queue.add("send", {}, {"delay": 60_000})
        await queue.store.call("HSET", queue.toKey(job.key), "defa", reason)
        await job.promote()
        return job

    theirs = await doomed()
    await node_queue.works()
    await until(theirs.isFailed)
    await node_queue.node("close", handle="worker", force=True)
    await until_workers(queue, 0)
    ours = await doomed()
    recorder = EventRecorder(factory.worker(), "failed")
    await recorder.wait_for("failed")
    lines = [(await node_queue.read(job.id))["stacktrace"][0].splitlines()[0] for job in (theirs, ours)]
    assert lines == [f"UnrecoverableError: {reason}"] * 2
    assert recorder.of("failed")[0][0].stacktrace == [lines[1]]
