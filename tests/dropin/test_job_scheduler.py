"""JobScheduler: schedulers as Node writes, reads and continues them."""

import time
from typing import Any

import pytest

from corral.bullmq import Job, JobScheduler
from tests.dropin.factory import Factory
from tests.dropin.node_queue import NodeQueue
from tests.support.node import NodeError
from tests.support.polling import until

HOUR = 3_600_000


async def test_a_scheduler_adds_its_first_job_at_once_and_node_reads_both(
    factory: Factory, node_queue: NodeQueue
) -> None:
    queue = factory.queue()
    data, opts = {"to": "ü"}, {"attempts": 3, "removeOnComplete": True, "failParentOnFailure": True}
    job = await queue.upsertJobScheduler("hourly", {"every": HOUR, "limit": 5}, "send", data, opts)
    assert job is not None
    assert job.id is not None
    assert (job.name, job.data, job.repeatJobKey) == ("send", data, "hourly")
    seen = await node_queue.read(job.id)
    assert (seen["name"], seen["data"], seen["repeatJobKey"]) == ("send", data, "hourly")
    assert seen["opts"]["attempts"] == job.opts["attempts"] == 3
    assert seen["opts"]["repeat"]["count"] == 1
    scheduler = await queue.getJobScheduler("hourly")
    assert scheduler == await node_queue("getJobScheduler", "hourly")
    assert scheduler is not None
    assert scheduler["template"] == {"data": data, "opts": opts}
    assert (scheduler["every"], scheduler["limit"], scheduler["name"]) == (HOUR, 5, "send")
    assert await queue.isJobScheduler("hourly") is True
    assert await queue.isJobScheduler("none") is False


async def test_schedulers_of_either_side_are_listed_alike(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    start = int(time.time() * 1000) + HOUR
    await queue.upsertJobScheduler(
        "berlin", {"pattern": "0 9 * * *", "tz": "Europe/Berlin", "endDate": start + 9 * 24 * HOUR}
    )
    await queue.upsertJobScheduler("later", {"every": HOUR, "startDate": start}, opts={"priority": 3})
    await node_queue("upsertJobScheduler", "node", {"every": 2 * HOUR}, {"name": "by-node", "data": {"a": 1}})
    for ascending in (True, False):
        listed = await queue.getJobSchedulers(0, -1, ascending)
        assert listed == await node_queue("getJobSchedulers", 0, -1, ascending)
        assert {each["key"] for each in listed} == {"berlin", "later", "node"}
    assert await queue.getJobSchedulers(0, 0, True) == await node_queue("getJobSchedulers", 0, 0, True)
    assert await queue.getJobSchedulersCount() == await node_queue("getJobSchedulersCount") == 3
    assert await JobScheduler(queue).getScheduler("node") == await node_queue("getJobScheduler", "node")
    assert await queue.getJobScheduler("none") is None


async def test_an_existing_scheduler_is_changed(factory: Factory) -> None:
    queue = factory.queue(defaultJobOptions={"attempts": 4})
    await queue.upsertJobScheduler("s", {"every": HOUR})
    job = await queue.upsertJobScheduler("s", {"pattern": "0 0 1 1 *"}, "yearly", [1])
    assert job is not None
    assert (job.name, job.data, job.opts["attempts"]) == ("yearly", [1], 4)
    scheduler = await queue.getJobScheduler("s")
    assert scheduler is not None
    assert (scheduler["pattern"], scheduler["template"]["data"]) == ("0 0 1 1 *", [1])
    assert "every" not in scheduler
    assert await queue.getJobSchedulersCount() == 1


async def test_removing_a_scheduler_removes_its_next_job(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()
    job = await queue.upsertJobScheduler("s", {"pattern": "0 0 1 1 *"})
    assert job is not None
    message = rf"^Job {job.id} belongs to a job scheduler and cannot be removed directly\. removeJob$"
    with pytest.raises(TypeError, match=message):
        await job.remove()
    with pytest.raises(Exception, match=message):
        await node_queue.job(job.id, "remove")
    assert await queue.removeJobScheduler("s") == 0
    assert await queue.removeJobScheduler("s") == 1
    assert await node_queue("getDelayedCount") == 0
    assert await queue.getJobSchedulersCount() == 0


async def test_a_worker_adds_the_next_job_of_a_scheduler(factory: Factory, node_queue: NodeQueue) -> None:
    """A scheduler of either side continues with our worker as the only one."""
    ran: dict[str, list[Any]] = {"ours": [], "node": []}

    async def process(job: Job, token: str) -> Any:
        assert job.repeatJobKey is not None
        ran[job.repeatJobKey].append((job.opts["repeat"]["count"], job.data))

    queue = factory.queue()
    await queue.upsertJobScheduler("ours", {"every": 30, "limit": 4}, "tick", {"a": 1})
    await node_queue(
        "upsertJobScheduler", "node", {"every": 30, "limit": 4}, {"name": "tick", "data": {"a": 1}}
    )
    factory.worker(process, concurrency=2)

    async def all_ran() -> bool:
        return all(len(each) == 4 for each in ran.values())

    await until(all_ran)
    assert ran == {name: [(number, {"a": 1}) for number in (1, 2, 3, 4)] for name in ("ours", "node")}


async def test_claiming_a_scheduled_job_manually_adds_the_next(
    factory: Factory, node_queue: NodeQueue
) -> None:
    queue = factory.queue()
    await queue.upsertJobScheduler("s", {"every": HOUR})
    job = await factory.worker(None).getNextJob("token")
    assert job is not None
    assert job.repeatJobKey == "s"
    assert await node_queue("getDelayedCount") == 1
    await job.moveToCompleted(1, "token")
    [following] = await queue.getDelayed()
    assert following.repeatJobKey == "s"
    assert following.opts["repeat"]["count"] == 2


REFUSED: list[dict[str, Any]] = [
    {},
    {"every": 5, "pattern": "* * * * *"},
    {"pattern": "* * * * *", "immediately": True, "startDate": 5},
]


@pytest.mark.parametrize("repeat", REFUSED, ids=repr)
async def test_what_node_refuses_is_refused_with_its_message(
    factory: Factory, node_queue: NodeQueue, repeat: dict[str, Any]
) -> None:
    with pytest.raises(NodeError) as theirs:
        await node_queue("upsertJobScheduler", "s", repeat)
    queue = factory.queue()
    with pytest.raises(ValueError, match=r".") as ours:
        await queue.upsertJobScheduler("s", repeat)
    assert str(ours.value) == str(theirs.value)
    assert await queue.store.call("DBSIZE") == 0


async def test_a_scheduler_that_has_ended_adds_nothing(factory: Factory) -> None:
    queue = factory.queue()
    assert await queue.upsertJobScheduler("s", {"every": 5, "endDate": 1000}) is None
    assert await queue.store.call("DBSIZE") == 0


async def test_a_scheduler_at_its_limit_adds_no_job(factory: Factory, node_queue: NodeQueue) -> None:
    repeat = {"every": HOUR, "limit": 3, "count": 3}
    assert await factory.queue().upsertJobScheduler("s", repeat) is None
    assert await node_queue("upsertJobScheduler", "s", repeat) is None


async def test_repeatable_jobs_of_earlier_versions_are_listed_by_their_keys(factory: Factory) -> None:
    queue = factory.queue()
    await queue.store.call("ZADD", "bull:mail:repeat", 5000, "send:my-id:9000:UTC:* * * * *")
    assert await queue.getJobSchedulers() == [
        {
            "key": "send:my-id:9000:UTC:* * * * *", "name": "send", "id": "my-id", "endDate": 9000,
            "tz": "UTC", "pattern": "* * * * *", "next": 5000,
        }
    ]  # fmt: skip


async def test_override_and_producer_id_are_refused(factory: Factory) -> None:
    with pytest.raises(ValueError, match="the worker that claims a scheduler's job adds the next"):
        await factory.queue().upsertJobScheduler("s", {"every": HOUR}, override=False)
