"""The reading methods of Queue return what Node's Queue returns."""

from typing import Any

import pytest

from corral.bullmq import Queue
from tests.dropin.factory import Factory, until_workers
from tests.dropin.node_queue import NodeQueue
from tests.support.polling import until

STATES = ("active", "completed", "delayed", "failed", "paused", "prioritized", "waiting", "waiting-children")


@pytest.fixture
async def queue(factory: Factory) -> Queue:
    """A queue with at least one job in every state."""
    queue = factory.queue()
    worker = factory.worker(None, called="by-hand", metrics={"maxDataPoints": 10})
    for number, how in enumerate(("done", "done", "failed", "failed", "held")):
        await queue.add(how, {"number": number})
        token = f"token-{number}"
        job = await worker.getNextJob(token)
        assert job is not None
        if how == "done":
            await job.moveToCompleted({"number": number}, token)
        elif how == "failed":
            await job.moveToFailed(ValueError(f"no {number}"), token)
    await factory.flows().add(
        {"name": "parent", "queueName": "mail", "opts": {"jobId": "parent"}, "children": [
            {"name": "child", "queueName": "other", "data": 1}]}
    )  # fmt: skip
    await queue.addBulk(
        [{"name": "later", "opts": {"delay": 60_000 + number}} for number in range(2)]
        + [{"name": "ranked", "opts": {"priority": priority}} for priority in (3, 1, 3)]
        + [{"name": f"waits-{number}"} for number in range(4)]
    )
    return queue


async def test_counts_equal_nodes(queue: Queue, node_queue: NodeQueue) -> None:
    counts = await queue.getJobCounts()
    assert counts == await node_queue("getJobCounts")
    assert counts == dict(zip(STATES, (1, 2, 2, 2, 0, 3, 4, 1), strict=True))
    named = await queue.getJobCounts("waiting", "failed", "waiting")
    assert named == {"waiting": 4, "failed": 2, "paused": 0}
    assert await queue.getJobCountByTypes("completed", "failed") == 4
    assert await queue.count() == await node_queue("count") == 10


@pytest.mark.parametrize(
    ("state", "count"),
    [
        ("Waiting", 4), ("Active", 1), ("Completed", 2), ("Failed", 2), ("Delayed", 2), ("Prioritized", 3),
        ("WaitingChildren", 1),
    ],
)  # fmt: skip
async def test_each_state_has_its_count_and_its_jobs(
    queue: Queue, node_queue: NodeQueue, state: str, count: int
) -> None:
    assert await getattr(queue, f"get{state}Count")() == await node_queue(f"get{state}Count") == count
    jobs = await getattr(queue, f"get{state}")()
    assert [job.id for job in jobs] == [job["id"] for job in await node_queue(f"get{state}")]
    assert len(jobs) == count
    paged = await getattr(queue, f"get{state}")(1, 2)
    assert [job.id for job in paged] == [job["id"] for job in await node_queue(f"get{state}", 1, 2)]


@pytest.mark.parametrize("ascending", [True, False])
async def test_jobs_of_many_states_come_in_nodes_order(
    queue: Queue, node_queue: NodeQueue, ascending: bool
) -> None:
    for types in (["waiting", "active", "completed"], list(STATES), []):
        jobs = await queue.getJobs(types, 0, -1, ascending)
        assert [job.id for job in jobs] == [
            job["id"] for job in await node_queue("getJobs", types, 0, -1, ascending)
        ]


async def test_counts_per_priority_equal_nodes(queue: Queue, node_queue: NodeQueue) -> None:
    counts = await queue.getCountsPerPriority([0, 1, 2, 3, 3])
    assert (
        counts == {"0": 4, "1": 1, "2": 0, "3": 2} == await node_queue("getCountsPerPriority", [0, 1, 2, 3])
    )


async def test_a_job_is_read_with_all_its_fields(queue: Queue, node_queue: NodeQueue) -> None:
    for job_id in ("1", "3", "5", "parent"):
        job = await queue.getJob(job_id)
        assert job is not None
        seen = await node_queue.read(job_id)
        assert (
            await queue.getJobState(job_id) == await node_queue("getJobState", job_id) == await job.getState()
        )
        for field in (
            "id", "name", "data", "progress", "delay", "priority", "timestamp", "attemptsMade",
            "attemptsStarted", "stalledCounter", "stacktrace", "returnvalue", "processedBy", "failedReason",
            "parentKey", "opts",
        ):  # fmt: skip
            assert _plain(getattr(job, field)) == _plain(seen.get(field)), field
        assert (job.processedOn or None) == seen.get("processedOn")
        assert (job.finishedOn or None) == seen.get("finishedOn")
    assert await queue.getJob("gone") is None
    assert await queue.getJob("") is None


def _plain(value: Any) -> Any:
    """Return a job without the options that only one side writes where they are empty."""
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if part not in (None, 0)}
    return value


async def test_metrics_equal_nodes(queue: Queue, node_queue: NodeQueue) -> None:
    for kind in ("completed", "failed"):
        metrics = await queue.getMetrics(kind)
        assert metrics["meta"]["count"] == 2
        assert metrics == await node_queue("getMetrics", kind)


async def test_the_prometheus_export_equals_nodes(queue: Queue, node_queue: NodeQueue) -> None:
    assert await queue.exportPrometheusMetrics() == await node_queue("exportPrometheusMetrics")
    labels = {"shop": "eu"}
    assert await queue.exportPrometheusMetrics(labels) == await node_queue("exportPrometheusMetrics", labels)


async def test_workers_and_listeners_are_listed_as_node_lists_them(
    factory: Factory, node_queue: NodeQueue
) -> None:
    queue = factory.queue()
    await until_workers(queue, 0)
    worker = factory.worker(called="packer")
    await until_workers(queue, 1)
    factory.worker()
    await until_workers(queue, 2)
    names = sorted(worker["rawname"] for worker in await queue.getWorkers())
    assert names == ["bull:bWFpbA==", "bull:bWFpbA==:w:packer"]
    assert sorted(each["rawname"] for each in await node_queue("getWorkers")) == names
    assert {each["name"] for each in await queue.get_workers()} == {"mail"}
    assert await queue.get_workers_count() == 2
    await worker.close()
    assert await queue.getWorkersCount() == 1
    await factory.events()
    await until(queue.getQueueEvents)
    assert len(await node_queue("getQueueEvents")) == 1


async def test_a_version_that_node_wrote_is_read(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    assert await queue.getVersion() is None
    await node_queue.node("openQueue", handle="writing", **node_queue.where, opts={"skipMetasUpdate": False})
    await node_queue.node("settled", handle="writing", field="version")
    assert await queue.getVersion() == "bullmq:5.62.0"


def test_a_queue_has_its_keys_by_name() -> None:
    queue = Queue("mail", {"prefix": "app"})
    assert queue.qualifiedName == "app:mail"
    assert queue.toKey("wait") == queue.keys["wait"] == "app:mail:wait"
    assert queue.keys[""] == "app:mail:"


@pytest.mark.parametrize(
    ("name", "message"), [("", "Queue name must be provided"), ("a:b", "Queue name cannot contain :")]
)
async def test_a_name_node_refuses_is_refused_with_its_message(
    node_queue: NodeQueue, name: str, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Queue(name)
    with pytest.raises(Exception, match=f"^{message}$"):
        await node_queue.node(
            "openQueue", handle="refused", name=name, prefix="bull", url=node_queue.where["url"]
        )


@pytest.mark.parametrize("state", ["waiting", "delayed"])
@pytest.mark.parametrize("asc", [False, True])
async def test_ids_without_jobs_leave_no_gap_in_a_page(factory: Factory, state: str, asc: bool) -> None:
    queue = factory.queue()
    opts = {"delay": 60_000} if state == "delayed" else {}
    jobs = await queue.addBulk([{"name": "send", "data": n, "opts": opts} for n in range(10)])
    for gone in (1, 3, 4, 8):
        await queue.store.call("DEL", queue.toKey(jobs[gone].key))
    left = [0, 2, 5, 6, 7, 9] if asc else [9, 7, 6, 5, 2, 0]
    pages = [await queue.getJobs([state], 0, 3, asc), await queue.getJobs([state], 0, 20, asc)]
    assert [[job.data for job in page] for page in pages] == [left[:4], left]
    assert [job.data for job in await queue.getJobs([state], 0, -1, asc)] == left


@pytest.mark.parametrize("types", [["delayed", "waiting"], ["waiting", "delayed"]])
async def test_jobs_of_several_states_come_state_by_state_as_they_are_named(
    factory: Factory, node_queue: NodeQueue, types: list[str]
) -> None:
    queue = factory.queue()
    for number in range(4):
        await queue.add("send", number, {"delay": 60_000} if number % 2 else {})
    expected = [1, 3, 0, 2] if types[0] == "delayed" else [0, 2, 1, 3]
    assert [job.data for job in await queue.getJobs(types, 0, -1, True)] == expected
    assert [job["data"] for job in await node_queue("getJobs", types, 0, -1, True)] == expected
