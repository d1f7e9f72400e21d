"""QueueEvents: callbacks, iterators, resuming, and no event missed across a lost connection."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from corral.bullmq import Queue, QueueEvents
from corral.bullmq.queue_events import READ_COUNT
from tests.dropin.factory import EventRecorder, Factory
from tests.dropin.node_queue import NodeQueue
from tests.support.polling import until
from tests.support.proxy import Proxy, ProxyFault, runs


async def test_callbacks_get_nodes_events(factory: Factory, node_queue: NodeQueue) -> None:
    events = await factory.events()
    recorded = EventRecorder(
        events, "added", "waiting", "active", "completed", "failed", "progress", "drained",
        "retries-exhausted", "completed:1", "paused", "resumed", "duplicated", "removed",
    )  # fmt: skip
    await node_queue.works()
    await node_queue.add("send", {"script": {"return": {"a": [1]}, "progress": [{"half": 1}]}})
    await recorded.wait_for("drained")
    assert [name for name in recorded.names() if name != "drained"] == [
        "added", "waiting", "active", "progress", "completed", "completed:1",
    ]  # fmt: skip
    [[args, event_id]] = recorded.of("completed")
    assert args == {"jobId": "1", "returnvalue": {"a": [1]}, "prev": "active"}
    assert recorded.of("completed:1") == [(args, event_id)]
    assert recorded.of("progress")[0][0]["data"] == {"half": 1}
    assert recorded.of("drained")[0][0] > event_id
    await node_queue.add("send", {"script": {"fail": -1, "message": "no"}}, attempts=1)
    await recorded.wait_for("retries-exhausted")
    assert recorded.of("failed")[0][0] == {"jobId": "2", "failedReason": "no", "prev": "active"}
    await node_queue("pause")
    await node_queue("resume")
    await node_queue.add("send", {}, jobId="twice", delay=60_000)
    await node_queue.add("send", {}, jobId="twice")
    await node_queue("remove", "twice")
    await recorded.wait_for("removed")
    assert recorded.of("duplicated")[0][0] == {"jobId": "twice"}


async def test_a_removed_callback_is_not_called(factory: Factory) -> None:
    events = await factory.events()
    called: list[str] = []

    def note(args: dict[str, Any], event_id: str) -> None:
        called.append(args["jobId"])

    events.on("waiting", note)
    recorded = EventRecorder(events, "waiting")
    await factory.queue().add("send", {})
    await recorded.wait_for("waiting")
    events.off("waiting", note)
    await factory.queue().add("send", {})
    await recorded.wait_for_count(2)
    assert called == ["1"]


async def test_events_come_one_by_one(factory: Factory) -> None:
    events = await factory.events(autorun=False)
    await factory.queue().addBulk([{"name": "send"}] * 3)
    received = []
    async for event, args, event_id in events:
        received.append((event, args["jobId"], event_id))
        if len(received) == 6:
            break
    assert [each[:2] for each in received] == [
        ("added", "1"), ("waiting", "1"), ("added", "2"), ("waiting", "2"), ("added", "3"), ("waiting", "3"),
    ]  # fmt: skip
    assert all(before[2] < after[2] for before, after in pairwise(received))


async def test_a_listener_continues_where_another_stopped(factory: Factory) -> None:
    await factory.queue().addBulk([{"name": "send"}] * 5)
    first = await factory.events(autorun=False, lastEventId="0-0")
    seen = []
    async for event in first:
        seen.append(event)
        if len(seen) == 4:
            break
    second = await factory.events(lastEventId=seen[-1].id)
    recorded = EventRecorder(second, "added", "waiting")
    await recorded.wait_for_count(6)
    assert [(name, args["jobId"]) for name, args, _ in recorded.events] == [
        (name, str(number)) for number in (3, 4, 5) for name in ("added", "waiting")
    ]
    after = [event async for event in _first(second.since(seen[0].id), 9)]
    assert after[:3] == seen[1:]


async def _first(events: Any, count: int) -> Any:
    async for event in events:
        yield event
        count -= 1
        if count == 0:
            return


async def test_nothing_that_happens_after_ready_is_missed(factory: Factory) -> None:
    events = QueueEvents("mail", {"connection": factory.url, "autorun": False})
    await events.waitUntilReady()
    await factory.queue().add("before the first read", {})
    async with events:
        received = [event.event async for event in _first(events, 2)]
    assert received == ["added", "waiting"]


async def test_closing_ends_callbacks_and_iterators(factory: Factory) -> None:
    events = await factory.events()
    received: list[Any] = []

    async def collect() -> None:
        async for event in events:
            received.append(event)

    collecting = asyncio.create_task(collect())
    await factory.queue().add("send", {})
    await until(lambda: _has_length(received, 2))
    await events.close()
    await asyncio.wait_for(collecting, 5)
    assert (events.closed, events.running) == (True, False)
    await events.close()


async def test_a_listener_runs_once_at_a_time(factory: Factory) -> None:
    events = await factory.events(autorun=False)
    running = asyncio.create_task(events.run())
    await until(lambda: _running(events))
    with pytest.raises(Exception, match=r"^QueueEvents is already running\.$"):
        await events.run()
    await events.close()
    with pytest.raises(asyncio.CancelledError):
        await running


async def _running(events: QueueEvents) -> bool:
    return events.running


@pytest.mark.parametrize(
    "fault",
    [ProxyFault.CUT_BEFORE, ProxyFault.CUT_INSIDE, ProxyFault.SWALLOW, ProxyFault.CUT_REPLY],
    ids=lambda fault: fault.name,
)
async def test_no_event_is_missed_or_emitted_twice_across_a_reconnect(
    factory: Factory, proxy: Proxy, fault: ProxyFault
) -> None:
    """Every third read fails while jobs are added."""
    recorded: list[tuple[str, str]] = []
    listener = QueueEvents("mail", {"connection": proxy.url, "blockingTimeout": 20})
    listener.on("added", lambda args, event_id: recorded.append((args["jobId"], event_id)))
    faults = EventRecorder(listener, "error")
    await listener.waitUntilReady()
    reads = 0

    def every_third(command: list[bytes]) -> bool:
        nonlocal reads
        if not runs("XREAD")(command):
            return False
        reads += 1
        return reads % 3 == 0

    rule = proxy.rule(every_third, fault, times=4, shares=(0.3, 0.9))
    queue = Queue("mail", {"connection": factory.url})
    added = 0
    while len(faults.events) < 4:
        added += 1
        await queue.add("send", added)
        await asyncio.sleep(0.001)
    await until(lambda: _has_length(recorded, added))
    assert [job_id for job_id, _ in recorded] == [str(number + 1) for number in range(added)]
    assert rule.met == 4
    await listener.close()
    await queue.close()


async def _has_length(items: Sequence[Any], count: int) -> bool:
    return len(items) >= count


async def test_an_iterator_survives_an_outage(factory: Factory, proxy: Proxy) -> None:
    listener = QueueEvents("mail", {"connection": proxy.url, "autorun": False})
    faults = EventRecorder(listener, "error")
    queue = Queue("mail", {"connection": factory.url})
    received: list[str] = []
    async with listener:
        proxy.go_away()

        async def collect() -> None:
            async for event, args, _ in listener:
                if event == "added":
                    received.append(args["jobId"])
                if len(received) == 30:
                    return

        collecting = asyncio.create_task(collect())
        await queue.addBulk([{"name": "while away"}] * 10)
        await faults.wait_for_count(1)
        proxy.come_back()
        await queue.addBulk([{"name": "back"}] * 10)
        await until(lambda: _has_length(received, 20))
        proxy.cut()
        await queue.addBulk([{"name": "cut"}] * 10)
        await asyncio.wait_for(collecting, 10)
    assert received == [str(number + 1) for number in range(30)]
    await queue.close()


async def test_a_listener_waits_for_a_server_that_is_not_up_yet(factory: Factory, proxy: Proxy) -> None:
    proxy.go_away()
    listener = QueueEvents("mail", {"connection": proxy.url})
    faults, recorded = EventRecorder(listener, "error"), EventRecorder(listener, "waiting")
    await faults.wait_for_count(1)
    proxy.come_back()
    await listener.waitUntilReady()
    await factory.queue().add("send", {})
    await recorded.wait_for_count(1)
    assert recorded.names() == ["waiting"]
    await listener.close()


async def test_a_slow_reader_reads_no_more_than_it_uses(factory: Factory, proxy: Proxy) -> None:
    queue = factory.queue()
    await queue.addBulk([{"name": "send"}] * 1500)
    listener = QueueEvents("mail", {"connection": proxy.url, "autorun": False, "lastEventId": "0-0"})
    events = listener.since()
    for number in range(READ_COUNT):
        await anext(events)
        if number % 100 == 0:
            await queue.getWaitingCount()  # time enough for one that reads ahead
    assert proxy.count(runs("XREAD")) == 1
    await anext(events)
    assert proxy.count(runs("XREAD")) == 2
    await events.aclose()  # type: ignore[attr-defined]
    await listener.close()


async def test_custom_events_reach_python_and_node(factory: Factory, node_queue: NodeQueue) -> None:
    events = await factory.events()
    recorded = EventRecorder(events, "greeted")
    await node_queue.node("openEvents", handle="events", **node_queue.where, opts={"lastEventId": "0-0"})
    producer = factory.producer()
    await producer.publishEvent({"eventName": "greeted", "who": "you", "times": 2})
    await recorded.wait_for_count(1)
    assert recorded.events[0][1] == {"who": "you", "times": "2"}

    async def node_heard() -> Any:
        return [event for event in await node_queue.node("heard", handle="events") if event[0] == "greeted"]

    [[_, fields, _]] = await until(node_heard)
    assert fields == {"who": "you", "times": "2"}
    with pytest.raises(ValueError, match=r"^publishEvent requires an 'eventName' key$"):
        await producer.publishEvent({"who": "you"})
