"""Job: each method as the official client has it, and Node reads what it wrote."""

import asyncio
import time
from typing import Any

import pytest

from corral.bullmq import Job, UnrecoverableError
from tests.dropin.factory import EventRecorder, Factory, until_workers
from tests.dropin.node_queue import NodeQueue


async def claimed(factory: Factory, token: str = "token", **opts: Any) -> Job:
    """Return a job that this process has claimed."""
    await factory.queue().add("send", {"a": 1}, opts)
    job = await factory.worker(None).getNextJob(token)
    assert job is not None
    return job


# -- data, progress, log ------------------------------------------------------------------------------------


async def test_data_is_replaced(factory: Factory, node_queue: NodeQueue) -> None:
    job = await factory.queue().add("send", {"a": 1})
    await job.updateData({"b": [2**60, "ü"]})
    assert job.data == {"b": [2**60, "ü"]}
    assert (await node_queue.read(job.id))["data"]["b"][1] == "ü"
    await job.remove()
    with pytest.raises(TypeError, match=r"^Missing key for job 1\. updateData$") as caught:
        await job.updateData({})
    assert vars(caught.value)["code"] == -1


async def test_progress_is_emitted_to_listeners(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    events = await factory.events()
    recorded, own = EventRecorder(events, "progress"), EventRecorder(queue, "progress")
    job = await queue.add("send", {})
    for progress in (0, 42, {"step": "ü", "of": 3}, [1], "half"):
        await job.updateProgress(progress)
        assert (await node_queue.read(job.id))["progress"] == progress == job.progress
    assert [args[1] for args in own.of("progress")] == [0, 42, {"step": "ü", "of": 3}, [1], "half"]
    while len(recorded.events) < 5:
        await asyncio.sleep(0.005)
    assert recorded.of("progress")[2][0] == {"jobId": "1", "data": {"step": "ü", "of": 3}}
    await job.remove()
    with pytest.raises(TypeError, match=r"^Missing key for job 1\. updateProgress$"):
        await job.updateProgress(1)


async def test_log_lines_are_kept_and_cleared(factory: Factory, node_queue: NodeQueue) -> None:
    job = await factory.queue().add("send", {}, {"keepLogs": 2})
    assert [await job.log(line) for line in ("one", "two", "three")] == [1, 2, 2]
    assert (await node_queue("getJobLogs", job.id))["logs"] == ["two", "three"]
    await job.clearLogs(1)
    assert (await node_queue("getJobLogs", job.id))["logs"] == ["three"]
    await job.clearLogs()
    assert (await node_queue("getJobLogs", job.id))["count"] == 0
    await job.remove()
    with pytest.raises(TypeError, match=r"^Missing key for job 1\. addLog$"):
        await job.log("late")


async def test_a_locked_job_is_not_removed(factory: Factory, node_queue: NodeQueue) -> None:
    job = await claimed(factory)
    message = "^Job 1 could not be removed because it is locked by another worker$"
    with pytest.raises(Exception, match=message):
        await job.remove()
    with pytest.raises(Exception, match=message):
        await node_queue.job(job.id, "remove")
    await job.moveToCompleted(None, "token")
    await job.remove()
    assert await node_queue.read(job.id) is None


# -- states -------------------------------------------------------------------------------------------------


async def test_a_job_is_in_one_state_at_a_time(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    worker = factory.worker(None)
    await queue.add("completes", {})
    done = await worker.getNextJob("t1")
    assert done is not None
    await done.moveToCompleted(1, "t1")
    await queue.add("fails", {})
    failed = await worker.getNextJob("t2")
    assert failed is not None
    await failed.moveToFailed(ValueError("no"), "t2")
    await queue.add("runs", {})
    held = await worker.getNextJob("t3")
    assert held is not None
    tree = await factory.flows().add(
        {"name": "parent", "queueName": "mail", "children": [{"name": "child", "queueName": "other"}]}
    )
    assert tree is not None
    jobs = {
        "completed": done,
        "failed": failed,
        "active": held,
        "delayed": await queue.add("later", {}, {"delay": 60_000}),
        "prioritized": await queue.add("ranked", {}, {"priority": 1}),
        "waiting": await queue.add("waits", {}),
        "waiting-children": tree["job"],
    }
    methods = [
        "isCompleted", "isFailed", "isActive", "isDelayed", "isPrioritized", "isWaiting", "isWaitingChildren",
    ]  # fmt: skip
    for (state, job), method in zip(jobs.items(), methods, strict=True):
        assert await job.getState() == await node_queue.job(job.id, "getState") == state
        assert [name for name in methods if await getattr(job, name)()] == [method]
    await queue.pause()
    assert await jobs["waiting"].isWaiting()


async def test_a_delayed_job_is_promoted(factory: Factory, node_queue: NodeQueue) -> None:
    job = await factory.queue().add("later", {}, {"delay": 60_000})
    await job.promote()
    assert job.delay == 0
    assert await node_queue.job(job.id, "getState") == "waiting"
    with pytest.raises(TypeError, match=r"^Job 1 is not in the delayed state\. promote$"):
        await job.promote()
    with pytest.raises(Exception, match=r"^Job 1 is not in the delayed state\. promote$"):
        await node_queue.job(job.id, "promote")


async def test_a_delay_is_changed(factory: Factory, node_queue: NodeQueue) -> None:
    job = await factory.queue().add("later", {}, {"delay": 60_000})
    await job.changeDelay(5)
    assert job.delay == (await node_queue.read(job.id))["delay"] == 5
    await job.promote()
    message = r"^Job 1 is not in the delayed state\. changeDelay$"
    with pytest.raises(TypeError, match=message):
        await job.changeDelay(7)
    with pytest.raises(Exception, match=message):
        await node_queue.job(job.id, "changeDelay", 7)


async def test_a_priority_is_changed(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    first, second, third = [await queue.add("ranked", {}, {"priority": number}) for number in (1, 2, 3)]
    await third.changePriority({"priority": 1, "lifo": True})
    assert third.priority == (await node_queue.read(third.id))["priority"] == 1
    assert [job["id"] for job in await node_queue("getPrioritized")] == [third.id, first.id, second.id]
    await second.changePriority({"priority": 0})
    assert await second.getState() == "waiting"
    await first.remove()
    with pytest.raises(TypeError, match=r"^Missing key for job 1\. changePriority$"):
        await first.changePriority({"priority": 4})


# -- claimed manually ---------------------------------------------------------------------------------------


async def test_a_manually_claimed_job_is_completed(factory: Factory, node_queue: NodeQueue) -> None:
    job = await claimed(factory)
    assert (job.token, job.attemptsStarted, await job.getState()) == ("token", 1, "active")
    assert await factory.queue().store.call("GET", "bull:mail:1:lock") == b"token"
    assert await job.moveToCompleted({"fine": True}, "token") == [None, None, None, None]
    seen = await node_queue.read(job.id)
    assert (seen["returnvalue"], seen["attemptsMade"]) == ({"fine": True}, 1)
    assert (job.returnvalue, job.attemptsMade, job.finishedOn) == ({"fine": True}, 1, seen["finishedOn"])


async def test_fetch_next_claims_the_next_job(factory: Factory) -> None:
    job = await claimed(factory)
    await factory.queue().add("next", {"b": 2})
    fields, job_id, limited, due = await job.moveToCompleted(1, "token", True)
    following = Job.fromJSON(job.queue, fields, job_id)
    assert (following.id, following.data, limited, due) == ("2", {"b": 2}, 0, 0)
    await following.moveToCompleted(2, "token")
    assert await factory.queue().getCompletedCount() == 2
    await until_workers(factory.queue(), 1)  # the one that claimed the first


@pytest.mark.parametrize(
    ("opts", "error", "state"),
    [
        ({}, ValueError("no"), "failed"),
        ({"attempts": 2}, ValueError("no"), "waiting"),
        ({"attempts": 2, "backoff": 60_000}, ValueError("no"), "delayed"),
        ({"attempts": 2}, UnrecoverableError("no"), "failed"),
        ({"attempts": 0}, ValueError("no"), "failed"),
        ({"attempts": 1}, ValueError("no"), "failed"),
    ],
)
async def test_a_manually_claimed_job_fails_by_its_options(
    factory: Factory, node_queue: NodeQueue, opts: dict[str, Any], error: Exception, state: str
) -> None:
    job = await claimed(factory, **opts)
    try:
        raise error
    except Exception as caught:
        await job.moveToFailed(caught, "token")
    assert await node_queue.job(job.id, "getState") == state
    seen = await node_queue.read(job.id)
    assert (seen["failedReason"], seen["attemptsMade"]) == ("no", 1) == (job.failedReason, job.attemptsMade)
    assert len(seen["stacktrace"]) == 1
    assert "no" in seen["stacktrace"][0]
    assert job.stacktrace == seen["stacktrace"]


@pytest.mark.parametrize("delay", [0, 60_000])
async def test_an_attempt_with_another_to_come_claims_no_next_job(factory: Factory, delay: int) -> None:
    job = await claimed(factory, attempts=2, backoff=delay)
    await factory.queue().add("next")
    assert await job.moveToFailed(ValueError("no"), "token", True) is None
    assert await factory.queue().getWaitingCount() == 1 + (delay == 0)


async def test_a_stack_trace_is_appended_as_far_as_the_limit_allows(factory: Factory) -> None:
    job = await factory.queue().add("send", {}, {"stackTraceLimit": 2})
    job.updateStacktrace()
    assert job.stacktrace == []
    for number in range(3):
        try:
            raise ValueError(f"no {number}")
        except ValueError:
            job.updateStacktrace()
    assert [trace.splitlines()[-1] for trace in job.stacktrace] == ["ValueError: no 1", "ValueError: no 2"]


async def test_a_backoff_strategy_decides_when_a_job_is_retried(
    factory: Factory, node_queue: NodeQueue
) -> None:
    await factory.queue().add("send", {}, {"attempts": 5, "backoff": {"type": "mine"}})
    calls: list[Any] = []

    def strategy(made: int, kind: str, error: Exception, job: Job) -> int:
        calls.append((made, kind, str(error), job.id))
        return -1 if made == 2 else 0

    worker = factory.worker(None, settings={"backoffStrategy": strategy})
    for token in ("t1", "t2"):
        job = await worker.getNextJob(token)
        assert job is not None
        await job.moveToFailed(ValueError("no"), token)
    assert calls == [(1, "mine", "no", "1"), (2, "mine", "no", "1")]
    assert await node_queue.job("1", "getState") == "failed"


async def test_a_backoff_without_a_strategy_is_raised_and_nothing_written(factory: Factory) -> None:
    job = await claimed(factory, attempts=5, backoff={"type": "mine"})
    before = await job.queue.read(job.key)
    with pytest.raises(Exception, match=r"^Unknown backoff strategy mine\. If a custom"):
        await job.moveToFailed(ValueError("no"), "token")
    assert await job.queue.read(job.key) == before
    assert await job.isActive()
    job.discard()
    await job.moveToFailed(ValueError("no"), "token")
    assert await job.isFailed()


async def test_a_discarded_job_has_no_other_attempt(factory: Factory) -> None:
    job = await claimed(factory, attempts=5)
    job.discard()
    await job.moveToFailed(ValueError("no"), "token")
    assert await job.isFailed()


async def test_a_manually_claimed_job_is_delayed(factory: Factory, node_queue: NodeQueue) -> None:
    job = await claimed(factory)
    await job.moveToDelayed(int(time.time() * 1000) + 60_000, "token")
    seen = await node_queue.read(job.id)
    assert await node_queue.job(job.id, "getState") == "delayed"
    assert 59_000 < seen["delay"] <= 60_000
    assert (seen["attemptsMade"], seen["attemptsStarted"]) == (0, 1)
    assert job.delay == seen["delay"]


async def test_a_manually_claimed_job_is_put_back(factory: Factory, node_queue: NodeQueue) -> None:
    job = await claimed(factory)
    await factory.queue().add("second", {})
    await job.moveToWait("token")
    assert [each["id"] for each in await node_queue("getWaiting")] == ["1", "2"]


async def test_a_lock_is_extended(factory: Factory) -> None:
    job = await claimed(factory)
    store = factory.queue().store
    assert await job.extendLock("token", 90_000) == 1
    assert 80_000 < await store.call("PTTL", "bull:mail:1:lock") <= 90_000
    assert await job.extendLock("another", 1000) == 0
    assert await store.call("GET", "bull:mail:1:lock") == b"token"


MOVES: list[tuple[str, list[Any], str]] = [
    ("moveToCompleted", [1], "moveToFinished"),
    ("moveToFailed", [ValueError("no")], "moveToFinished"),
    ("moveToDelayed", [0], "moveToDelayed"),
    ("moveToWait", [], "moveJobFromActiveToWait"),
]


@pytest.mark.parametrize(("method", "args", "command"), MOVES)
async def test_a_wrong_token_moves_nothing(
    factory: Factory, method: str, args: list[Any], command: str
) -> None:
    job = await claimed(factory)
    before = await factory.queue().read("1")
    with pytest.raises(TypeError, match=f"^Lock mismatch for job 1. Cmd {command} from active$"):
        await getattr(job, method)(*args, "wrong-token")
    await factory.queue().store.call("DEL", "bull:mail:1:lock")
    with pytest.raises(TypeError, match=f"^Missing lock for job 1. {command}$"):
        await getattr(job, method)(*args, "token")
    assert await factory.queue().read("1") == before
    await factory.queue().store.call("DEL", "bull:mail:1")
    with pytest.raises(TypeError, match=f"^Missing key for job 1. {command}$"):
        await getattr(job, method)(*args, "token")


# -- retry and wait -----------------------------------------------------------------------------------------


async def test_an_ended_job_is_retried(factory: Factory, node_queue: NodeQueue) -> None:
    job = await claimed(factory)
    await job.moveToFailed(ValueError("no"), "token")
    await job.retry()
    assert (job.failedReason, job.finishedOn, job.processedOn, job.returnvalue) == (None, None, None, None)
    seen = await node_queue.read(job.id)
    assert (seen.get("failedReason"), seen.get("finishedOn"), seen["attemptsMade"]) == (None, None, 1)
    assert await node_queue.job(job.id, "getState") == "waiting"
    for state in ("failed", "completed"):
        message = rf"^Job 1 is not in the {state} state\. reprocessJob$"
        with pytest.raises(TypeError, match=message):
            await job.retry(state)
        with pytest.raises(Exception, match=message):
            await node_queue.job(job.id, "retry", state)
    again = await factory.worker(None).getNextJob("again")
    assert again is not None
    await again.moveToCompleted(1, "again")
    await again.retry("completed", {"resetAttemptsMade": True, "resetAttemptsStarted": True})
    seen = await node_queue.read(job.id)
    assert (seen["attemptsMade"], seen["attemptsStarted"], again.attemptsMade) == (0, 0, 0)
    await again.remove()
    with pytest.raises(TypeError, match=r"^Missing key for job 1\. reprocessJob$"):
        await again.retry()


async def test_wait_until_finished_returns_the_result_or_raises_the_reason(
    factory: Factory, node_queue: NodeQueue
) -> None:
    queue = factory.queue()
    events = await factory.events()
    await node_queue.works()
    job = await queue.add("send", {"script": {"return": {"by": "node"}, "sleep": 20}})
    assert await job.waitUntilFinished(events, 10_000) == {"by": "node"}
    assert await job.waitUntilFinished(events) == {"by": "node"}
    failing = await queue.add("send", {"script": {"fail": -1, "message": "on purpose"}})
    for _ in range(2):
        with pytest.raises(Exception, match=r"^on purpose$"):
            await failing.waitUntilFinished(events, 10_000)
    late = await queue.add("send", {}, {"delay": 60_000})
    message = (
        r"^Job wait send timed out before finishing, no finish notification arrived after 30ms \(id=3\)$"
    )
    with pytest.raises(TimeoutError, match=message):
        await late.waitUntilFinished(events, 30)
    await late.remove()
    with pytest.raises(Exception, match=r"^Missing key for job bull:mail:3\. isFinished$"):
        await late.waitUntilFinished(events, 10_000)


async def test_to_json_returns_the_fields(factory: Factory) -> None:
    job = await factory.queue().add("send", {"a": 1}, {"parent": None})
    fields = job.toJSON()
    assert (fields["id"], fields["data"], fields["attemptsMade"]) == ("1", {"a": 1}, 0)
    assert "queue" not in fields
    assert (job.queueName, job.prefix, job.queueQualifiedName) == ("mail", "bull", "bull:mail")
    assert repr(job) == "<Job 'send' id='1' queue='mail'>"


@pytest.mark.parametrize("priority", [-1, 2**21 + 1, 1.5])
async def test_a_priority_outside_the_limits_is_not_set(factory: Factory, priority: Any) -> None:
    job = await factory.queue().add("send", {}, {"priority": 7})
    with pytest.raises(ValueError, match="use a whole number from 0 to 2097152"):
        await job.changePriority({"priority": priority})
    assert await factory.queue().getCountsPerPriority([7]) == {"7": 1}


async def test_jitter_shortens_a_delay_by_its_share_at_most(factory: Factory) -> None:
    job = await claimed(factory, attempts=2, backoff={"type": "fixed", "delay": 60_000, "jitter": 0.5})
    await job.moveToFailed(ValueError("no"), "token")
    assert 30_000 <= job.delay < 60_000
