"""Node's QueueEvents receives every event of a Corral worker; Corral receives Node's."""

from typing import Any

from corral.core.job import JobState
from corral.errors import Transient
from tests.protocols.bullmq.shared_queue import SharedQueue
from tests.support.polling import until

Received = list[Any]


async def events_until(shared: SharedQueue, received: Any, last: str, times: int = 1) -> Received:
    """Return all events once the last has come."""

    async def complete() -> Received:
        so_far: Received = await received()
        return so_far if sum(name == last for name, _ in so_far) >= times else []

    found: Received = await until(complete, f"Node receives {last!r} {times} times")
    return found


async def test_node_hears_a_corral_job_from_its_birth_to_its_end(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> Any:
        await job.progress(40)
        await job.progress({"näher": [1]})
        return {"ok": "☃"}

    async with shared.node_listens() as received, shared.corral_works():
        await shared.queue.add("send", {"to": "ann"})
        events = await events_until(shared, received, "drained")
    assert events == [
        ["added", {"jobId": "1", "name": "send"}],
        ["waiting", {"jobId": "1"}],
        ["active", {"jobId": "1", "prev": "waiting"}],
        ["progress", {"jobId": "1", "data": 40}],
        ["progress", {"jobId": "1", "data": {"näher": [1]}}],
        ["completed", {"jobId": "1", "returnvalue": {"ok": "☃"}, "prev": "active"}],
        ["drained", None],
    ]


async def test_node_hears_retries_and_exhaustion(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        raise Transient(f"zu früh: {job.attempt}")

    async with shared.node_listens() as received, shared.corral_works():
        await shared.queue.add("send", attempts=2, backoff=25)
        events = await events_until(shared, received, "drained")
    due = int((await shared.job("1")).created_at) + 25
    again = events[3][1].pop("delay")
    assert due <= int(again) <= due + 10_000
    assert events == [
        ["added", {"jobId": "1", "name": "send"}],
        ["waiting", {"jobId": "1"}],
        ["active", {"jobId": "1", "prev": "waiting"}],
        ["delayed", {"jobId": "1"}],
        ["waiting", {"jobId": "1", "prev": "delayed"}],
        ["active", {"jobId": "1", "prev": "waiting"}],
        ["failed", {"jobId": "1", "failedReason": "zu früh: 2", "prev": "active"}],
        ["retries-exhausted", {"jobId": "1", "attemptsMade": "2"}],
        ["drained", None],
    ]


async def test_node_hears_an_immediate_retry_as_waiting_again(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        if job.attempt == 1:
            raise Transient("again")

    async with shared.node_listens() as received, shared.corral_works():
        await shared.node_adds(attempts=2)
        events = await events_until(shared, received, "completed")
    assert [name for name, _ in events[2:6]] == ["active", "waiting", "active", "completed"]
    assert events[3] == ["waiting", {"jobId": "1", "prev": "active"}]
    assert events[5] == ["completed", {"jobId": "1", "returnvalue": None, "prev": "active"}]


async def test_node_hears_what_a_corral_operator_does(shared: SharedQueue) -> None:
    async with shared.node_listens() as received:
        await shared.operator.pause()
        await shared.queue.add("send", id="one")
        await shared.queue.add("send", id="one")
        later = await shared.queue.add("send", id="two", delay=60_000)
        await shared.operator.promote(["two"])
        await shared.operator.remove(["one", "two"])
        await shared.operator.resume()
        events = await events_until(shared, received, "resumed")
    due: Any = later.job.created_at + 60_000
    is_six = shared.node.generation == 6
    paused = "wait" if is_six else "paused"
    assert events == [
        ["paused", {}],
        ["added", {"jobId": "one", "name": "send"}],
        ["waiting", {"jobId": "one"}],
        ["duplicated", {"jobId": "one"}],
        ["added", {"jobId": "two", "name": "send"}],
        ["delayed", {"jobId": "two", "delay": due if is_six else str(due)}],
        ["waiting", {"jobId": "two", "prev": "delayed"}],
        ["removed", {"jobId": "one", "prev": paused}],
        ["removed", {"jobId": "two", "prev": paused}],
        ["resumed", {}],
    ]


async def test_a_handlers_own_event_reaches_nodes_custom_listeners(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        await job.emit("opened", {"page": 3})

    async with shared.node_listens() as received, shared.corral_works():
        await shared.node_adds()
        events = await events_until(shared, received, "completed")
    [fields] = [fields for name, fields in events if name == "opened"]
    assert fields["jobId"] == "1"


async def test_corral_hears_a_node_worker(shared: SharedQueue) -> None:
    async with shared.node_works({"fail": 1, "progress": [70], "return": {"ok": 1}}):
        await shared.node_adds(attempts=2, backoff=10)
        await shared.is_in("1", JobState.COMPLETED)
        await shared.node_queue("pause")
        await shared.node_queue("resume")
    events = await shared.queue.events.range()
    read = [(event.kind, event.job_id) for event in events if event.kind != "drained"]
    once = [("active", "1"), ("progress", "1")]
    assert read == [
        ("added", "1"), ("waiting", "1"), *once, ("retry", "1"), ("waiting", "1"), *once, ("completed", "1"),
        ("paused", None), ("resumed", None),
    ]  # fmt: skip
    assert [event.id for event in events] == sorted({event.id for event in events}, key=_by_number)
    [completed] = [event for event in events if event.kind == "completed"]
    assert completed.data == {"returnvalue": {"ok": 1}}


def _by_number(entry_id: str) -> tuple[int, int]:
    moment, _, number = entry_id.partition("-")
    return int(moment), int(number)
