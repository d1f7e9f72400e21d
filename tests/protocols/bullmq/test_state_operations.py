"""Pausing, limiting, recovering and operating leaves the very state that Node BullMQ 5.62.0 leaves."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corral.core.ports import Limit
from tests.protocols.bullmq.paired_outcomes import Done, Failed
from tests.protocols.bullmq.paired_queue import PairedQueue
from tests.support.node import Node
from tests.support.servers import Server

MakePair = Callable[..., Awaitable[PairedQueue]]


# -- pausing ------------------------------------------------------------------------------------------------


async def test_pausing_and_resuming_a_queue_with_jobs_of_every_kind(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for opts in ({}, {"priority": 2}, {"delay": 100}, {"lifo": True}):
        await queue.add("send", **opts)
    await queue.pause()
    for opts in ({}, {"priority": 1}, {"delay": 50}, {"lifo": True}):
        await queue.add("send", **opts)
    assert await queue.claim(8) == []
    await queue.advance(200)
    assert await queue.claim(8) == []
    await queue.resume()
    assert await queue.claim(8) == ["8", "4", "1", "5", "7", "3", "6", "2"]


@pytest.mark.parametrize("opts", [None, {}, {"priority": 1}, {"delay": 60_000}])
async def test_resuming_sets_the_marker_for_what_there_is(paired_queue: MakePair, opts: Any) -> None:
    queue = await paired_queue()
    await queue.pause()
    if opts is not None:
        await queue.add("send", **opts)
    await queue.resume()
    assert bool(queue.entry("marker")) == (opts is not None)


async def test_pausing_twice_and_resuming_what_was_not_paused(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.resume()
    await queue.add("send")
    await queue.pause()
    await queue.pause()
    await queue.resume()
    await queue.resume()
    assert queue.events() == ["resumed", "added", "waiting", "paused", "paused", "resumed", "resumed"]


async def test_jobs_that_end_while_the_queue_is_paused(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for attempts in (1, 2, 2, 2, 2):
        await queue.add("send", attempts=attempts, **({"backoff": 50} if attempts == 2 else {}))
    await queue.add("send", attempts=2, priority=3)
    await queue.claim(6)
    await queue.pause()
    assert await queue.complete("1", want=1) == []
    await queue.fail("2", want=1)
    await queue.release("3")
    await queue.postpone("4", 10)
    await queue.fail("6", want=1)
    await queue.advance(100)
    assert await queue.complete("5", want=3) == []
    await queue.resume()
    assert set(await queue.claim(6)) == {"2", "3", "4", "6"}


async def test_a_meta_that_says_paused_zero_is_paused(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    queue.plant("HSET", "meta", "paused", "0")
    await queue.add("send")
    assert await queue.claim() == []


# -- limits -------------------------------------------------------------------------------------------------


async def test_the_queues_own_concurrency(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.set_concurrency(2)
    for _ in range(5):
        await queue.add("send", attempts=2)
    await queue.add("send", priority=1)
    await queue.add("send", delay=20)
    assert await queue.claim(5) == ["1", "2"]
    await queue.add("send")
    await queue.advance(100)
    assert await queue.claim() == []
    await queue.fail("1")
    assert await queue.complete("2", want=4) == ["3", "4"]
    await queue.set_concurrency(None)
    assert len(await queue.claim(9)) == 5


async def test_the_workers_rate_limit(paired_queue: MakePair) -> None:
    queue = await paired_queue(limiter={"max": 3, "duration": 60_000})
    for _ in range(6):
        await queue.add("send")
    assert await queue.claim(2) == ["1", "2"]
    assert await queue.claim(5) == ["3"]
    assert await queue.claim(5) == []
    assert await queue.complete("1", want=1) == []
    queue.forget("limiter")
    assert await queue.complete("2", want=2) == ["4", "5"]


async def test_the_queues_rate_limit_wins_and_the_workers_duration_stays(paired_queue: MakePair) -> None:
    queue = await paired_queue(limiter={"max": 10, "duration": 60_000})
    await queue.set_limit(Limit(2, 5_000))
    for _ in range(4):
        await queue.add("send")
    assert await queue.claim(4) == ["1", "2"]
    assert await queue.claim(4) == []
    await queue.set_limit(None)
    assert await queue.claim(4) == ["3", "4"]


async def test_the_queues_rate_limit_alone(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.set_limit(Limit(2, 5_000))
    for _ in range(4):
        await queue.add("send", priority=2)
    assert await queue.claim(4) == ["1", "2"]
    assert await queue.complete("1", want=1) == []


async def test_due_jobs_are_promoted_even_while_limited(paired_queue: MakePair) -> None:
    queue = await paired_queue(limiter={"max": 1, "duration": 60_000})
    await queue.add("send")
    await queue.add("send", delay=10)
    assert await queue.claim() == ["1"]
    await queue.advance(50)
    assert await queue.claim() == []
    assert queue.entry("wait") == [b"2"]


async def test_a_manual_limit_holds_where_a_limit_is_set(paired_queue: MakePair) -> None:
    queue = await paired_queue(limiter={"max": 100, "duration": 1_000})
    await queue.add("send")
    await queue.add("send")
    assert await queue.claim() == ["1"]
    await queue.hold(60_000)
    await queue.release("1")
    assert await queue.claim() == []
    queue.forget("limiter")
    assert await queue.claim() == ["1"]


async def test_a_manual_limit_means_nothing_where_none_is_set(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.hold(60_000)
    assert await queue.claim() == ["1"]


# -- reports of a handler-----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 42, 99.5, "half", {"done": 3, "of": [7]}, [], None, True, "ünï"])
async def test_progress_of_every_shape(paired_queue: MakePair, value: Any) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.claim()
    await queue.progress("1", value)
    assert queue.events()[-1] == "progress"


@pytest.mark.parametrize(("kept", "lines"), [(None, 5), (3, 3), (0, 5)])
async def test_logs_with_and_without_a_limit(paired_queue: MakePair, kept: int | None, lines: int) -> None:
    queue = await paired_queue()
    await queue.add("send", **({} if kept is None else {"keepLogs": kept}))
    await queue.claim()
    for n in range(5):
        await queue.log("1", f"line {n} ✓")
    assert len(queue.entry("1:logs")) == lines


# -- locks and recovery -------------------------------------------------------------------------------------


async def test_extending_locks(paired_queue: MakePair) -> None:
    queue = await paired_queue(lockDuration=20_000)
    for _ in range(3):
        await queue.add("send")
    await queue.claim(3)
    await queue.sweep()
    queue.plant("PEXPIRE", "1:lock", 5_000)
    await queue.extend("1", "3")
    assert queue.entry("stalled") == [b"2"]


async def test_a_stalled_job_is_put_back_in_the_second_sweep(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for priority in ({}, {"priority": 2}, {}, {"lifo": True}):
        await queue.add("send", **priority)
    await queue.claim(4)
    queue.expire_locks("1", "2")
    assert await queue.sweep() == []
    assert sorted(await queue.sweep()) == ["1", "2"]
    assert queue.events()[-4:] == ["waiting", "stalled", "waiting", "stalled"]
    assert sorted(await queue.claim(2)) == ["1", "2"]


async def test_sweeps_are_throttled(paired_queue: MakePair) -> None:
    queue = await paired_queue(stalledInterval=60_000)
    await queue.add("send")
    await queue.claim()
    queue.expire_locks("1")
    await queue.sweep()
    assert list((await queue.broker.recover()).requeued) == []
    assert not queue.different()


async def test_a_job_stalled_too_often_fails_when_it_is_claimed(paired_queue: MakePair) -> None:
    queue = await paired_queue(maxStalledCount=1)
    await queue.add("send", attempts=3)
    for _ in range(2):
        await queue.claim()
        queue.expire_locks("1")
        await queue.sweep()
        assert await queue.sweep() == ["1"]
    await queue.claim()
    reason = queue.claimed("1").doomed
    assert reason == "job stalled more than allowable limit"
    await queue.fail("1", reason, unrecoverable=True)
    assert "defa" not in queue.entry("1")


@pytest.mark.parametrize("node", [5], indirect=True)  # BullMQ 6 looks for its scheduler
async def test_a_scheduled_job_may_stall_as_often_as_it_likes(paired_queue: MakePair) -> None:
    queue = await paired_queue(maxStalledCount=0)
    await queue.add("send")
    queue.plant("HSET", "1", "opts", '{"attempts":0,"repeat":{"every":1000}}')
    await queue.claim()
    queue.expire_locks("1")
    await queue.sweep()
    await queue.sweep()
    assert "defa" not in queue.entry("1")


async def test_stalled_jobs_of_a_paused_and_of_a_full_queue(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for _ in range(3):
        await queue.add("send")
    await queue.claim(3)
    await queue.sweep()
    queue.expire_locks("1")
    await queue.set_concurrency(2)
    await queue.sweep()
    queue.expire_locks("2")
    await queue.pause()
    assert await queue.sweep() == ["2"]
    assert queue.entry(queue.paused_list) == [b"1", b"2"]


async def test_settling_what_is_not_ours_any_more_is_refused_and_changes_nothing(
    paired_queue: MakePair,
) -> None:
    queue = await paired_queue()
    for _ in range(5):
        await queue.add("send")
    await queue.claim(5)
    queue.expire_locks("1", "4")
    queue.plant("SET", "2:lock", "another's", "PX", 30_000)
    queue.forget("3", "3:lock")
    queue.disown("2")
    await queue.turn([Done("1", 1), Failed("2"), Done("3", 3), Failed("4"), Done("5", 5)])
    assert queue.entry("active") == [b"4", b"3", b"2", b"1"]


# -- metrics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [1, 3, 100])
async def test_metrics_over_several_minutes(paired_queue: MakePair, points: int) -> None:
    queue = await paired_queue(metrics={"maxDataPoints": points})
    for gap in (0, 1_000, 59_000, 61_000, 200_000, 7_200_000, 500):
        await queue.advance(gap)
        first = await queue.add("send")
        second = await queue.add("send")
        await queue.claim(2)
        await queue.complete(first)
        await queue.fail(second)
    assert len(queue.entry("metrics:completed:data")) == min(points, 100)
    assert queue.entry("metrics:failed")["count"] == b"7"


# -- operating ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opts", [{}, {"lifo": True}, {"priority": 4}])
async def test_trying_a_failed_job_again(paired_queue: MakePair, opts: dict[str, Any]) -> None:
    queue = await paired_queue()
    await queue.add("send", **opts)
    await queue.claim()
    await queue.fail("1", "the first time")
    await queue.add("send")
    assert await queue.retry("1")
    assert not await queue.retry("1")
    assert "1" in await queue.claim(2)


async def test_running_a_completed_job_again_while_paused(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.claim()
    await queue.complete("1", "done")
    await queue.pause()
    assert await queue.retry("1")
    assert queue.entry(queue.paused_list) == [b"1"]


@pytest.mark.parametrize("opts", [{}, {"priority": 4}, {"lifo": True}])
async def test_promoting_one_delayed_job(paired_queue: MakePair, opts: dict[str, Any]) -> None:
    queue = await paired_queue()
    await queue.add("send", delay=60_000, **opts)
    await queue.add("send", delay=60_000)
    assert await queue.promote("1")
    assert not await queue.promote("1")
    assert await queue.claim(2) == ["1"]


async def test_removing_jobs_from_every_state(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for opts in ({}, {}, {}, {"priority": 4}, {"delay": 60_000}, {}, {}):
        await queue.add("send", **opts)
    await queue.claim(3)
    await queue.log("1", "a line")
    await queue.complete("1")
    await queue.fail("2")
    for job_id in ("1", "2", "4", "5", "6"):
        assert await queue.remove(job_id)
    assert not await queue.remove("3")
    assert not await queue.remove("no-such-job")
    await queue.pause()
    assert await queue.remove("7")
    assert queue.events().count("removed") == 6


async def test_events_are_trimmed_as_configured(paired_queue: MakePair, node: Node, server: Server) -> None:
    queue = await paired_queue(lockDuration=120_000)
    with server.connect() as client:
        # the server drops whole nodes; how many entries fill one must not depend on the clock
        client.config_set("stream-node-max-bytes", 0)
    await node(
        "openQueue", handle="trimmer", name="mail", prefix="node", url=server.url,
        opts={"skipMetasUpdate": False, "streams": {"events": {"maxLen": 50}}},
    )  # fmt: skip
    await node("settled", handle="trimmer", field="opts.maxLenEvents")
    await queue.operator.keep_events(50)
    for _ in range(4):
        await queue.add_many([("send", {}, {}) for _ in range(40)])
        await queue.add_many([("send", {}, {"delay": 60_000}) for _ in range(40)])
        ids = await queue.claim(20)
        await queue.turn([Done(job_id) for job_id in ids])
    with server.connect() as client:
        client.config_set("stream-node-max-bytes", 4096)
    assert len(queue.events()) < 200
