"""Groups: jobs of many tenants take turns, where the protocol has groups; others refuse them."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from corral import Corral, InvalidOptions, JobContext, JobFilter, JobState, Transient, Unsupported, bullmq
from corral.core.ports import Profile
from corral.protocols import protocol_named
from tests.support.apps import ended, working
from tests.support.polling import becomes_true, outlast, until
from tests.support.worker_process_main import JOB
from tests.support.worker_processes import worker_pool

GROUPED = pytest.mark.parametrize("protocol", ["bullmq", "bridgemq"])


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


def recorder(app: Corral, protocol: str, **options: Any) -> tuple[Any, list[str]]:
    order: list[str] = []

    @app.job("tool", protocol=protocol, **options)
    async def tool(tenant: str, n: int) -> None:
        order.append(tenant)

    return tool, order


async def test_a_protocol_without_groups_refuses_them(app: Corral) -> None:
    with pytest.raises(Unsupported, match="protocol 'streams' has no groups, so group='a' cannot be kept"):
        await app.queue(protocol="streams").add("tool", {}, group="a")


@GROUPED
@pytest.mark.parametrize(
    "options", [{"group": ""}, {"group": "a b"}, {"group": 5}, {"group": "a", "priority": 9}]
)
async def test_a_group_that_cannot_be_is_refused(app: Corral, protocol: str, options: Any) -> None:
    queue = app.queue(protocol=protocol)
    with pytest.raises(InvalidOptions):
        await queue.add("tool", {}, **{"group": "a", **options})
    assert (await queue.counts())[JobState.WAITING] == 0


@GROUPED
async def test_groups_take_turns_and_each_keeps_its_order(app: Corral, protocol: str) -> None:
    tool, order = recorder(app, protocol)
    await tool.options(group="large").add_many([tool.call("large", n) for n in range(30)])
    for tenant in ("b", "c"):
        await tool.options(group=tenant).add_many([tool.call(tenant, n) for n in range(3)])
    assert (await tool.queue.counts())[JobState.WAITING] == 36
    async with working(app, concurrency=1):
        assert await becomes_true(lambda: len(order) == 36, 30)
    assert Counter(order[:9]) == {"large": 3, "b": 3, "c": 3}
    counts = await tool.queue.counts()
    assert (counts[JobState.WAITING], counts[JobState.ACTIVE]) == (0, 0)


@GROUPED
async def test_jobs_without_a_group_and_those_with_one_take_turns(app: Corral, protocol: str) -> None:
    tool, order = recorder(app, protocol)
    await tool.options(group="a").add_many([tool.call("a", n) for n in range(20)])
    await tool.add_many([tool.call("none", n) for n in range(20)])
    async with working(app, concurrency=1):
        assert await becomes_true(lambda: len(order) == 40, 30)
    assert 4 <= order[:10].count("a") <= 6


@GROUPED
async def test_so_many_jobs_of_a_group_run_at_a_time(app: Corral, protocol: str) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @app.job("tool", protocol=protocol)
    async def tool(tenant: str) -> None:
        running[tenant] += 1
        most[tenant] = max(most[tenant], running[tenant])
        await asyncio.sleep(0.01)
        running[tenant] -= 1

    handles = []
    for tenant in ("a", "b"):
        handles += await tool.options(group=tenant).add_many([tenant] * 10)
    async with working(app, concurrency=10, group_concurrency=2):
        jobs = [await ended(tool.queue, handle.id) for handle in handles]
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert most == {"a": 2, "b": 2}


@GROUPED
async def test_groups_behind_many_that_are_full_are_found_at_once(app: Corral, protocol: str) -> None:
    """One claim looks at a bounded number of groups; the next goes on, without waiting."""
    tool, order = recorder(app, protocol)
    for tenant in range(130):
        await tool.options(group=f"t{tenant}").add_many([tool.call(f"t{tenant}", n) for n in range(2)])
    async with working(app, concurrency=200, group_concurrency=1):
        assert await becomes_true(lambda: len(order) == 260, 30), f"{len(order)} of 260 have run"


@GROUPED
async def test_a_killed_worker_leaves_no_place_taken(app: Corral, url: str, protocol: str) -> None:
    queue = app.queue(protocol=protocol)
    profile: dict[str, Any] = {"lock_ms": 600, "recover_ms": 200, "group_concurrency": 2}
    if protocol == "bridgemq":
        profile["extra"] = {"heartbeat_ms": 600}
    data = {"how": "nap", "seconds": 600, "is_announced": True}
    ids = await queue.add_many([(JOB, {**data, "number": n}) for n in range(6)], group="a")
    with worker_pool(url, protocol, 1, concurrency=5, **profile) as pool:
        [process] = pool.processes
        assert await becomes_true(lambda: len(process.jobs_reported("began")) == 2, 30)
        assert (await queue.counts())[JobState.WAITING] == 4
        process.kill()

    @app.job(JOB, protocol=protocol)
    async def run(job: JobContext) -> int:
        number: int = job.data["number"]
        return number

    async with working(app, concurrency=5, **profile):
        jobs = [await ended(queue, job_id, 30) for job_id in ids]
    assert [job.result for job in jobs] == list(range(6))
    assert await app.store().call("KEYS", "*group*active*") == []


@GROUPED
async def test_a_job_without_a_handler_does_not_stop_its_group(app: Corral, protocol: str) -> None:
    tool, order = recorder(app, protocol)
    strange = await tool.queue.add("strange", {"tenant": "a", "n": 0}, group="a")
    await tool.options(group="a").add_many([tool.call("a", n) for n in range(3)])
    async with working(app, group_concurrency=1):
        assert await becomes_true(lambda: len(order) == 3, 30)
        job = await tool.queue.job(strange.id)
    assert job is not None
    assert job.state in (JobState.WAITING, JobState.DELAYED)


async def test_what_the_drop_in_calls_a_group_is_left_to_node(app: Corral, url: str) -> None:
    """As in Node, which stores such an option and does nothing with it."""
    queue = bullmq.Queue("mail", {"connection": url})
    await queue.add("send", {}, {"group": {"id": "a"}})
    await queue.add("send", {}, {"group": "a"})
    await queue.close()
    assert await app.store().call("LLEN", "bull:mail:wait") == 2


@GROUPED
async def test_a_delayed_a_retried_and_a_replayed_job_waits_in_its_group(app: Corral, protocol: str) -> None:
    fails = True

    @app.job("tool", protocol=protocol, attempts=2, backoff=1)
    async def tool(n: int) -> int:
        if fails:
            raise Transient("again")
        return n

    handle = await tool.options(group="a", delay=1).add(5)
    async with working(app):
        assert (await ended(tool.queue, handle.id)).state is JobState.DEAD
    fails = False
    assert await tool.queue.replay([handle.id]) == [handle.id]
    grouped = [job.id for job in await tool.queue.jobs(JobState.WAITING)]
    assert grouped == [handle.id]
    job = await tool.queue.job(handle.id)
    assert job is not None
    assert (job.state, job.options.group) == (JobState.WAITING, "a")
    async with working(app):
        assert (await ended(tool.queue, handle.id)).result == 5


@GROUPED
async def test_counts_search_removal_and_drain_know_what_waits_in_groups(app: Corral, protocol: str) -> None:
    tool, order = recorder(app, protocol)
    handles = await tool.options(group="a").add_many([tool.call("a", n) for n in range(4)])
    handles += await tool.options(group="b").add_many([tool.call("b", n) for n in range(2)])
    queue = tool.queue
    assert (await queue.counts())[JobState.WAITING] == 6
    found = await queue.search(JobFilter(states=frozenset({JobState.WAITING})))
    assert sorted(job.id for job in found) == sorted(handle.id for handle in handles)
    assert await queue.remove([handles[0].id]) == [handles[0].id]
    assert await queue.cancel([handles[1].id]) == [handles[1].id]
    assert (await queue.counts())[JobState.WAITING] == 4
    assert await queue.job(handles[0].id) is None
    await queue.pause()
    assert (await queue.counts())[JobState.WAITING] == 4
    await queue.resume()
    async with working(app, concurrency=1):
        assert await becomes_true(lambda: len(order) == 4, 30)
    assert Counter(order) == {"a": 2, "b": 2}
    await tool.options(group="c").add_many([tool.call("c", n) for n in range(4)])
    await queue.drain()
    assert (await queue.counts())[JobState.WAITING] == 0


async def test_an_obliterated_queue_leaves_no_key_of_a_group(app: Corral) -> None:
    tool, _ = recorder(app, "bullmq")
    await tool.options(group="a").add_many([tool.call("a", n) for n in range(4)])
    await tool.queue.obliterate()
    assert await app.store().call("KEYS", "*group*") == []


@GROUPED
async def test_a_paused_queue_runs_no_grouped_job_until_it_is_resumed(app: Corral, protocol: str) -> None:
    tool, order = recorder(app, protocol)
    await tool.queue.pause()
    async with working(app):
        await tool.options(group="a").add("a", 1)
        await outlast(0.1)
        assert order == []
        await tool.queue.resume()
        assert await becomes_true(lambda: order == ["a"])


@GROUPED
async def test_an_idle_worker_is_woken_by_a_grouped_job(app: Corral, protocol: str) -> None:
    tool, order = recorder(app, protocol)
    async with working(app):
        await tool.options(group="a").add("a", 1)
        assert await becomes_true(lambda: len(order) == 1, 30)
        await tool.options(group="a").add("a", 2)
        assert await becomes_true(lambda: len(order) == 2, 30)


@GROUPED
async def test_many_small_tenants_are_done_before_a_large_one(app: Corral, protocol: str) -> None:
    tool, order = recorder(app, protocol)
    await tool.options(group="large").add_many([tool.call("large", n) for n in range(2000)])
    for tenant in range(20):
        await tool.options(group=f"t{tenant}").add_many([tool.call("small", n) for n in range(10)])
    async with working(app, concurrency=10):
        await until(lambda: _has(order, 2200), "all have run", 30)
    last = max(position for position, tenant in enumerate(order) if tenant == "small")
    assert last < 300, f"the last small one ran as number {last}"


@GROUPED
async def test_a_claim_costs_the_same_with_few_groups_and_with_many(app: Corral, protocol: str) -> None:
    """By the number of commands that the server runs for one claim."""
    costs = []
    for groups in (10, 10_000):
        store, queue = app.store(), app.queue(f"q{groups}", protocol)
        await queue.add_many(("tool", {}, {"group": f"t{n % groups}"}) for n in range(max(groups, 200)))
        profile = Profile(name="w", extra={"group_concurrency": 100})
        broker = protocol_named(protocol).bind(replace(app.binding(queue), profile=profile)).broker
        await broker.turn([], 1)
        await store.call("CONFIG", "RESETSTAT")
        for _ in range(20):
            assert len((await broker.turn([], 1)).claims) == 1
        stats = (await store.call("INFO", "commandstats")).decode()
        costs.append(sum(int(calls) for calls in re.findall(r"calls=(\d+)", stats)))
        await broker.close()
    assert costs[0] == pytest.approx(costs[1], rel=0.1)


@GROUPED
async def test_a_schedule_takes_no_group(app: Corral, protocol: str) -> None:
    @app.job("tool", protocol=protocol)
    async def tool() -> None: ...

    with pytest.raises((Unsupported, InvalidOptions), match="group='a'"):
        await app.schedule(tool, cron="0 3 * * *", group="a").start()


async def _has(order: list[str], count: int) -> bool:
    return len(order) == count
