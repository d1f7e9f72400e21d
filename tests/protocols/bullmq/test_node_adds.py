"""Node adds, Corral works."""

from typing import Any

import pytest

from corral.core.job import JobState
from corral.errors import Postpone, Transient, Unrecoverable
from tests.protocols.bullmq.shared_queue import SharedQueue
from tests.support.node import NodeError
from tests.support.polling import until


async def test_a_node_producer_waits_for_a_corral_workers_result(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> Any:
        return {"sent": job.data["to"], "näher": [1.5, None, "☃"]}

    async with shared.node_listens(), shared.corral_works():
        job_id = await shared.node_adds("send", {"to": "ann@example.org"})
        wanted = {"queue": "queue", "events": "events", "id": job_id, "ttl": 10_000}
        result = await shared.node("waitUntilFinished", **wanted)
    assert result == {"sent": "ann@example.org", "näher": [1.5, None, "☃"]}


async def test_everything_a_handler_says_reaches_node(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> Any:
        await job.progress(50, "half the list")
        await job.log("first line")
        assert await job.log("zweite Zeile ✓") == 2
        return "done"

    async with shared.corral_works(name="berta"):
        job_id = await shared.node_adds("send", {"to": "ann"}, attempts=2, keepLogs=10)
        await shared.ended(1)
    job = await shared.node_job(job_id)
    assert await shared.node_state(job_id) == "completed"
    assert job["returnvalue"] == "done"
    assert job["progress"] == {"progress": 50, "message": "half the list"}
    assert (job["attemptsMade"], job["attemptsStarted"], job["stalledCounter"]) == (1, 1, 0)
    assert job["processedBy"] == "berta"
    assert job["timestamp"] <= job["processedOn"] <= job["finishedOn"]
    assert (await shared.node_queue("getJobLogs", job_id))["logs"] == ["first line", "zweite Zeile ✓"]


async def test_what_node_adds_arrives_as_arguments_by_name(shared: SharedQueue) -> None:
    @shared.app.job("thumbnail", queue="mail")
    async def thumbnail(file: str, width: int = 200) -> list[Any]:
        return [file, width]

    async with shared.corral_works():
        job_id = await shared.node_adds("thumbnail", {"file": "a.jpg"})
        await shared.ended(1)
    assert (await shared.node_job(job_id))["returnvalue"] == ["a.jpg", 200]


async def test_a_sync_handler_works_for_node_too(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    def send(job: Any) -> Any:
        job.log("from a thread")
        return job.data["n"] * 2

    async with shared.corral_works(concurrency=4):
        ids = [await shared.node_adds("send", {"n": n}) for n in range(6)]
        await shared.ended(6)
    assert [(await shared.node_job(job_id))["returnvalue"] for job_id in ids] == [0, 2, 4, 6, 8, 10]


async def test_the_order_is_nodes(shared: SharedQueue) -> None:
    seen: list[str] = []

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        seen.append(job.id)

    due = {"delay": 5, "timestamp": shared.app.clock() - 1_000}
    for opts in ({"priority": 9}, {}, {"priority": 2}, {"lifo": True}, {"jobId": "mine"}, due):
        await shared.node_adds(**opts)
    async with shared.corral_works():
        await shared.ended(6)
    assert seen == ["4", "2", "mine", "6", "3", "1"]


async def test_a_failing_job_is_tried_as_often_as_node_asked(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> str:
        if job.attempt < job.data["succeeds"]:
            raise Transient(f"attempt {job.attempt} of „{job.id}“")
        return f"attempt {job.attempt}"

    async with shared.corral_works(concurrency=3):
        at_once = await shared.node_adds("send", {"succeeds": 3}, attempts=3)
        doubling = {"type": "exponential", "delay": 15}
        later = await shared.node_adds("send", {"succeeds": 3}, attempts=3, backoff=doubling)
        never = await shared.node_adds("send", {"succeeds": 9}, attempts=2, backoff=10)
        await shared.ended(3)
    for job_id in (at_once, later):
        job = await shared.node_job(job_id)
        assert (job["returnvalue"], job["attemptsMade"], len(job["stacktrace"])) == ("attempt 3", 3, 2)
    job = await shared.node_job(never)
    assert await shared.node_state(never) == "failed"
    assert job["failedReason"] == "attempt 2 of „3“"
    assert (job["attemptsMade"], len(job["stacktrace"])) == (2, 2)
    assert "Transient" in job["stacktrace"][0]


async def test_an_unrecoverable_failure_is_not_retried(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        raise Unrecoverable("no such mailbox")

    async with shared.corral_works():
        job_id = await shared.node_adds(attempts=5)
        await shared.ended(1)
    assert (await shared.node_job(job_id))["attemptsMade"] == 1


async def test_a_postponed_job_spends_no_attempt_in_nodes_eyes(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        if job.job.starts == 1:
            raise Postpone(20)

    async with shared.corral_works():
        job_id = await shared.node_adds(attempts=1)
        await shared.ended(1)
    job = await shared.node_job(job_id)
    assert (job["attemptsMade"], job["attemptsStarted"]) == (1, 2)


async def test_a_delayed_job_of_nodes_wakes_an_idle_corral_worker_in_time(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None: ...

    async with shared.corral_works():
        await shared.idle()
        job_id = await shared.node_adds(delay=300)
        job = await shared.is_in(job_id, JobState.COMPLETED)
    assert job.started_at is not None
    assert 0 <= job.started_at - (job.created_at + 300) < 1_000


@pytest.mark.parametrize(
    ("opts", "kept"),
    [({"removeOnComplete": True}, 0), ({"removeOnComplete": 2}, 2), ({"removeOnComplete": {"count": 1}}, 1)],
)
async def test_removal_as_node_asked(shared: SharedQueue, opts: dict[str, Any], kept: int) -> None:
    done: list[str] = []

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        done.append(job.id)

    async with shared.corral_works(), shared.node_listens() as received:
        for _ in range(4):
            await shared.node_adds(**opts)

        async def all_done() -> bool:
            return [name for name, _ in await received()].count("completed") == 4

        await until(all_done, "four jobs are completed")
    assert (await shared.node_queue("getJobCounts"))["completed"] == kept
    with pytest.raises(NodeError, match="not there"):
        await shared.node_state(done[0])


async def test_a_bulk_of_nodes(shared: SharedQueue) -> None:
    seen: set[int] = set()

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        seen.add(job.data["n"])

    async with shared.corral_works(concurrency=20):
        jobs = [{"name": "send", "data": {"n": n}, "opts": {}} for n in range(300)]
        await shared.node("addBulk", queue="queue", jobs=jobs)
        await shared.ended(300)
    assert seen == set(range(300))
    counts = await shared.node_queue("getJobCounts")
    assert (counts["completed"], counts["active"], counts["waiting"]) == (300, 0, 0)
