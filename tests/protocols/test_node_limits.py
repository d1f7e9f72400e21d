"""Pauses and limits set on one side hold on the other."""

import asyncio
from typing import Any

from corral.core.job import JobState
from corral.core.ports import Limit
from tests.protocols.meeting import Meeting, until

KINDS: list[dict[str, Any]] = [{}, {"priority": 1}, {"delay": 1}]


def install(meeting: Meeting, sleep_ms: int = 0) -> list[int]:
    """A handler of ours, and how many jobs were active each time it ran."""
    seen: list[int] = []

    @meeting.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        seen.append((await meeting.inspector.counts())[JobState.ACTIVE])
        await asyncio.sleep(sleep_ms / 1000)

    return seen


async def test_a_pause_of_nodes_stops_a_corral_worker(meeting: Meeting) -> None:
    install(meeting)
    async with meeting.corral_works():
        await meeting.idle()
        await meeting.node_queue("pause")
        ids = [await meeting.node_adds(**opts) for opts in KINDS]
        await meeting.queue.add("send", id="ours")
        await asyncio.sleep(0.3)
        assert (await meeting.inspector.counts())[JobState.COMPLETED] == 0
        assert await meeting.inspector.is_paused()
        await meeting.node_queue("resume")
        await meeting.ended(len(ids) + 1, seconds=5)


async def test_a_pause_of_ours_stops_a_node_worker(meeting: Meeting) -> None:
    async with meeting.node_works(drainDelay=30):
        await meeting.idle()
        await meeting.operator.pause()
        for opts in KINDS:
            await meeting.node_adds(**opts)
        await asyncio.sleep(0.3)
        assert (await meeting.inspector.counts())[JobState.COMPLETED] == 0
        assert await meeting.node_queue("isPaused")
        await meeting.operator.resume()
        await meeting.ended(3, seconds=5)


async def test_the_queues_concurrency_binds_both_kinds_together(meeting: Meeting) -> None:
    seen = install(meeting, sleep_ms=5)
    await meeting.node_queue("setGlobalConcurrency", 3)
    # ours would fill the queue's three places alone, so it is given two
    async with (
        meeting.corral_works(concurrency=2),
        meeting.node_works({"sleep": 5}, concurrency=8, name="nora"),
    ):
        await meeting.idle(2)
        await meeting.queue.add_many([("send", {"n": n}) for n in range(80)])
        highest = 0

        async def all_done() -> bool:
            nonlocal highest
            counts = await meeting.inspector.counts()
            highest = max(highest, counts[JobState.ACTIVE])
            return counts[JobState.COMPLETED] == 80

        await until(all_done, "eighty jobs are done")
    assert max(highest, *seen) == 3
    runners = {meeting.keyspace()[str(n)].value["pb"] for n in range(1, 81)}
    assert runners == {b"anna", b"nora"}


async def test_the_queues_rate_limit_binds_both_kinds_together(meeting: Meeting) -> None:
    install(meeting)
    await meeting.node_queue("setGlobalRateLimit", 5, 300)
    await assert_five_in_each_window(meeting)


async def test_a_rate_limit_of_ours_binds_both_kinds_together(meeting: Meeting) -> None:
    install(meeting)
    operator: Any = meeting.operator
    await operator.set_limit(Limit(5, 300))
    assert await meeting.node_queue("getGlobalConcurrency") is None
    await assert_five_in_each_window(meeting)


async def assert_five_in_each_window(meeting: Meeting) -> None:
    await meeting.queue.add_many([("send", {"n": n}) for n in range(15)])
    async with meeting.corral_works(concurrency=4), meeting.node_works({}, concurrency=4):
        await meeting.ended(15)
    starts = sorted(int(meeting.keyspace()[str(n)].value["processedOn"]) for n in range(1, 16))
    # a window begins with its first start; clocks and the server's expiry may be some ms apart
    assert starts[5] - starts[0] >= 280
    assert starts[10] - starts[5] >= 280


async def test_a_corral_workers_own_limit_counts_what_node_claims(meeting: Meeting) -> None:
    install(meeting)
    limiter = {"max": 4, "duration": 300}
    await meeting.queue.add_many([("send", {"n": n}) for n in range(8)])
    async with (
        meeting.node_works({}, limiter=limiter),
        meeting.corral_works(limit=Limit(limiter["max"], limiter["duration"])),
    ):
        await meeting.ended(8)
    starts = sorted(int(meeting.keyspace()[str(n)].value["processedOn"]) for n in range(1, 9))
    assert starts[4] - starts[0] >= 280


async def test_a_manual_limit_of_nodes_holds_a_corral_worker(meeting: Meeting) -> None:
    install(meeting)
    await meeting.node_queue("setGlobalRateLimit", 100, 1_000)
    await meeting.node_queue("rateLimit", 400)
    before = meeting.app.clock()
    job_id = await meeting.node_adds()
    async with meeting.corral_works():
        job = await meeting.is_in(job_id, JobState.COMPLETED)
    assert job.started_at is not None
    assert 350 <= job.started_at - before < 2_000


async def test_node_retries_promotes_and_removes_corral_jobs(meeting: Meeting) -> None:
    fails = True

    @meeting.app.job("send", queue="mail")
    async def send(job: Any) -> str:
        if fails:
            raise ValueError("not now")
        return "now"

    async with meeting.corral_works():
        first = await meeting.queue.add("send")
        await meeting.is_in(first.id, JobState.DEAD)
        fails = False
        await meeting.node("job", queue="queue", id=first.id, method="retry", args=["failed"])
        assert (await meeting.is_in(first.id, JobState.COMPLETED)).result == "now"
        later = await meeting.queue.add("send", delay=3_600_000)
        await meeting.node("job", queue="queue", id=later.id, method="promote")
        await meeting.is_in(later.id, JobState.COMPLETED)
        for job_id in (first.id, later.id):
            await meeting.node("job", queue="queue", id=job_id, method="remove")
            assert await meeting.inspector.job(job_id) is None


async def test_corral_retries_promotes_and_removes_node_jobs(meeting: Meeting) -> None:
    async with meeting.node_works({"fail": 1, "return": "now"}):
        first = await meeting.node_adds()
        await meeting.is_in(first, JobState.DEAD)
        assert await meeting.operator.retry([first]) == [first]
        assert (await meeting.is_in(first, JobState.COMPLETED)).result == "now"
        later = await meeting.node_adds("send", {"script": {"fail": 0}}, delay=3_600_000)
        assert await meeting.operator.promote([later, first]) == [later]
        await meeting.is_in(later, JobState.COMPLETED)
    assert await meeting.operator.remove([first, later, "no-such-job"]) == [first, later]
    assert (await meeting.node_queue("getJobCounts"))["completed"] == 0


async def test_node_can_wipe_out_a_queue_of_ours(meeting: Meeting) -> None:
    install(meeting)
    async with meeting.corral_works():
        for opts in KINDS:
            await meeting.queue.add("send", **opts)
        await meeting.ended(len(KINDS))
    for opts in (*KINDS, {"delay": 60_000}, {"id": "mine"}):
        await meeting.queue.add("send", **opts)
    await meeting.node_queue("obliterate", {"force": True})
    left = set(meeting.keyspace())
    assert left <= {"stalled-check", "events"}, left
