"""A cluster of three masters: queues by hash tag, slots that move while jobs run, nothing lost or doubled."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from corral import Corral, JobContext, JobState, Queue
from corral.core.job import Job
from corral.core.ports import Flow
from corral.errors import (
    InvalidName,
    InvalidOptions,
    RedisClusterError,
    RedisConnectionError,
    RedisResponseError,
)
from corral.protocols import protocol_names
from corral.protocols.base import Binding
from corral.protocols.bullmq.flows import BullmqFlows
from corral.store.client import Reconnect, Store
from corral.store.cluster import slot_of
from corral.store.scripts import Script
from tests.support.apps import ended, working
from tests.support.cluster import ClusterServer, cluster_of
from tests.support.polling import becomes_true, outlast, until
from tests.support.servers import Server, redis6_binary, redis_server_binary, valkey_binary

pytestmark = pytest.mark.xdist_group("cluster")

TAGGED = {"bridgemq": "{bridge}", "streams": "{shop}"}
"""Namespaces that keep a protocol's keys in one slot; the BullMQ protocol's queues have tags of their own."""
WRITE = Script("write", "return redis.call('SET', KEYS[1], ARGV[1])")


SERVERS = [
    pytest.param(valkey_binary(), id="valkey-9"),
    *(
        pytest.param(binary, id=name, marks=pytest.mark.faults)
        for name, binary in (("redis-7", redis_server_binary()), ("redis-6.2", redis6_binary()))
        if binary
    ),
]


@pytest.fixture(scope="module", params=SERVERS)
def three_masters(request: pytest.FixtureRequest) -> Iterator[ClusterServer]:
    with cluster_of(3, request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(three_masters: ClusterServer) -> ClusterServer:
    """Those, emptied."""
    three_masters.flush()
    return three_masters


@pytest.fixture
async def app(cluster: ClusterServer) -> AsyncIterator[Corral]:
    async with Corral(cluster.url) as app:
        yield app


@pytest.fixture
async def store(cluster: ClusterServer) -> AsyncIterator[Store]:
    store = Store(cluster.url)
    yield store
    await store.close()


def others(cluster: ClusterServer, key: str) -> list[int]:
    """The nodes that do not serve the key."""
    owner = cluster.owner(key)
    return [index for index in range(len(cluster.nodes)) if index != owner]


async def completed(app: Corral, queue: str) -> int:
    return (await app.queue(queue).counts())[JobState.COMPLETED]


async def all_completed(app: Corral, queue: str, count: int) -> bool:
    async def are_completed() -> bool:
        return await completed(app, queue) >= count

    return await until(are_completed, f"{count} jobs completed", 60)


# -- a slot moves ------------------------------------------------------------------------------------------


async def carry(cluster: ClusterServer, key: str, target: int, before_the_end: float = 0.0) -> int:
    """Move the key's slot, key by key; how many keys went over."""
    slot, source = await asyncio.to_thread(cluster.begin_move, key, target)
    carried = 0
    while step := await asyncio.to_thread(cluster.carry_some, slot, source, target):
        carried += step
    await asyncio.sleep(before_the_end)
    while step := await asyncio.to_thread(cluster.carry_some, slot, source, target):
        carried += step
    await asyncio.to_thread(cluster.end_move, slot, target)
    return carried


@pytest.mark.parametrize("protocol", protocol_names())
async def test_a_slot_that_moves_while_jobs_run_costs_no_job_and_doubles_none(
    cluster: ClusterServer, protocol: str
) -> None:
    runs: Counter[int] = Counter()
    app = Corral(cluster.url, protocol=protocol, namespaces=TAGGED)
    queue = app.queue("{mail}" if protocol == "bullmq" else None)

    @app.job("embed" if protocol == "streams" else "count", queue=queue.name)
    async def count(job: JobContext) -> int:
        await asyncio.sleep(0.002)
        runs[job.data["number"]] += 1
        return int(job.data["number"])

    tag = "{mail}" if protocol == "bullmq" else TAGGED[protocol]
    first, second = others(cluster, tag)
    await count.add_many([{"number": number} for number in range(2000)])
    async with app, working(app, concurrency=20):
        carried = []
        for target in (first, second, first):
            least = 300 * (len(carried) + 1)
            assert await becomes_true(lambda least=least: sum(runs.values()) >= least, 60)
            carried.append(await carry(cluster, tag, target))
        assert sum(runs.values()) < 2000, "the jobs were over before the slot had moved three times"
        assert await becomes_true(lambda: sum(runs.values()) >= 2000, 60)
        assert await all_settled(queue)
        assert min(carried) >= 2000
        assert cluster.owner(tag) == first
        assert runs == Counter(range(2000))
        counts = await queue.counts()
        assert not any(counts.get(state) for state in (JobState.DEAD, JobState.ACTIVE, JobState.WAITING))


async def all_settled(queue: Queue) -> bool:
    async def are_settled() -> bool:
        return not (await queue.counts())[JobState.ACTIVE]

    return await until(are_settled)


@pytest.mark.parametrize("three_masters", SERVERS[:1], indirect=True)
async def test_a_slot_that_the_server_moves_whole_costs_no_job_and_doubles_none(
    app: Corral, cluster: ClusterServer
) -> None:
    runs: Counter[int] = Counter()

    @app.job("count", queue="{whole}")
    async def count(job: JobContext) -> None:
        await asyncio.sleep(0.002)
        runs[job.data["number"]] += 1

    target = others(cluster, "{whole}")[0]
    await count.add_many([{"number": number} for number in range(1000)])
    async with working(app, concurrency=20):
        await asyncio.to_thread(cluster.move_at_once, "{whole}", target)
        assert sum(runs.values()) < 1000
        assert await all_completed(app, "{whole}", 1000)
    assert runs == Counter(range(1000))


async def test_a_worker_that_waits_is_woken_where_the_slot_has_gone(
    app: Corral, cluster: ClusterServer
) -> None:
    @app.job("echo", queue="{idle}")
    async def echo(job: JobContext) -> str:
        return "echoed"

    target = others(cluster, "{idle}")[0]
    async with working(app, concurrency=2):
        await ended(echo.queue, (await echo.add()).id)
        await carry(cluster, "{idle}", target)
        began = time.monotonic()
        job = await ended(echo.queue, (await echo.add()).id)
        assert job.result == "echoed"
        assert time.monotonic() - began < 4, "it was found by the end of a block, not by its marker"
        assert len(await echo.queue.workers()) == 1


async def test_a_tail_of_events_goes_on_where_the_slot_has_gone(app: Corral, cluster: ClusterServer) -> None:
    queue = app.queue("{events}")
    seen: list[str] = []

    async def tail() -> None:
        async for event in queue.events.tail("-"):
            seen.append(event.job_id)

    tailing = asyncio.create_task(tail())
    first = (await queue.add("work", {})).id
    await carry(cluster, "{events}", others(cluster, "{events}")[0])
    second = (await queue.add("work", {})).id
    assert await becomes_true(lambda: {first, second} <= set(seen), 20)
    tailing.cancel()


async def test_a_job_is_added_once_the_move_is_over_and_nothing_of_it_before(
    app: Corral, cluster: ClusterServer
) -> None:
    queue = app.queue("{late}")
    await queue.add("work", {})
    target = others(cluster, "{late}")[0]
    slot, source = cluster.begin_move("{late}", target)
    cluster.carry_some(slot, source, target, count=2)
    adding = asyncio.create_task(queue.add("work", {}, id="the-second"))
    await outlast(0.2)
    assert not adding.done()
    assert not any(cluster.client(index).keys("*the-second*") for index in range(3))
    while cluster.carry_some(slot, source, target):
        pass
    cluster.end_move(slot, target)
    assert (await adding).id == "the-second"
    assert (await queue.counts())[JobState.WAITING] == 2


async def test_a_move_that_never_ends_is_said_after_the_time_of_an_answer(cluster: ClusterServer) -> None:
    store = Store(cluster.url, reply_timeout=0.2)
    target = others(cluster, "{stuck}")[0]
    await store.call("SET", "{stuck}:here", "x")
    slot, _ = cluster.begin_move("{stuck}", target)
    with pytest.raises(RedisClusterError, match=r"redis\+cluster://"):
        await store.run(WRITE, ["{stuck}:here", "{stuck}:there"], ["y"])
    # single keys are served all the same: keys that have moved are read at their new node
    assert await store.call("GET", "{stuck}:here") == b"x"
    assert await store.call("SET", "{stuck}:new", "z") == b"OK"
    assert cluster.client(target).execute_command("CLUSTER COUNTKEYSINSLOT", slot) == 1
    await carry_rest(cluster, slot, target)
    assert await store.call("GET", "{stuck}:here") == b"x"
    await store.close()


async def test_a_script_is_turned_away_whole_while_keys_it_does_not_declare_have_gone_ahead(
    cluster: ClusterServer,
) -> None:
    """What it declares is all there; without one more key it would start, write, and break off."""
    store = Store(cluster.url, reply_timeout=0.2)
    await store.pipe([("SET", f"{{half}}:{name}", "old") for name in "abc"])
    half = Script("half", "redis.call('SET', KEYS[1], 'new'); return redis.call('GET', ARGV[1])")
    target = others(cluster, "{half}")[0]
    slot, source = cluster.begin_move("{half}", target)
    cluster.carry(["{half}:c"], source, target)
    with pytest.raises(RedisClusterError):
        await store.run(half, ["{half}:a", "{half}:b"], ["{half}:c"])
    assert await store.call("GET", "{half}:a") == b"old"
    await carry_rest(cluster, slot, target)
    assert await store.run(half, ["{half}:a", "{half}:b"], ["{half}:c"]) == b"old"
    assert await store.call("GET", "{half}:a") == b"new"
    await store.close()


async def carry_rest(cluster: ClusterServer, slot: int, target: int) -> None:
    source = next(
        index
        for index in range(len(cluster.nodes))
        if index != target and cluster.client(index).execute_command("CLUSTER COUNTKEYSINSLOT", slot)
    )
    while cluster.carry_some(slot, source, target):
        pass
    cluster.end_move(slot, target)


@pytest.mark.faults
async def test_workers_go_on_at_the_replica_when_a_master_is_killed() -> None:
    """What the dead master had not sent on is done again, and nothing else."""
    with cluster_of(3, None, "--repl-diskless-sync-delay", "0") as cluster:
        runs: Counter[int] = Counter()
        app = Corral(cluster.url)

        @app.job("count", queue="{mail}")
        async def count(job: JobContext) -> None:
            await asyncio.sleep(0.05)
            runs[job.data["number"]] += 1

        owner = cluster.owner("{mail}")
        with cluster.replica_of(owner) as replica:
            await count.add_many([{"number": number} for number in range(1000)])
            assert await becomes_true(lambda: cluster.has_all(replica, owner), 20)
            locks = {"lock_ms": 3000, "recover_ms": 500, "max_stalls": 3}
            async with app, working(app, concurrency=20, reconnect=Reconnect(most_ms=500), **locks):
                assert await becomes_true(lambda: len(runs) >= 250, 30)
                cluster.nodes[owner].process.kill()
                assert len(runs) < 1000
                assert await becomes_true(lambda: len(runs) == 1000, 60)
                assert await all_settled(app.queue("{mail}"))
                await app.store().check_connection()
                assert [queue.name for queue in await app.queues()] == ["{mail}"]
            assert sum(runs.values()) < 1250


# -- names -------------------------------------------------------------------------------------------------


async def test_queues_are_found_on_every_master(app: Corral, cluster: ClusterServer) -> None:
    names = [f"{{queue-{number}}}" for number in range(12)]
    assert {cluster.owner(name) for name in names} == {0, 1, 2}
    for name in names:
        await app.queue(name).add("work", {})
    assert [queue.name for queue in await app.queues()] == sorted(names)


async def test_a_queue_without_a_tag_gets_one_around_its_name(app: Corral, cluster: ClusterServer) -> None:
    @app.job("echo", queue="mail")
    async def echo(job: JobContext) -> str:
        return "echoed"

    assert echo.queue.name == app.queue("{mail}").name == "{mail}"
    async with working(app, queues=["mail"]):
        await ended(app.queue("mail"), (await echo.add()).id)
    assert cluster.client(cluster.owner("{mail}")).exists("bull:{mail}:meta")
    assert [queue.name for queue in await app.queues()] == ["{mail}"]


async def test_a_namespace_with_a_tag_leaves_the_names_alone(cluster: ClusterServer) -> None:
    async with Corral(cluster.url, namespaces={"bullmq": "{shop}"}) as app:
        await app.queue("mail").add("work", {})
        await app.queue("bills").add("work", {})
        assert [queue.name for queue in await app.queues()] == ["bills", "mail"]
        assert cluster.client(cluster.owner("{shop}")).exists("{shop}:mail:meta")


@pytest.mark.parametrize("protocol", TAGGED)
async def test_a_protocol_that_needs_a_tag_in_its_namespace_says_so(app: Corral, protocol: str) -> None:
    with pytest.raises(
        InvalidName, match=rf"no hash tag to choose it.*namespaces={{'{protocol}': '{{shop}}'}}"
    ):
        app.queue(protocol=protocol)
    assert await app.queues(protocol) == []


async def test_keys_of_several_slots_are_refused_and_nothing_is_written(
    store: Store, cluster: ClusterServer
) -> None:
    with pytest.raises(InvalidName, match=r"'foo' and 'bar' lie in different slots.*hash tag"):
        await store.run(WRITE, ["foo", "bar"], ["x"])
    with pytest.raises(InvalidName, match=r"'foo' and 'bar' lie in different slots.*hash tag"):
        await store.pipe([("SET", "foo", "x"), ("SET", "bar", "x")])
    assert [cluster.client(index).dbsize() for index in range(3)] == [0, 0, 0]


async def test_a_flow_over_several_slots_is_refused_and_nothing_is_written(
    store: Store, cluster: ClusterServer
) -> None:
    flows = BullmqFlows(Binding(store, "{one}", "bull", lambda: 1_700_000_000_000))
    parent, child = (Job(name="work", data={}, queue=name) for name in ("{one}", "{two}"))
    assert slot_of("{one}") != slot_of("{two}")
    with pytest.raises(InvalidName, match="the same one for all queues that share a flow"):
        await flows.add(Flow(parent, (Flow(child),)))
    assert [cluster.client(index).dbsize() for index in range(3)] == [0, 0, 0]
    sibling = Job(name="work", data={}, queue="two.{one}")
    added = await flows.add(Flow(parent, (Flow(sibling),)))
    assert added.children[0].job.id


# -- contact -----------------------------------------------------------------------------------------------


async def test_one_node_that_answers_is_enough_to_find_the_others(cluster: ClusterServer) -> None:
    last = cluster.nodes[2].port
    store = Store(f"redis+cluster://127.0.0.1:1,127.0.0.1:{last}")
    await store.check_connection()
    for number in range(20):
        assert await store.call("SET", f"key-{number}", number) == b"OK"
    await store.close()


async def test_a_cluster_with_a_dead_master_answers_by_the_others() -> None:
    with cluster_of(3) as cluster:
        store = Store(cluster.url)
        await store.check_connection()
        for node in sorted(cluster.nodes, key=lambda node: node.port)[:2]:
            node.process.kill()
            node.process.wait()
        await store.check_connection()
        with pytest.raises(RedisConnectionError):
            await store.call("CLIENT", "LIST")
        await store.close()


async def test_a_single_server_is_no_cluster_and_that_is_said(server: Server) -> None:
    store = Store(f"redis+cluster://127.0.0.1:{server.port}")
    with pytest.raises(RedisResponseError, match="it is no cluster: write redis://"):
        await store.check_connection()
    await store.close()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis+cluster://a:6379/3", "no other database than 0"),
        ("redis+cluster://a:6379,:1", "names no host"),
        ("redis+cluster://a:x", "'x' is not a port"),
        ("redis+swarm://a", "'redis\\+swarm' is no scheme"),
        ("redis+cluster://a?sentinel_password=x", "'sentinel_password' is no option"),
    ],
)
def test_a_wrong_address_of_a_cluster_is_refused_by_name(url: str, complaint: str) -> None:
    with pytest.raises(InvalidOptions, match=complaint):
        Store(url)
