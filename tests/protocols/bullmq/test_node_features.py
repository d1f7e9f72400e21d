"""With Corral as the only worker, Node's schedulers tick, its flows run, its deduplication lets go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from corral import Corral
from corral.core.job import JobState
from corral.errors import Unrecoverable, WaitForChildren
from corral.protocols.base import Binding
from corral.protocols.bullmq.flows import BullmqFlows
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.scripts import SCRIPTS
from tests.protocols.bullmq.paired_flows import POLICIES, policy_name
from tests.support.node import Node
from tests.support.polling import until
from tests.support.proxy import Proxy, ProxyFault, runs_script
from tests.support.servers import Server

QUEUES = ("mail", "pay", "ship")


class SharedQueues:
    """Three queues that Node fills and Corral alone works off; `url` is where Corral finds the server."""

    def __init__(self, node: Node, server: Server, url: str) -> None:
        self.node, self.server = node, server
        self.app = Corral(url)
        self.ran: list[str] = []
        for queue in QUEUES:
            self.app.job("work", queue=queue)(self._work)

    async def _work(self, job: Any) -> Any:
        self.ran.append(job.id)
        await asyncio.sleep(job.data.get("sleep", 0) / 1000)
        if "fail" in job.data:
            raise Unrecoverable(job.data["fail"])
        return job.data.get("say")

    async def open(self) -> "SharedQueues":
        for queue in QUEUES:
            where = {"name": queue, "prefix": "bull", "url": self.server.url}
            await self.node("openQueue", handle=queue, **where, opts={})
        await self.node("openFlows", handle="flows", prefix="bull", url=self.server.url)
        return self

    async def close(self) -> None:
        await self.app.close()

    @asynccontextmanager
    async def works(self, **options: Any) -> AsyncIterator[None]:
        workers = self.app.workers(concurrency=4, **options)
        for worker in workers:
            await worker.start()
        running = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            yield
        finally:
            for worker in workers:
                await worker.stop(grace=5)
            await asyncio.gather(*running)

    async def ask(self, queue: str, method: str, *args: Any) -> Any:
        return await self.node("queue", handle=queue, method=method, args=list(args))

    async def ask_job(self, queue: str, job_id: str, method: str) -> Any:
        return await self.node("job", queue=queue, id=job_id, method=method)

    def inspector(self, queue: str) -> BullmqInspector:
        return BullmqInspector(Binding(self.app.store(), queue, "bull", self.app.clock))

    def flows(self, queue: str) -> BullmqFlows:
        return BullmqFlows(Binding(self.app.store(), queue, "bull", self.app.clock))

    async def state(self, queue: str, job_id: str, wanted: str) -> None:
        async def reached() -> bool:
            return str(await self.ask_job(queue, job_id, "getState")) == wanted

        await until(reached, f"{job_id} is {wanted}")


@pytest.fixture
async def shared(node: Node, server: Server) -> AsyncIterator[SharedQueues]:
    shared = await SharedQueues(node, server, server.url).open()
    yield shared
    await shared.close()


# -- schedulers ---------------------------------------------------------------------------------------------


async def ticked(shared: SharedQueues, count: int) -> None:
    """Return when so many ticks have completed."""

    async def enough() -> bool:
        return int((await shared.ask("mail", "getJobCounts", "completed"))["completed"]) >= count

    await until(enough, f"{count} ticks")


async def assert_in_step(shared: SharedQueues, every: int) -> None:
    """Each tick was made once and ran at most once; none is missing, one is still to come."""
    assert len(set(shared.ran)) == len(shared.ran)
    to_come: list[str] = await shared.ask("mail", "getRanges", ["delayed", "waiting"], 0, -1)
    made = {*shared.ran, *to_come}
    scheduler = await shared.ask("mail", "getJobScheduler", "tick")
    assert scheduler["iterationCount"] == len(made)
    assert f"repeat:tick:{scheduler['next']}" in to_come
    moments = sorted(int(job_id.rpartition(":")[2]) for job_id in made)
    # a busy machine may come too late for a tick, and what was missed is not made up for
    assert all((later - earlier) % every == 0 for earlier, later in pairwise(moments))


async def test_a_node_scheduler_ticks_ten_times(shared: SharedQueues) -> None:
    template = {"name": "work", "data": {"say": "tick"}, "opts": {"attempts": 2}}
    async with shared.works():
        await shared.ask("mail", "upsertJobScheduler", "tick", {"every": 100}, template)
        await ticked(shared, 10)
    await assert_in_step(shared, 100)
    assert (await shared.ask("mail", "getJobCounts", "failed"))["failed"] == 0


async def test_a_node_scheduler_with_a_pattern_and_a_limit_ticks_to_its_end(shared: SharedQueues) -> None:
    repeat = {"pattern": "* * * * * *", "tz": "Europe/Berlin", "limit": 3}
    async with shared.works():
        await shared.ask("mail", "upsertJobScheduler", "tick", repeat, {"name": "work", "data": {}})
        await ticked(shared, 3)
    assert len(set(shared.ran)) == 3
    assert (await shared.ask("mail", "getJobCounts", "delayed"))["delayed"] == 0


async def test_a_tick_that_fails_is_followed_by_the_next(shared: SharedQueues) -> None:
    async with shared.works():
        template = {"name": "work", "data": {"fail": "no luck"}}
        await shared.ask("mail", "upsertJobScheduler", "tick", {"every": 50}, template)

        async def failed() -> bool:
            return int((await shared.ask("mail", "getJobCounts", "failed"))["failed"]) >= 4

        assert await until(failed, "four failed ticks")


async def test_a_long_tick_does_not_hold_up_the_next(shared: SharedQueues) -> None:
    async with shared.works():
        template = {"name": "work", "data": {"sleep": 400}}
        await shared.ask("mail", "upsertJobScheduler", "tick", {"every": 100}, template)

        async def together() -> bool:
            return len(await shared.ask("mail", "getRanges", ["active"], 0, -1)) >= 3

        assert await until(together, "three ticks at a time")


@pytest.mark.parametrize(
    "fault", [ProxyFault.CUT_BEFORE, ProxyFault.SWALLOW, ProxyFault.CUT_REPLY], ids=lambda fault: fault.name
)
@pytest.mark.parametrize("verb", ["iterate", "turn"])
async def test_a_schedule_survives_lost_answers(
    node: Node, server: Server, verb: str, fault: ProxyFault
) -> None:
    with Proxy(server.port) as proxy:
        shared = await SharedQueues(node, server, proxy.url).open()
        await shared.ask("mail", "upsertJobScheduler", "tick", {"every": 60}, {"name": "work", "data": {}})
        async with shared.works():
            await ticked(shared, 2)
            rule = proxy.rule(runs_script(SCRIPTS[verb].sha), fault, times=3)
            await ticked(shared, 10)
        assert rule.met == 3
        await assert_in_step(shared, 60)
        await shared.close()


@pytest.mark.parametrize("node", [5], indirect=True)  # BullMQ 6 has none any more
async def test_a_repeatable_job_of_the_older_way_goes_on(shared: SharedQueues) -> None:
    async with shared.works():
        await shared.ask("mail", "add", "work", {"say": 1}, {"repeat": {"every": 100}})
        await shared.ask("mail", "add", "work", {"say": 2}, {"repeat": {"every": 100, "key": "a:b:c:d:e"}})
        await ticked(shared, 8)
    assert len(set(shared.ran)) == len(shared.ran)
    assert len({job_id.split(":")[1] for job_id in shared.ran}) == 2


# -- flows --------------------------------------------------------------------------------------------------


def flow(*, fails: bool, policy: dict[str, Any]) -> dict[str, Any]:
    """Three levels over three queues; the lowest job may fail, and what that means is the policy."""
    low = {"name": "work", "queueName": "ship", "data": {"fail": "too low"} if fails else {"say": "low"}}
    mid = {"name": "work", "queueName": "pay", "data": {"say": "mid"}, "opts": {"jobId": "mid", **policy}}
    top = {"name": "work", "queueName": "mail", "data": {"say": "top"}, "opts": {"jobId": "top"}}
    good = {"name": "work", "queueName": "ship", "data": {"say": "good"}, "opts": {"jobId": "good"}}
    low["opts"] = {"jobId": "low", **policy}
    return {**top, "children": [{**mid, "children": [low, good]}]}


async def test_a_node_flow_of_three_levels_completes(shared: SharedQueues) -> None:
    async with shared.works():
        await shared.node("addFlow", flows="flows", flow=flow(fails=False, policy={}))
        await shared.state("mail", "top", "completed")
    assert sorted(shared.ran[:2]) == ["good", "low"]
    assert shared.ran[2:] == ["mid", "top"]
    assert await shared.ask_job("mail", "top", "getChildrenValues") == {"bull:pay:mid": "mid"}
    values = await shared.ask_job("pay", "mid", "getChildrenValues")
    assert values == {"bull:ship:low": "low", "bull:ship:good": "good"}


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
async def test_a_node_flow_of_three_levels_fails_by_each_policy(
    shared: SharedQueues, policy: dict[str, Any]
) -> None:
    async with shared.works():
        await shared.node("addFlow", flows="flows", flow=flow(fails=True, policy=policy))
        await shared.state("ship", "low", "failed")
        await shared.state("ship", "good", "completed")
        if not policy:
            await shared.state("pay", "mid", "waiting-children")
            assert "mid" not in shared.ran
            return
        is_fatal = "failParentOnFailure" in policy
        for queue, job_id in (("pay", "mid"), ("mail", "top")):
            await shared.state(queue, job_id, "failed" if is_fatal else "completed")
    failed = await shared.ask_job("pay", "mid", "getFailedChildrenValues")
    if is_fatal:
        assert "mid" not in shared.ran
        job = await shared.node("fromId", queue="mail", id="top")
        assert job["failedReason"] == "child bull:pay:mid failed"
    elif "removeDependencyOnFailure" in policy:
        assert failed == {}
    else:
        assert failed == {"bull:ship:low": "too low"}


async def test_a_wide_flow_calls_its_parent_once(shared: SharedQueues) -> None:
    children = [{"name": "work", "queueName": QUEUES[n % 3], "data": {"say": n}} for n in range(60)]
    top = {"name": "work", "queueName": "mail", "data": {}, "opts": {"jobId": "top"}, "children": children}
    async with shared.works():
        await shared.node("addFlow", flows="flows", flow=top)
        await shared.state("mail", "top", "completed")
    assert shared.ran.count("top") == 1
    assert shared.ran[-1] == "top"
    values = await shared.ask_job("mail", "top", "getChildrenValues")
    assert sorted(values.values()) == list(range(60))


# -- children a job makes itself ----------------------------------------------------------------------------


async def test_a_handler_waits_for_children_it_made(shared: SharedQueues) -> None:
    values: list[Any] = []

    @shared.app.job("parent", queue="mail")
    async def parent(job: Any) -> Any:
        if job.job.starts == 1:
            mine = {"id": job.id, "queue": "bull:mail"}
            await shared.app.queue("pay").add("work", {"say": 7}, parent=mine)
            raise WaitForChildren
        values.append(await shared.flows("mail").children_values(job.id))
        return "done"

    async with shared.works():
        job = await shared.app.queue("mail").add("parent", {})
        await shared.state("mail", job.id, "completed")
    assert values == [{"bull:pay:1": 7}]
    found = await shared.inspector("mail").job(job.id)
    assert found is not None
    assert (found.starts, found.attempts_made) == (2, 1)


async def test_a_handler_that_waits_for_nobody_runs_again_at_once(shared: SharedQueues) -> None:
    starts: list[int] = []

    @shared.app.job("parent", queue="mail")
    async def parent(job: Any) -> Any:
        starts.append(job.job.starts)
        if len(starts) < 3:
            raise WaitForChildren
        return "done"

    async with shared.works():
        job = await shared.app.queue("mail").add("parent", {})
        await shared.state("mail", job.id, "completed")
    found = await shared.inspector("mail").job(job.id)
    assert found is not None
    assert (starts, found.attempts_made, found.state) == ([1, 2, 3], 1, JobState.COMPLETED)


# -- deduplication ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [{"sleep": 100}, {"sleep": 100, "fail": "no luck"}], ids=["done", "failed"])
async def test_node_may_add_again_what_corral_has_ended(shared: SharedQueues, data: dict[str, Any]) -> None:
    async def add() -> str:
        opts = {"deduplication": {"id": "same"}}
        return str((await shared.node("add", queue="mail", name="work", data=data, opts=opts))["id"])

    async with shared.works():
        first = await add()
        await until(lambda: _is_in(shared.ran, first), "it runs")
        assert await add() == first
        await shared.state("mail", first, "failed" if "fail" in data else "completed")
        assert await shared.ask("mail", "getDeduplicationJobId", "same") is None
        assert await add() != first


async def _is_in(ran: list[str], job_id: str) -> bool:
    return job_id in ran


async def test_a_time_that_node_set_is_left_to_run_out(shared: SharedQueues) -> None:
    opts = {"deduplication": {"id": "same", "ttl": 60_000}}
    async with shared.works():
        job = await shared.node("add", queue="mail", name="work", data={}, opts=opts)
        await shared.state("mail", job["id"], "completed")
        again = await shared.node("add", queue="mail", name="work", data={}, opts=opts)
    assert again["id"] == job["id"]
