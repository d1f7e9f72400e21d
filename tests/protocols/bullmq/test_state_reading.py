"""What is done to one job by hand, and what is read of a queue, is as Node BullMQ 5.62.0 has it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corral.core.ports import Limit
from corral.errors import InvalidOptions, JobMissing, WrongState
from tests.protocols.bullmq.paired_calls import fill, on_job, on_queue
from tests.protocols.bullmq.paired_queue import PairedQueue

MakePair = Callable[..., Awaitable[PairedQueue]]


# -- one job ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [{}, {"a": [1, "ü", None]}, [], "text", 0, None, True])
async def test_other_data(paired_queue: MakePair, data: Any) -> None:
    queue = await paired_queue()
    await queue.add("send", {"old": 1})
    await on_job(queue, "1", "updateData", [data], queue.operator.update_data("1", data))
    with pytest.raises(JobMissing):
        await queue.operator.update_data("2", data)
    assert queue.entry("2") is None


async def test_another_delay(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for _ in range(3):
        await queue.add("send", delay=5_000)
    await queue.add("send")
    for job_id, delay in (("1", 90_000), ("2", 90_000), ("3", 0), ("2", 100)):
        await on_job(queue, job_id, "changeDelay", [delay], queue.operator.change_delay(job_id, delay))
    own = await on_job(queue, "4", "changeDelay", [5], queue.operator.change_delay("4", 5))
    assert isinstance(own, WrongState)
    with pytest.raises(JobMissing):
        await queue.operator.change_delay("9", 5)
    with pytest.raises(InvalidOptions, match="delay is -1"):
        await queue.operator.change_delay("1", -1)


@pytest.mark.parametrize("lifo", [False, True])
@pytest.mark.parametrize("is_paused", [False, True])
async def test_another_priority(paired_queue: MakePair, lifo: bool, is_paused: bool) -> None:
    queue = await paired_queue()
    for opts in ({}, {"priority": 5}, {"priority": 5}, {}, {"delay": 500}, {}):
        await queue.add("send", **opts)
    await queue.claim()
    if is_paused:
        await queue.pause()
    for job_id, priority in (("1", 3), ("2", 0), ("3", 9), ("4", 5), ("5", 2), ("4", 0), ("6", 0)):
        options = {"priority": priority, "lifo": lifo}
        own = queue.operator.change_priority(job_id, priority, lifo)
        await on_job(queue, job_id, "changePriority", [options], own)
    with pytest.raises(JobMissing):
        await queue.operator.change_priority("9", 5)
    with pytest.raises(InvalidOptions, match="priority is 3000000"):
        await queue.operator.change_priority("1", 3_000_000)


async def test_words_about_a_job_that_nobody_holds(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await on_job(queue, "1", "updateProgress", [[50]], queue.operator.update_progress("1", [50]))
    for n in range(4):
        await on_job(queue, "1", "log", [f"line {n}"], queue.operator.add_log("1", f"line {n}"))
    own, theirs = await on_queue(queue, "addJobLog", ["1", "last", 3], queue.operator.add_log("1", "last", 3))
    assert own == theirs == 3
    lines, count = await queue.inspector.log_page("1")
    for start, end, ascending in ((0, -1, True), (1, 2, True), (0, -1, False), (0, 1, False), (1, 1, False)):
        lines, count = await queue.inspector.log_page("1", start, end, ascending)
        theirs = await queue.node_queue("getJobLogs", "1", start, end, ascending)
        assert (lines, count) == (theirs["logs"], theirs["count"])
    await on_job(queue, "1", "clearLogs", [1], queue.operator.clear_log("1", 1))
    await on_job(queue, "1", "clearLogs", [], queue.operator.clear_log("1"))
    with pytest.raises(JobMissing):
        await queue.operator.add_log("7", "x")


# -- reading ------------------------------------------------------------------------------------------------


STATES = ["active", "completed", "delayed", "failed", "paused", "prioritized", "waiting", "waiting-children"]


@pytest.mark.parametrize("is_paused", [False, True])
async def test_states_counts_and_ranges_as_node_tells_them(paired_queue: MakePair, is_paused: bool) -> None:
    queue = await paired_queue()
    await fill(queue)
    if is_paused:
        await queue.pause()
    call_node = queue.node_queue
    counts = await queue.inspector.wire_counts()
    known = STATES
    if queue.is_six:  # which has no such state any more
        known = [state for state in STATES if state != "paused"]
    assert counts == await call_node("getJobCounts")
    for job_id in [str(n) for n in range(1, 12)]:
        assert await queue.inspector.wire_state(job_id) == await call_node("getJobState", job_id)
    for states in [*([state] for state in known), known, ["waiting", *{"paused"}.intersection(known)]]:
        for start, end in ((0, -1), (0, 1), (1, 2), (1, -1), (-2, -1)):
            for ascending in (False, True):
                ours = await queue.inspector.ranges(states, start, end, ascending)
                theirs = await call_node("getRanges", states, start, end, ascending)
                assert ours == theirs, (states, start, end, ascending)
    priorities = [0, 1, 2, 4, 4]
    by_priority = await queue.inspector.counts_per_priority(priorities)
    assert {str(priority): count for priority, count in by_priority.items()} == await call_node(
        "getCountsPerPriority", priorities
    )
    found = await queue.inspector.jobs_by_id(["1", "nobody", "7"])
    assert [each and each.id for each in found] == ["1", None, "7"]
    assert not queue.different()


async def test_how_a_job_ended(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for _ in range(3):
        await queue.add("send")
    await queue.claim(2)
    await queue.complete("1", {"x": [1]})
    await queue.fail("2", "no ünlück")
    ends = [("1", "completed", {"x": [1]}), ("2", "failed", "no ünlück"), ("3", None, None)]
    for job_id, state, value in ends:
        ended = await queue.inspector.result(job_id)
        assert ended is not None
        assert (ended.state, ended.value) == (state, value)
    assert await queue.inspector.result("9") is None


async def test_metrics_are_told_as_node_tells_them(paired_queue: MakePair) -> None:
    queue = await paired_queue(metrics={"maxDataPoints": 10})
    for _ in range(4):
        await queue.add("send")
        await queue.add("send")
        first, second = await queue.claim(2)
        await queue.complete(first)
        await queue.fail(second)
        await queue.advance(61_000)
    for state in ("completed", "failed"):
        for start, end in ((0, -1), (1, 1)):
            ours = await queue.inspector.metrics(state, start, end)
            theirs = await queue.node_queue("getMetrics", state, start, end)
            meta = {"count": ours.count, "prevTS": ours.previous_at, "prevCount": ours.previous_count}
            assert (meta, ours.points, ours.total_points) == (theirs["meta"], theirs["data"], theirs["count"])


async def test_settings_are_read_as_node_reads_them(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    call_node, inspector = queue.node_queue, queue.inspector

    async def same() -> None:
        limit = await inspector.limit()
        assert await inspector.concurrency() == await call_node("getGlobalConcurrency")
        node_limit = limit and {"max": limit.count, "duration": limit.duration}
        assert node_limit == await call_node("getGlobalRateLimit")
        assert await inspector.is_maxed() == await call_node("isMaxed")
        assert await inspector.is_paused() == await call_node("isPaused")
        for count in (None, 1, 5):
            ours, theirs = await inspector.limited_for(count), await call_node("getRateLimitTtl", count)
            assert abs(ours - theirs) < 2_000
            assert (ours > 0) == (theirs > 0)

    await same()
    await queue.set_concurrency(1)
    await queue.set_limit(Limit(1, 60_000))
    await queue.add("send")
    await queue.claim()
    await same()
    await queue.pause()
    await queue.hold(90_000)
    await same()
    own, theirs = await on_queue(queue, "removeRateLimitKey", [], queue.operator.reset_limiter())
    assert own == bool(theirs)
    await queue.set_limit(None)
    await queue.set_concurrency(None)
    await same()
