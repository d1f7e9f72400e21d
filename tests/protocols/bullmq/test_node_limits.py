"""Pauses and limits set on one side hold on the other."""

import asyncio
from typing import Any

from corral.core.job import JobState
from corral.core.ports import Limit
from tests.protocols.bullmq.shared_queue import SharedQueue
from tests.support.polling import outlast, until

KINDS: list[dict[str, Any]] = [{}, {"priority": 1}, {"delay": 1}]


def install(shared: SharedQueue, sleep_ms: int = 0) -> list[int]:
    """A handler of ours, and how many jobs were active each time it ran."""
    seen: list[int] = []

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        seen.append((await shared.inspector.counts())[JobState.ACTIVE])
        await asyncio.sleep(sleep_ms / 1000)

    return seen


async def test_a_pause_of_nodes_stops_a_corral_worker(shared: SharedQueue) -> None:
    install(shared)
    async with shared.corral_works():
        await shared.idle()
        await shared.node_queue("pause")
        ids = [await shared.node_adds(**opts) for opts in KINDS]
        await shared.queue.add("send", id="ours")
        await outlast(0.3)
        assert (await shared.inspector.counts())[JobState.COMPLETED] == 0
        assert await shared.inspector.is_paused()
        await shared.node_queue("resume")
        await shared.ended(len(ids) + 1, seconds=5)


async def test_a_pause_of_ours_stops_a_node_worker(shared: SharedQueue) -> None:
    async with shared.node_works(drainDelay=30):
        await shared.idle()
        await shared.operator.pause()
        for opts in KINDS:
            await shared.node_adds(**opts)
        await outlast(0.3)
        assert (await shared.inspector.counts())[JobState.COMPLETED] == 0
        assert await shared.node_queue("isPaused")
        await shared.operator.resume()
        await shared.ended(3, seconds=5)


async def test_the_queues_concurrency_binds_both_kinds_together(shared: SharedQueue) -> None:
    seen = install(shared, sleep_ms=5)
    await shared.node_queue("setGlobalConcurrency", 3)
    # ours would fill the queue's three places alone, so it is given two
    async with (
        shared.corral_works(concurrency=2),
        shared.node_works({"sleep": 5}, concurrency=8, name="nora"),
    ):
        await shared.idle(2)
        await shared.queue.add_many([("send", {"n": n}) for n in range(80)])
        highest = 0

        async def all_done() -> bool:
            nonlocal highest
            counts = await shared.inspector.counts()
            highest = max(highest, counts[JobState.ACTIVE])
            return counts[JobState.COMPLETED] == 80

        await until(all_done, "eighty jobs are done")
    assert max(highest, *seen) == 3
    runners = {shared.keyspace()[str(n)].value["pb"] for n in range(1, 81)}
    assert runners == {b"anna", b"nora"}


async def test_the_queues_rate_limit_binds_both_kinds_together(shared: SharedQueue) -> None:
    install(shared)
    await shared.node_queue("setGlobalRateLimit", 5, 300)
    await assert_five_in_each_window(shared)


async def test_a_rate_limit_of_ours_binds_both_kinds_together(shared: SharedQueue) -> None:
    install(shared)
    operator: Any = shared.operator
    await operator.set_rate(Limit(5, 300))
    assert await shared.node_queue("getGlobalConcurrency") is None
    await assert_five_in_each_window(shared)


async def assert_five_in_each_window(shared: SharedQueue) -> None:
    await shared.queue.add_many([("send", {"n": n}) for n in range(15)])
    async with shared.corral_works(concurrency=4), shared.node_works({}, concurrency=4):
        await shared.ended(15)
    starts = sorted(int(shared.keyspace()[str(n)].value["processedOn"]) for n in range(1, 16))
    # a window begins with its first start; clocks and the server's expiry may be some ms apart
    assert starts[5] - starts[0] >= 280
    assert starts[10] - starts[5] >= 280


async def test_a_corral_workers_own_limit_counts_what_node_claims(shared: SharedQueue) -> None:
    install(shared)
    limiter = {"max": 4, "duration": 300}
    await shared.queue.add_many([("send", {"n": n}) for n in range(8)])
    async with (
        shared.node_works({}, limiter=limiter),
        shared.corral_works(limit=Limit(limiter["max"], limiter["duration"])),
    ):
        await shared.ended(8)
    starts = sorted(int(shared.keyspace()[str(n)].value["processedOn"]) for n in range(1, 9))
    assert starts[4] - starts[0] >= 280


async def test_a_manual_limit_of_nodes_holds_a_corral_worker(shared: SharedQueue) -> None:
    install(shared)
    await shared.node_queue("setGlobalRateLimit", 100, 1_000)
    await shared.node_queue("rateLimit", 400)
    before = shared.app.clock()
    job_id = await shared.node_adds()
    async with shared.corral_works():
        job = await shared.is_in(job_id, JobState.COMPLETED)
    assert job.started_at is not None
    assert 350 <= job.started_at - before < 2_000


async def test_node_retries_promotes_and_removes_corral_jobs(shared: SharedQueue) -> None:
    fails = True

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> str:
        if fails:
            raise ValueError("not now")
        return "now"

    async with shared.corral_works():
        first = await shared.queue.add("send")
        await shared.is_in(first.id, JobState.DEAD)
        fails = False
        await shared.node("job", queue="queue", id=first.id, method="retry", args=["failed"])
        assert (await shared.is_in(first.id, JobState.COMPLETED)).result == "now"
        later = await shared.queue.add("send", delay=3_600_000)
        await shared.node("job", queue="queue", id=later.id, method="promote")
        await shared.is_in(later.id, JobState.COMPLETED)
        for job_id in (first.id, later.id):
            await shared.node("job", queue="queue", id=job_id, method="remove")
            assert await shared.inspector.job(job_id) is None


async def test_a_grouped_job_that_node_moved_runs_as_ungrouped(shared: SharedQueue) -> None:
    """Node sees no job that waits in a group; one that it promotes or retries is in its own list."""
    fails = True

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> str:
        if fails:
            raise ValueError("not now")
        return "now"

    waiting = await shared.queue.add("send", group="a")
    later = await shared.queue.add("send", group="a", delay=3_600_000)
    assert (await shared.node_queue("getJobCounts"))["waiting"] == 0
    await shared.node("job", queue="queue", id=later.id, method="promote")
    assert (await shared.node_queue("getJobCounts"))["waiting"] == 1
    assert (await shared.queue.counts())[JobState.WAITING] == 2
    async with shared.corral_works():
        await shared.is_in(later.id, JobState.DEAD)
        await shared.is_in(waiting.id, JobState.DEAD)
        fails = False
        await shared.node("job", queue="queue", id=later.id, method="retry", args=["failed"])
        assert (await shared.is_in(later.id, JobState.COMPLETED)).result == "now"
    await shared.queue.replay([waiting.id])
    async with shared.node_works({"return": "node"}):
        # in its group again: no worker but Corral's takes it
        assert await shared.node_state(waiting.id) == "unknown"
    await shared.node("job", queue="queue", id=waiting.id, method="remove")
    assert (await shared.queue.counts())[JobState.WAITING] <= 1


async def test_corral_retries_promotes_and_removes_node_jobs(shared: SharedQueue) -> None:
    async with shared.node_works({"fail": 1, "return": "now"}):
        first = await shared.node_adds()
        await shared.is_in(first, JobState.DEAD)
        assert await shared.operator.retry([first]) == [first]
        assert (await shared.is_in(first, JobState.COMPLETED)).result == "now"
        later = await shared.node_adds("send", {"script": {"fail": 0}}, delay=3_600_000)
        assert await shared.operator.promote([later, first]) == [later]
        await shared.is_in(later, JobState.COMPLETED)
    assert await shared.operator.remove([first, later, "no-such-job"]) == [first, later]
    assert (await shared.node_queue("getJobCounts"))["completed"] == 0


async def test_node_can_wipe_out_a_queue_of_ours(shared: SharedQueue) -> None:
    install(shared)
    async with shared.corral_works():
        for opts in KINDS:
            await shared.queue.add("send", **opts)
        await shared.ended(len(KINDS))
    for opts in (*KINDS, {"delay": 60_000}, {"id": "mine"}):
        await shared.queue.add("send", **opts)
    await shared.node_queue("obliterate", {"force": True})
    left = set(shared.keyspace())
    assert left <= {"stalled-check", "events"}, left
