"""Ids and options are checked by the rules of BullMQ 5.62.0, with its messages."""

from typing import Any

import pytest

from corral.bullmq import Worker
from tests.dropin.factory import Factory, nothing
from tests.dropin.node_queue import NodeQueue
from tests.support.node import NodeError

REFUSED: list[dict[str, Any]] = [
    {"jobId": "12"},
    {"jobId": "-7"},
    {"jobId": "0"},
    {"jobId": "0:1:2"},
    {"jobId": "a:b"},
    {"jobId": "a:b:c:d"},
    {"priority": 1.5},
    {"priority": 2**21 + 1},
    {"deduplication": {"ttl": 5}},
    {"debounce": {"ttl": 5}},
    {"sizeLimit": 5},
    {"failParentOnFailure": True, "ignoreDependencyOnFailure": True},
    {"removeDependencyOnFailure": True, "continueParentOnFailure": True, "failParentOnFailure": True},
    {"backoff": {"type": "fixed", "delay": 1, "jitter": 2}},
]


@pytest.mark.parametrize("opts", REFUSED, ids=repr)
async def test_what_node_refuses_is_refused_with_its_message(
    factory: Factory, node_queue: NodeQueue, opts: dict[str, Any]
) -> None:
    with pytest.raises(NodeError) as theirs:
        await node_queue("add", "send", {"a": "long"}, opts)
    queue = factory.queue()
    with pytest.raises(ValueError, match=r".") as ours:
        await queue.add("send", {"a": "long"}, opts)
    assert str(ours.value) == str(theirs.value)
    with pytest.raises(ValueError, match=r"."):
        await queue.addBulk([{"name": "fine"}, {"name": "send", "data": {"a": "long"}, "opts": opts}])
    assert await queue.store.call("DBSIZE") == 0


ACCEPTED: list[dict[str, Any]] = [
    {"jobId": "007"},
    {"jobId": "a:b:c"},
    {"jobId": "any thing/at?all"},
    {"priority": 2**21},
    {"priority": 2.0},
    {"attempts": 0},
    {"delay": -5},
    {"backoff": 0},
    {"backoff": {"type": "mine"}},
    {"removeOnComplete": -1},
    {"sizeLimit": 14},
    {"unknown": None},
]


@pytest.mark.parametrize("opts", ACCEPTED, ids=repr)
async def test_what_node_accepts_is_accepted_and_read_the_same(
    factory: Factory, node_queue: NodeQueue, opts: dict[str, Any]
) -> None:
    theirs = factory.queue("theirs")
    await node_queue.node("openQueue", handle="theirs", **{**node_queue.where, "name": "theirs"})
    added = await node_queue.node("add", queue="theirs", name="send", data={"a": "long"}, opts=opts)
    job = await factory.queue().add("send", {"a": "long"}, opts)
    assert job.id == added["id"]
    ours, node = await node_queue.read(job.id), await theirs.getJob(str(job.id))
    assert node is not None
    assert {**ours["opts"], "delay": 0, "backoff": ours["opts"].get("backoff")} == {**node.opts, "delay": 0}
    assert await job.getState() in (await node.getState(), "waiting")


async def test_an_empty_id_is_none(factory: Factory) -> None:
    assert (await factory.queue().add("send", {}, {"jobId": ""})).id == "1"


@pytest.mark.parametrize("job_id", ["meta", "wait", "events", "metrics:completed:data"])
async def test_an_id_that_would_overwrite_a_key_of_the_queue_is_refused(
    factory: Factory, job_id: str
) -> None:
    queue = factory.queue()
    with pytest.raises(ValueError, match="the name of one of the queue's own keys"):
        await queue.add("send", {}, {"jobId": job_id})
    assert await queue.store.call("DBSIZE") == 0


@pytest.mark.parametrize("priority", [-1, -(2**21)])
async def test_a_negative_priority_is_refused_as_documented(factory: Factory, priority: int) -> None:
    queue = factory.queue()
    with pytest.raises(ValueError, match=r"^Priority should be between 0 and 2097152$"):
        await queue.add("send", {}, {"priority": priority})


@pytest.mark.parametrize(
    "opts", [{"jobId": 5}, {"jobId": 1.5}, {"priority": "high"}, {"delay": "soon"}, {"delay": float("inf")}]
)
async def test_values_of_a_wrong_kind_are_refused(factory: Factory, opts: dict[str, Any]) -> None:
    queue = factory.queue()
    with pytest.raises(ValueError, match=r"."):
        await queue.add("send", {}, opts)
    assert await queue.store.call("DBSIZE") == 0


async def test_the_repeat_option_is_refused_in_favour_of_schedulers(factory: Factory) -> None:
    queue = factory.queue()
    with pytest.raises(ValueError, match="use upsertJobScheduler instead"):
        await queue.add("send", {}, {"repeat": {"every": 1000}})
    with pytest.raises(ValueError, match=r"^Delay and repeat options could not be used together$"):
        await queue.add("send", {}, {"repeat": {"every": 1000}, "delay": 5})
    assert await queue.store.call("DBSIZE") == 0


@pytest.mark.parametrize(
    "opts",
    [
        {"concurrency": 0},
        {"maxStalledCount": -1},
        {"maxStartedAttempts": -1},
        {"stalledInterval": 0},
        {"drainDelay": 0},
    ],
    ids=repr,
)
async def test_a_worker_that_node_refuses_is_refused_with_its_message(
    node_queue: NodeQueue, opts: dict[str, Any]
) -> None:
    with pytest.raises(NodeError) as theirs:
        await node_queue.node("openWorker", handle="refused", **node_queue.where, opts=opts)
    with pytest.raises(ValueError, match=r".") as ours:
        Worker("mail", nothing, opts)
    assert str(ours.value) == str(theirs.value)
