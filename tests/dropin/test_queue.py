"""Queue: each method as the official client has it, and Node reads what it wrote."""

from typing import Any

import pytest

from tests.dropin.factory import EventRecorder, Factory
from tests.dropin.node_queue import NodeQueue
from tests.support.polling import until


async def test_an_added_job_has_its_id_and_node_reads_it(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    job = await queue.add("send", {"to": "ä@b.c", "n": 130775545883395173}, {"attempts": 3, "backoff": 500})
    assert (job.id, job.name, job.attemptsMade, job.progress) == ("1", "send", 0, 0)
    assert job.opts == {"attempts": 3, "delay": 0, "backoff": {"type": "fixed", "delay": 500}}
    seen = await node_queue.read(job.id)
    assert (seen["name"], seen["data"]["to"], seen["timestamp"]) == ("send", "ä@b.c", job.timestamp)
    assert seen["opts"] == {"attempts": 3, "backoff": {"type": "fixed", "delay": 500}}
    assert await node_queue("getJobState", job.id) == "waiting" == await job.getState()


async def test_options_reach_node_under_their_own_names(factory: Factory, node_queue: NodeQueue) -> None:
    opts: dict[str, Any] = {
        "jobId": "mine",
        "timestamp": 1_700_000_000_000,
        "delay": 60_000,
        "priority": 7,
        "lifo": True,
        "removeOnComplete": {"age": 60, "count": 5},
        "removeOnFail": 3,
        "keepLogs": 2,
        "stackTraceLimit": 4,
        "sizeLimit": 100,
        "failParentOnFailure": True,
        "backoff": {"type": "exponential", "delay": 10, "jitter": 0.5},
        "telemetry": {"metadata": "m", "omitContext": True},
        "anything": {"else": 1},
    }
    job = await factory.queue().add("send", {"a": 1}, opts)
    seen = await node_queue.read("mine")
    assert seen["opts"] == {**opts, "attempts": 0}
    assert (seen["delay"], seen["priority"], seen["timestamp"]) == (60_000, 7, 1_700_000_000_000)
    assert (job.id, job.delay, job.priority, job.timestamp) == ("mine", 60_000, 7, 1_700_000_000_000)
    again = await factory.queue().getJob("mine")
    assert again is not None
    assert again.opts == {**opts, "attempts": 0}


async def test_default_options_apply_unless_overridden(factory: Factory) -> None:
    queue = factory.queue(defaultJobOptions={"attempts": 4, "removeOnComplete": True})
    assert (await queue.add("send", {})).opts["attempts"] == 4
    assert (await queue.add("send", {}, {"attempts": 2})).opts == {
        "attempts": 2, "removeOnComplete": True, "delay": 0, "backoff": None,
    }  # fmt: skip
    [bulk] = await queue.addBulk([{"name": "send", "data": 1}])
    assert bulk.opts["attempts"] == 4
    assert queue.defaultJobOptions == {"attempts": 4, "removeOnComplete": True}


async def test_many_jobs_are_added_in_order(factory: Factory, node_queue: NodeQueue) -> None:
    jobs = await factory.queue().addBulk(
        [{"name": f"job-{number}", "data": number, "opts": {"attempts": 2}} for number in range(1200)]
    )
    assert [job.id for job in jobs] == [str(number + 1) for number in range(1200)]
    assert (await node_queue("getJobCounts", "waiting"))["waiting"] == 1200
    assert [job["name"] for job in await node_queue("getWaiting", 0, 2)] == ["job-0", "job-1", "job-2"]


async def test_an_existing_id_is_not_added_again(factory: Factory) -> None:
    queue = factory.queue()
    await queue.add("first", {"a": 1}, {"jobId": "same"})
    again = await queue.add("second", {"a": 2}, {"jobId": "same"})
    assert again.id == "same"
    job = await queue.getJob("same")
    assert job is not None
    assert (job.name, job.data, await queue.getWaitingCount()) == ("first", {"a": 1}, 1)


async def test_data_of_any_size_and_shape_is_accepted_as_officially(
    factory: Factory, node_queue: NodeQueue
) -> None:
    queue = factory.queue()
    large = await queue.add("large", {"text": "x" * (11 * 1024 * 1024)})
    job = await queue.getJob(str(large.id))
    assert job is not None
    assert len(job.data["text"]) == 11 * 1024 * 1024
    odd = await queue.add("odd", {1: "one", "big": 2**70, "tuple": (1, 2)})
    assert (await node_queue.read(odd.id))["data"] == {
        "1": "one",
        "big": 1.1805916207174113e21,
        "tuple": [1, 2],
    }
    for value in (None, 0, "text", [], False):
        assert (await node_queue.read((await queue.add("plain", value)).id))["data"] == value


@pytest.mark.parametrize(
    ("data", "kind"),
    [({"a": float("nan")}, ValueError), ({"a": object()}, TypeError), ({"a": b"x"}, TypeError)],
)
async def test_data_json_cannot_represent_is_refused_and_nothing_written(
    factory: Factory, data: Any, kind: type[Exception]
) -> None:
    queue = factory.queue()
    with pytest.raises(kind):
        await queue.add("send", data)
    with pytest.raises(kind):
        await queue.addBulk([{"name": "send", "data": 1}, {"name": "send", "data": data}])
    assert await queue.store.call("DBSIZE") == 0


async def test_a_missing_parent_is_refused_with_the_official_message(factory: Factory) -> None:
    queue = factory.queue()
    parent = {"parent": {"id": "gone", "queue": "bull:other"}}
    with pytest.raises(TypeError, match=r"^Missing key for parent job bull:other:gone\. addJob$") as caught:
        await queue.add("child", {}, parent)
    assert vars(caught.value)["code"] == -5
    assert await queue.count() == 0


async def test_one_missing_parent_of_many_leaves_the_others_with_their_ids_as_in_node(
    factory: Factory, node_queue: NodeQueue
) -> None:
    queue = factory.queue()
    jobs = [{"name": "send", "data": {"n": n}} for n in range(3)]
    jobs[1]["opts"] = {"parent": {"id": "gone", "queue": "bull:other"}}
    assert [job["id"] for job in await node_queue("addBulk", jobs)] == ["1", -5, "2"]
    assert [job.id for job in await queue.addBulk(jobs)] == ["3", -5, "4"]
    assert [job.data["n"] for job in await queue.getWaiting()] == [0, 2, 0, 2]


# -- the whole queue ----------------------------------------------------------------------------------------


async def test_a_paused_queue_is_paused_for_node_too(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    await queue.add("send", {})
    await queue.pause()
    assert await queue.isPaused() is await node_queue("isPaused") is True
    assert (
        await queue.getJobCounts("waiting")
        == {"waiting": 0, "paused": 1}
        == await node_queue("getJobCounts", "waiting")
    )
    assert await queue.getWaitingCount() == 1
    assert [job.id for job in await queue.getWaiting()] == ["1"]
    await node_queue("resume")
    assert await queue.isPaused() is False
    assert (await queue.getJobCounts())["waiting"] == 1
    await queue.pause()
    await queue.resume()
    assert await node_queue("isPaused") is False


async def test_draining_keeps_delayed_jobs_by_default(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    await queue.addBulk([{"name": "a"}, {"name": "b", "opts": {"priority": 3}}])
    await queue.add("later", {}, {"delay": 60_000})
    await queue.drain()
    assert await node_queue("getJobCounts", "wait", "prioritized", "delayed") == {
        "wait": 0, "prioritized": 0, "delayed": 1,
    }  # fmt: skip
    await queue.drain(True)
    assert await queue.count() == 0


async def test_cleaning_deletes_what_is_old_enough(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    for number in range(5):
        await queue.add("send", number)
    await node_queue.works({})
    events = await factory.events()
    for number in range(1, 6):
        job = await queue.getJob(str(number))
        assert job is not None
        await job.waitUntilFinished(events, 10_000)
    await node_queue.node("close", handle="worker")
    assert await queue.clean(60_000, 100, "completed") == []
    recorded = EventRecorder(queue, "cleaned")
    gone = await queue.clean(0, 2, "completed")
    assert len(gone) == 2
    assert recorded.events == [("cleaned", gone, "completed")]
    assert await node_queue("getCompletedCount") == 3
    assert len(await queue.clean(0, 0)) == 3
    await queue.add("waiting", {})
    assert await until(lambda: queue.clean(0, 10, "waiting")) == ["6"]


async def test_obliterate_deletes_everything_and_needs_force_where_jobs_are_active(factory: Factory) -> None:
    queue = factory.queue()
    await queue.addBulk([{"name": "a"}, {"name": "b"}])
    worker = factory.worker(None)
    assert await worker.getNextJob("token") is not None
    with pytest.raises(Exception, match=r"^Cannot obliterate queue with active jobs$"):
        await queue.obliterate()
    assert await queue.getActiveCount() == 1
    await queue.obliterate(force=True)
    # the job's lock expires
    left = [key.decode() for key in await queue.store.call("KEYS", "bull:mail:*")]
    assert left in ([], ["bull:mail:1:lock"])


async def test_failed_jobs_are_retried_together(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    await queue.addBulk([{"name": "a"}, {"name": "b"}])
    worker = factory.worker(None)
    for token in ("t1", "t2"):
        job = await worker.getNextJob(token)
        assert job is not None
        await job.moveToFailed(ValueError("no"), token)
    assert await node_queue("getFailedCount") == 2
    await queue.retryJobs()
    assert await node_queue("getJobCounts", "failed", "waiting") == {"failed": 0, "waiting": 2, "paused": 0}
    job = await worker.getNextJob("t3")
    assert job is not None
    await job.moveToCompleted(1, "t3")
    await queue.retryJobs({"state": "completed", "count": 1})
    assert await queue.getWaitingCount() == 2


async def test_delayed_jobs_are_promoted_together(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    await queue.addBulk([{"name": str(number), "opts": {"delay": 60_000}} for number in range(3)])
    await queue.promoteJobs({"count": 2})
    assert await node_queue("getJobCounts", "delayed", "wait") == {"delayed": 0, "wait": 3}


async def test_a_job_is_removed_unless_it_is_locked(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    await queue.addBulk([{"name": "a"}, {"name": "b"}])
    worker = factory.worker(None)
    held = await worker.getNextJob("token")
    assert held is not None
    recorded = EventRecorder(queue, "removed")
    assert await queue.remove(str(held.id)) == 0
    assert await queue.remove("2") == 1
    assert recorded.events == [("removed", "2")]
    assert await node_queue.read("2") is None
    assert await queue.getJobState("2") == "unknown"


async def test_progress_and_log_by_id(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    await queue.add("send", {})
    await queue.updateJobProgress("1", {"half": True})
    assert (await node_queue.read("1"))["progress"] == {"half": True}
    assert [await queue.addJobLog("1", f"line {number}", 2) for number in range(3)] == [1, 2, 2]
    assert await queue.getJobLogs("1") == {"logs": ["line 1", "line 2"], "count": 2}
    assert await queue.getJobLogs("1", 0, 0, False) == {"logs": ["line 2"], "count": 2}
    assert await node_queue("getJobLogs", "1") == {"logs": ["line 1", "line 2"], "count": 2}
    with pytest.raises(TypeError, match=r"^Missing key for job 9\. updateProgress$"):
        await queue.updateJobProgress("9", 1)


async def test_events_are_trimmed(factory: Factory) -> None:
    queue = factory.queue()
    await queue.addBulk([{"name": "a"}] * 300)
    dropped = await queue.trimEvents(0)
    assert dropped == 600
    assert await queue.store.call("XLEN", "bull:mail:events") == 0


# -- limits -------------------------------------------------------------------------------------------------


async def test_global_concurrency_is_set_read_and_removed(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    assert await queue.getGlobalConcurrency() is None
    assert await queue.setGlobalConcurrency(2) == 1
    assert await queue.setGlobalConcurrency(3) == 0
    assert await queue.getGlobalConcurrency() == await node_queue("getGlobalConcurrency") == 3
    assert await queue.isMaxed() is False
    assert await queue.removeGlobalConcurrency() == 1
    assert await node_queue("getGlobalConcurrency") is None


async def test_a_global_rate_limit_is_set_read_and_removed(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    assert await queue.getGlobalRateLimit() is None
    assert await queue.setGlobalRateLimit(5, 1000) == 2
    limit = {"max": 5, "duration": 1000}
    assert await queue.getGlobalRateLimit() == await node_queue("getGlobalRateLimit") == limit
    assert await queue.removeGlobalRateLimit() == 2
    assert await node_queue("getGlobalRateLimit") is None


async def test_a_manual_limit_holds_for_its_time(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    assert await queue.getRateLimitTtl() == -2
    await queue.rateLimit(60_000)
    assert 0 < await queue.getRateLimitTtl() <= 60_000
    assert 0 < await node_queue("getRateLimitTtl", 10) <= 60_000
    assert 0 < await queue.getRateLimitTtl(10) <= 60_000
    assert await queue.removeRateLimitKey() == 1
    assert await queue.removeRateLimitKey() == 0


async def test_a_deduplication_id_is_read_and_released(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    first = await queue.add("send", 1, {"deduplication": {"id": "once"}})
    second = await queue.add("send", 2, {"deduplication": {"id": "once"}})
    assert first.id == second.id == await queue.getDeduplicationJobId("once")
    assert first.deduplicationId == first.deduplication_id == "once"
    assert await node_queue("getDeduplicationJobId", "once") == first.id
    assert await queue.getJobCountByTypes("waiting") == 1
    assert await queue.removeDeduplicationKey("once") == 1
    assert await queue.getDeduplicationJobId("once") is None
    assert await queue.removeDebounceKey("once") == 0
    await queue.add("send", 3, {"deduplication": {"id": "once"}})
    assert await queue.getDebounceJobId("once") is not None
    assert await queue.count() == 2


async def test_a_key_of_earlier_versions_is_deleted(factory: Factory) -> None:
    queue = factory.queue()
    await queue.store.call("SET", "bull:mail:priority", "old")
    assert await queue.removeDeprecatedPriorityKey() == 1
    assert await queue.removeDeprecatedPriorityKey() == 0


async def test_jobs_with_equal_options_have_options_of_their_own(factory: Factory) -> None:
    queue = factory.queue()
    shared = {"attempts": 2, "backoff": {"type": "fixed", "delay": 10}}
    first, second = await queue.addBulk([{"name": "send", "data": n, "opts": shared} for n in (1, 2)])
    third = await queue.add("send", 3, {**shared})
    first.opts["backoff"]["delay"] = 99
    shared["backoff"]["delay"] = 77
    fourth = await queue.add("send", 4, shared)
    delays = [job.opts["backoff"]["delay"] for job in (first, second, third, fourth)]
    assert delays == [99, 10, 10, 77]
    stored = [await queue.getJob(job.id) for job in (first, second, third, fourth)]
    assert [job.opts["backoff"]["delay"] for job in stored] == [10, 10, 10, 77]
    assert first.toJSON() | {"opts": second.opts, "id": second.id, "data": 2} == second.toJSON()


async def test_options_that_are_equal_in_python_only_are_written_as_they_were_given(factory: Factory) -> None:
    queue = factory.queue()
    jobs = await queue.addBulk([{"name": "send", "opts": {"removeOnComplete": keep}} for keep in (1, True)])
    written = [await queue.store.call("HGET", queue.toKey(job.id), "opts") for job in jobs]
    assert [b'"removeOnComplete":1' in written[0], b'"removeOnComplete":true' in written[1]] == [True, True]
    assert [type(job.removeOnComplete) for job in jobs] == [int, bool]
