"""What is done to a whole queue at once leaves the very state that Node BullMQ 5.62.0 leaves."""

from collections.abc import Awaitable, Callable

import pytest

from corral.errors import InvalidOptions, QueueInUse
from tests.protocols.bullmq.paired_calls import fill, on_queue
from tests.protocols.bullmq.paired_flows import PairedQueues, job
from tests.protocols.bullmq.paired_outcomes import Done, Failed
from tests.protocols.bullmq.paired_queue import PairedQueue

MakePair = Callable[..., Awaitable[PairedQueue]]
MakePairs = Callable[..., Awaitable[PairedQueues]]


# -- many at once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("is_paused", [False, True])
async def test_draining(paired_queue: MakePair, delayed: bool, is_paused: bool) -> None:
    queue = await paired_queue()
    await fill(queue)
    if is_paused:
        await queue.pause()
    await on_queue(queue, "drain", [delayed], queue.operator.drain(delayed))
    assert queue.entry("wait") is None
    assert (queue.entry("delayed") is None) == delayed


async def test_draining_in_several_calls(paired_queue: MakePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.protocols.bullmq.operator.MOST", 3)
    queue = await paired_queue()
    await queue.add_many([("send", {}, {}) for _ in range(10)])
    await queue.add_many([("send", {}, {"priority": n + 1}) for n in range(7)])
    await on_queue(queue, "drain", [True], queue.operator.drain(True))
    assert queue.entry("prioritized") is None


async def test_draining_leaves_what_schedulers_wait_for(paired_queue: MakePair) -> None:
    """Node keeps such a job's hash, and may trim another's place than its own from the list."""
    queue = await paired_queue()
    for key, score in (("tick", 5), ("tock", 6)):
        queue.plant("ZADD", "repeat", score, key)
        queue.plant("HSET", f"repeat:{key}:{score}", "name", "x", "data", "{}", "opts", "{}", "timestamp", 1,
                    "delay", 0, "priority", 0, "rjk", key)  # fmt: skip
    await queue.add_many([("send", {}, {}) for _ in range(3)])
    queue.plant("RPUSH", "wait", "repeat:tick:5")
    queue.plant("ZADD", "delayed", 9, "repeat:tock:6")
    await queue.operator.drain(True)
    assert queue.entry("wait") == [b"repeat:tick:5"]
    assert queue.entry("delayed") == [(b"repeat:tock:6", 9.0)]
    assert queue.entry("1") is None


@pytest.mark.parametrize(
    "state", ["completed", "failed", "delayed", "prioritized", "wait", "waiting", "paused", "active"]
)
@pytest.mark.parametrize(("grace", "limit"), [(0, 0), (0, 1), (500, 0), (10**9, 0)])
async def test_cleaning(paired_queue: MakePair, state: str, grace: int, limit: int) -> None:
    queue = await paired_queue()
    await fill(queue)
    queue.expire_locks("4")
    if state == "paused":
        await queue.pause()
    own, theirs = await on_queue(
        queue, "clean", [grace, limit, state], queue.operator.clean_state(grace, limit, state)
    )
    assert own == theirs
    assert queue.events()[-1] == "cleaned"


async def test_cleaning_in_several_calls_tells_it_once(
    paired_queue: MakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.protocols.bullmq.operator.MOST", 4)
    queue = await paired_queue()
    await queue.add_many([("send", {}, {"timestamp": queue.now - 10_000 * (n % 3)}) for n in range(15)])
    own, theirs = await on_queue(
        queue, "clean", [5_000, 0, "wait"], queue.operator.clean_state(5_000, 0, "wait")
    )
    assert sorted(own) == sorted(theirs)
    await queue.add_many([("send", {}, {"delay": 60_000}) for _ in range(9)])
    own, theirs = await on_queue(
        queue, "clean", [0, 7, "delayed"], queue.operator.clean_state(0, 7, "delayed")
    )
    assert own == theirs
    assert len(own) == 7


async def test_what_is_held_and_what_schedulers_wait_for_is_not_cleaned(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.claim()
    own, _ = await on_queue(queue, "clean", [0, 0, "active"], queue.operator.clean_state(0, 0, "active"))
    assert own == []
    queue.plant("ZADD", "repeat", 5, "tick")
    queue.plant("HSET", "repeat:tick:5", "name", "x", "timestamp", 1, "rjk", "tick")
    queue.plant("RPUSH", "wait", "repeat:tick:5")
    own, _ = await on_queue(queue, "clean", [0, 0, "wait"], queue.operator.clean_state(0, 0, "wait"))
    assert own == []
    with pytest.raises(InvalidOptions, match="cannot be cleaned"):
        await queue.operator.clean_state(0, 0, "everything")


@pytest.mark.parametrize("count", [1000, 2])
async def test_obliterating(paired_queue: MakePair, count: int) -> None:
    queue = await paired_queue(metrics={"maxDataPoints": 5})
    await fill(queue)
    await queue.sweep()
    own, _ = await on_queue(queue, "obliterate", [{"count": count}], queue.operator.obliterate(False, count))
    assert isinstance(own, QueueInUse)
    queue.plant("ZADD", "repeat", 5, "tick")
    queue.plant("HSET", "repeat:tick", "name", "x")
    options = {"force": True, "count": count}
    await on_queue(queue, "obliterate", [options], queue.operator.obliterate(True, count))
    assert not any(map(queue.entry, ("meta", "id", "events", "wait", "active", "1", "5", "repeat")))


@pytest.mark.parametrize("state", ["failed", "completed"])
@pytest.mark.parametrize("count", [1000, 2])
async def test_trying_all_again(paired_queue: MakePair, state: str, count: int) -> None:
    queue = await paired_queue()
    ids = [await queue.add("send", **opts) for opts in ({}, {"priority": 2}, {"lifo": True}, {}, {})]
    await queue.claim(5)
    until = 0
    for n, job_id in enumerate(ids):
        await queue.advance(100)
        await queue.turn([Done(job_id, n) if state == "completed" else Failed(job_id)])
        if n == 3:
            until = queue.now
    await on_queue(queue, "retryJobs", [{"state": state, "count": count, "timestamp": until}],
                   queue.operator.retry_all(state, count, until))  # fmt: skip
    assert len(queue.entry(state)) == 1
    await on_queue(queue, "retryJobs", [{"state": state}], queue.operator.retry_all(state))
    assert queue.entry(state) is None
    await on_queue(queue, "retryJobs", [{"state": state}], queue.operator.retry_all(state))


@pytest.mark.parametrize("count", [1000, 2])
async def test_promoting_all(paired_queue: MakePair, count: int) -> None:
    queue = await paired_queue()
    await on_queue(queue, "promoteJobs", [{"count": count}], queue.operator.promote_all(count))
    for opts in ({}, {"priority": 2}, {"lifo": True}, {}):
        await queue.add("send", delay=60_000, **opts)
    await queue.pause()
    await on_queue(queue, "promoteJobs", [{"count": count}], queue.operator.promote_all(count))
    assert queue.entry(queue.paused_list) == [b"4", b"3", b"2", b"1"]
    with pytest.raises(InvalidOptions, match="count"):
        await queue.operator.promote_all(0)
    with pytest.raises(InvalidOptions, match="cannot be retried"):
        await queue.operator.retry_all("waiting")


async def test_sweeping_families(paired_queues: MakePairs) -> None:
    """A parent that waited for none but swept children goes with them in its own queue, else it goes on."""
    queues = await paired_queues("mail", "pay")
    # Node 6 refuses deduplication in flows
    same = {} if queues["mail"].is_six else {"deduplication": {"id": "x"}}
    await queues.add_flow(job("here", "mail", job("h1", **same), job("h2")))
    await queues.add_flow(job("there", "pay", job("t1", "mail", delay=50), job("t2", "mail", priority=3)))
    await queues.add_flow(job("high", "mail", job("mid", "mail", job("low", "mail"))))
    mail = queues["mail"]
    await on_queue(mail, "drain", [True], mail.operator.drain(True))
    assert mail.entry("here") is None
    assert mail.entry("high") is None
    assert queues["pay"].entry("wait") == [b"there"]


@pytest.mark.parametrize("state", ["waiting-children", "wait", "completed", "failed"])
async def test_cleaning_families(paired_queues: MakePairs, state: str) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "mail"), job("b", "pay"), job("c", "mail")))
    mail = queues["mail"]
    await mail.claim(2)
    await mail.turn([Done("a", 1), Failed("c")])
    await queues.add_flow(job("other", "mail", job("d", "mail")))
    own, theirs = await on_queue(mail, "clean", [0, 0, state], mail.operator.clean_state(0, 0, state))
    assert own == theirs


async def test_obliterating_families(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "mail"), job("b", "mail", delay=70)))
    await queues.add_flow(job("other", "mail", job("c", "pay")))
    await queues.add_flow(job("far", "pay", job("d", "mail")))
    mail = queues["mail"]
    await on_queue(mail, "obliterate", [{}], mail.operator.obliterate())
    # as 5.62.0 leaves it: a parent whose child lives elsewhere stays where it was
    assert [member for member, _ in mail.entry("waiting-children")] == [b"other"]
    assert mail.entry("top") is None


async def test_trimming_events(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    queue._client.config_set("stream-node-max-bytes", 0)
    await queue.add_many([("send", {}, {}) for _ in range(150)])
    own, theirs = await on_queue(queue, "trimEvents", [20], queue.operator.trim_events(20))
    queue._client.config_set("stream-node-max-bytes", 4096)
    assert own == theirs
    assert own > 0
