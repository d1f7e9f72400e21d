"""Corral adds, Node works."""

from typing import Any

import pytest

from corral.core.job import JobState
from tests.protocols.bullmq.shared_queue import SharedQueue
from tests.support.polling import until

EVERYTHING: dict[str, Any] = {
    "priority": 7,
    "attempts": 4,
    "backoff": {"type": "exponential", "delay": 250, "jitter": 0.5},
    "remove_on_complete": {"age": 3600, "count": 50},
    "remove_on_fail": False,
    "lifo": True,
    "keep_logs": 12,
    "stackTraceLimit": 3,
}


async def node_has_seen(shared: SharedQueue, worker: str, count: int) -> dict[str, list[Any]]:
    """Return a Node worker's events, once so many jobs have completed."""

    async def enough() -> dict[str, list[Any]] | None:
        seen: dict[str, list[Any]] = await shared.node("seen", handle=worker)
        return seen if len(seen["completed"]) == count else None

    found: dict[str, list[Any]] = await until(enough, f"Node has completed {count} jobs")
    return found


async def test_node_finds_a_corral_job_with_every_field_right(shared: SharedQueue) -> None:
    before = shared.app.clock()
    added = await shared.queue.add("send", {"to": "Zoë ☃", "n": [1, [], {}]}, id="invoice-7", **EVERYTHING)
    job = await shared.node_job("invoice-7")
    assert added.id == job["id"] == "invoice-7"
    assert (job["name"], job["data"]) == ("send", {"to": "Zoë ☃", "n": [1, [], {}]})
    assert before <= job["timestamp"] <= shared.app.clock()
    assert (job["delay"], job["priority"], job["progress"]) == (0, 7, 0)
    assert (job["attemptsMade"], job["attemptsStarted"], job["stalledCounter"]) == (0, 0, 0)
    assert (job["returnvalue"], job["stacktrace"]) == (None, [])
    assert job["opts"] == {
        "attempts": 4,
        "backoff": {"type": "exponential", "delay": 250, "jitter": 0.5},
        "jobId": "invoice-7",
        "keepLogs": 12,
        "lifo": True,
        "priority": 7,
        "removeOnComplete": {"age": 3600, "count": 50},
        "removeOnFail": False,
        "stackTraceLimit": 3,
    }
    assert "finishedOn" not in job
    assert await shared.node_state("invoice-7") == "prioritized"


async def test_the_native_defaults_reach_node(shared: SharedQueue) -> None:
    added = await shared.queue.add("send", {"to": "ann"})
    job = await shared.node_job(added.id)
    assert job["opts"]["attempts"] == 3
    assert job["opts"]["backoff"] == {"type": "exponential", "delay": 1000}
    assert job["opts"]["keepLogs"] == 1000


async def test_a_node_worker_runs_a_corral_job_to_its_end(shared: SharedQueue) -> None:
    script = {"progress": [10, {"half": True}], "log": ["one", "zwei ✓"], "return": {"ok": ["☃", 1.5, None]}}
    async with shared.node_works(script, name="nora"):
        added = await shared.queue.add("send", {"to": "ann"})
        job = await shared.is_in(added.id, JobState.COMPLETED)
    assert job.result == {"ok": ["☃", 1.5, None]}
    assert job.progress == {"half": True}
    assert (job.attempts_made, job.starts, job.worker) == (1, 1, "nora")
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.started_at <= job.finished_at
    assert await shared.inspector.logs(added.id) == ["one", "zwei ✓"]


async def test_a_result_of_nothing_at_all(shared: SharedQueue) -> None:
    async with shared.node_works():
        added = await shared.queue.add("send")
        job = await shared.is_in(added.id, JobState.COMPLETED)
    assert job.result is None
    assert job.data == {}


async def test_a_node_worker_runs_corral_jobs_in_order(shared: SharedQueue) -> None:
    for opts in ({"priority": 9}, {}, {"priority": 2}, {"lifo": True}, {"id": "mine"}, {"priority": 2}):
        await shared.queue.add("send", **opts)
    async with shared.node_works() as worker:
        seen = await node_has_seen(shared, worker, 6)
    assert seen["completed"] == ["4", "2", "mine", "3", "6", "1"]
    assert seen["errors"] == []


async def test_a_node_worker_retries_as_corral_asked(shared: SharedQueue) -> None:
    async with shared.node_works({"message": "größer als ∞"}, concurrency=3):
        quick = await shared.queue.add("send", {"script": {"fail": 2}}, attempts=3, backoff=10)
        spent = await shared.queue.add("send", {"script": {"fail": -1}}, attempts=2, backoff=10)
        final = await shared.queue.add("send", {"script": {"fail": -1, "unrecoverable": True}}, attempts=9)
        await shared.ended(3)
    done, dead, ended = [await shared.job(added.id) for added in (quick, spent, final)]
    assert (done.state, done.attempts_made, done.reason) == (JobState.COMPLETED, 3, None)
    assert (dead.state, dead.attempts_made, dead.reason) == (JobState.DEAD, 2, "größer als ∞")
    assert len(dead.trace) == 2
    assert "processors.js" in dead.trace[0]
    assert (ended.state, ended.attempts_made) == (JobState.DEAD, 1)


async def test_a_delayed_corral_job_wakes_an_idle_node_worker_in_time(shared: SharedQueue) -> None:
    async with shared.node_works(drainDelay=30):
        await shared.idle()
        added = await shared.queue.add("send", delay=300)
        assert (await shared.job(added.id)).state is JobState.DELAYED
        job = await shared.is_in(added.id, JobState.COMPLETED)
    assert job.started_at is not None
    assert 0 <= job.started_at - (job.created_at + 300) < 1_000


async def test_a_plain_corral_job_wakes_an_idle_node_worker_at_once(shared: SharedQueue) -> None:
    # were the marker not set, the worker would look again after half a minute
    async with shared.node_works(drainDelay=30):
        for opts in ({}, {"priority": 3}, {"lifo": True}):
            await shared.idle()
            added = await shared.queue.add("send", **opts)
            job = await shared.is_in(added.id, JobState.COMPLETED, seconds=5)
            assert job.finished_at is not None


async def test_a_job_that_delays_itself_in_node(shared: SharedQueue) -> None:
    async with shared.node_works({"delayBy": 30}):
        added = await shared.queue.add("send", attempts=1)
        job = await shared.is_in(added.id, JobState.COMPLETED)
    assert (job.attempts_made, job.starts) == (1, 2)


@pytest.mark.parametrize(("policy", "kept"), [(True, 0), (2, 2), ({"age": 3600, "count": 1}, 1), (False, 4)])
async def test_removal_as_corral_asked(shared: SharedQueue, policy: Any, kept: int) -> None:
    async with shared.node_works() as worker:
        for _ in range(4):
            await shared.queue.add("send", remove_on_complete=policy)
        await node_has_seen(shared, worker, 4)
    assert (await shared.inspector.counts())[JobState.COMPLETED] == kept
    assert (await shared.inspector.job("1") is None) == (kept < 4)


async def test_a_duplicate_id_is_one_job_whoever_adds_it(shared: SharedQueue) -> None:
    async with shared.node_listens() as received:
        await shared.queue.add("send", {"first": True}, id="once")
        assert await shared.node_adds("send", {"first": False}, jobId="once") == "once"
        assert (await shared.queue.add("send", {"first": None}, id="once")).id == "once"
        async with shared.node_works({"echo": True}):
            job = await shared.is_in("once", JobState.COMPLETED)
        names = [name for name, _ in await received()]
    assert job.data == {"first": True}
    assert names.count("duplicated") == 2


async def test_a_bulk_of_ours(shared: SharedQueue) -> None:
    async with shared.node_works(concurrency=20) as worker:
        ids = await shared.queue.add_many([("send", {"n": n}) for n in range(300)])
        seen = await node_has_seen(shared, worker, 300)
    assert sorted(seen["completed"]) == sorted(ids)
    assert len(set(ids)) == 300
