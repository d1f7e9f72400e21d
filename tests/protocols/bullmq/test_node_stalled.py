"""A dead worker's jobs are recovered by the other kind."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corral.core.job import JobState
from corral.errors import Transient
from tests.protocols.bullmq.shared_queue import SharedQueue
from tests.support.node import Node
from tests.support.polling import outlast, until

TOO_OFTEN = "job stalled more than allowable limit"

HANGING_WORKER = """
import asyncio, sys
from corral import Corral

app = Corral(sys.argv[1])

@app.job("send", queue="mail")
async def send(job):
    await asyncio.Event().wait()

asyncio.run(app.run(concurrency=4, name="doomed", lock_ms=300, recover_ms=150, group_concurrency=1))
"""


async def test_a_killed_corral_workers_jobs_are_recovered_by_node(shared: SharedQueue) -> None:
    ids = [await shared.node_adds("send", **opts) for opts in ({}, {"priority": 3}, {})]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HANGING_WORKER, shared.server.url, stdout=subprocess.DEVNULL
    )
    try:
        for job_id in ids:
            await shared.is_in(job_id, JobState.ACTIVE)
    finally:
        process.kill()
        await process.wait()
    async with shared.node_works({"echo": True}, name="nora", stalledInterval=150) as worker:
        jobs = [await shared.is_in(job_id, JobState.COMPLETED) for job_id in ids]
        seen = await shared.node("seen", handle=worker)
    assert sorted(seen["stalled"]) == ids
    assert {(job.worker, job.starts, job.attempts_made, job.stalls) for job in jobs} == {("nora", 2, 1, 1)}


@pytest.mark.faults
async def test_a_grouped_job_that_node_found_stalled_runs_as_ungrouped(shared: SharedQueue) -> None:
    """The killed worker held the one place of the group; Node's sweep puts its job into Node's list."""
    ids = [(await shared.queue.add("send", group="a")).id for _ in range(3)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HANGING_WORKER, shared.server.url, stdout=subprocess.DEVNULL
    )
    try:
        await shared.is_in(ids[0], JobState.ACTIVE)
    finally:
        process.kill()
        await process.wait()
    async with shared.node_works({"echo": True}, name="nora", stalledInterval=150):
        assert (await shared.is_in(ids[0], JobState.COMPLETED)).worker == "nora"
    assert (await shared.queue.counts())[JobState.WAITING] == 2

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> str:
        return "saved"

    async with shared.corral_works(group_concurrency=1):
        jobs = [await shared.is_in(job_id, JobState.COMPLETED) for job_id in ids[1:]]
    assert [(job.worker, job.result) for job in jobs] == [("anna", "saved")] * 2


async def test_a_killed_node_workers_jobs_are_recovered_by_corral(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> str:
        return "saved"

    ids = [(await shared.queue.add("send", {"n": n})).id for n in range(3)]
    other = Node()
    try:
        await other(
            "runWorker", handle="doomed", name="mail", prefix="bull", url=shared.server.url,
            script={"sleep": 600_000}, opts={"concurrency": 3, "lockDuration": 300, "stalledInterval": 150},
        )  # fmt: skip
        for job_id in ids:
            await shared.is_in(job_id, JobState.ACTIVE)
    finally:
        other.kill()
    async with shared.node_listens() as received, shared.corral_works(recover_ms=150):
        jobs = [await shared.is_in(job_id, JobState.COMPLETED) for job_id in ids]
        events = await until(lambda: all_of(received, "completed", len(ids)), "Node has received every end")
    assert {(job.worker, job.starts, job.attempts_made, job.stalls) for job in jobs} == {("anna", 2, 1, 1)}
    stalled = [fields["jobId"] for name, fields in events if name == "stalled"]
    assert sorted(stalled) == ids
    for job_id in ids:
        own = [(name, fields) for name, fields in events if fields and fields.get("jobId") == job_id]
        names = [(name, fields.get("prev")) for name, fields in own]
        assert names[3:6] == [("waiting", "active"), ("stalled", None), ("active", "waiting")]


async def all_of(received: Callable[[], Awaitable[list[Any]]], name: str, count: int) -> list[Any]:
    """Return all events, once so many of that name are among them."""
    events = await received()
    return events if [each for each, _ in events].count(name) == count else []


async def abandon(shared: SharedQueue, times: int) -> str:
    """A job that has been found without its worker so many times, each sweep made by Node."""
    job_id = await shared.node_adds("send", {}, attempts=3)
    where = {"name": "mail", "prefix": "bull", "url": shared.server.url}
    await shared.node("openWorker", handle="sweeper", **where, opts={"maxStalledCount": 1, "name": "gone"})
    with shared.server.connect() as client:
        for _ in range(times):
            assert (await shared.node("getNextJob", worker="sweeper", token="gone:0"))["id"] == job_id
            client.delete(f"bull:mail:{job_id}:lock", "bull:mail:stalled-check")
            await shared.node("moveStalledJobsToWait", worker="sweeper")
            client.delete("bull:mail:stalled-check")
            assert await shared.node("moveStalledJobsToWait", worker="sweeper") == [job_id]
    return job_id


async def test_corral_fails_a_job_that_node_found_stalled_too_often(shared: SharedQueue) -> None:
    runs: list[str] = []

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        runs.append(job.id)

    job_id = await abandon(shared, times=2)
    async with shared.corral_works():
        job = await shared.is_in(job_id, JobState.DEAD)
    assert runs == []
    assert job.reason == TOO_OFTEN
    assert await shared.node_state(job_id) == "failed"
    assert (await shared.node_job(job_id))["failedReason"] == TOO_OFTEN
    assert "defa" not in shared.keyspace()[job_id].value


async def test_corral_runs_a_job_that_node_found_stalled_once(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None: ...

    job_id = await abandon(shared, times=1)
    async with shared.corral_works():
        job = await shared.is_in(job_id, JobState.COMPLETED)
    assert (job.stalls, job.starts) == (1, 2)


async def test_node_fails_a_job_that_corral_found_stalled_too_often(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        raise Transient("not reached")

    job_id = await shared.node_adds("send", {}, attempts=3)
    # our sweeps alone: the queue is paused, so that nobody claims in between
    where = {"name": "mail", "prefix": "bull", "url": shared.server.url}
    await shared.node("openWorker", handle="gone", **where, opts={"name": "gone", "lockDuration": 100})
    assert (await shared.node("getNextJob", worker="gone", token="gone:0"))["id"] == job_id
    await shared.operator.pause()
    async with shared.corral_works(recover_ms=120, max_stalls=0):

        async def put_back() -> bool:
            return "defa" in shared.keyspace()[job_id].value

        await until(put_back, "our sweep has found it stalled too often")
    async with shared.node_works({"return": "not reached"}):
        await shared.node_queue("resume")
        job = await shared.is_in(job_id, JobState.DEAD)
    assert job.reason == TOO_OFTEN


async def test_a_job_of_a_live_worker_is_left_alone_by_the_other_kind(shared: SharedQueue) -> None:
    ended = asyncio.Event()

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> str:
        await ended.wait()
        return "in peace"

    # sweeps every 100 ms on both sides: a lock of 1 s that is not renewed would be found soon after
    async with shared.corral_works(lock_ms=1_000, recover_ms=100):
        job_id = await shared.node_adds()
        await shared.is_in(job_id, JobState.ACTIVE)
        async with shared.node_works({"return": "stolen"}, stalledInterval=100) as worker:
            await outlast(2.0)
            ended.set()
            job = await shared.is_in(job_id, JobState.COMPLETED)
            seen = await shared.node("seen", handle=worker)
    assert (job.result, job.starts, job.stalls) == ("in peace", 1, 0)
    assert seen["stalled"] == []


async def test_a_live_node_workers_job_is_left_alone_by_corral(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> str:
        return "stolen"

    script = {"sleep": 2_000, "return": "in peace"}
    async with shared.node_works(script, lockDuration=1_000, stalledInterval=100):
        job_id = await shared.node_adds()
        await shared.is_in(job_id, JobState.ACTIVE)
        async with shared.corral_works(recover_ms=100):
            job = await shared.is_in(job_id, JobState.COMPLETED)
    assert (job.result, job.starts, job.stalls) == ("in peace", 1, 0)
