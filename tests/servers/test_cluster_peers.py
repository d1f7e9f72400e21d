"""Who else works in a cluster: Node BullMQ, and programs written for the official Python client."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio.cluster import RedisCluster

from corral import Corral, JobContext
from corral.bullmq import FlowProducer, QueueEvents
from corral.bullmq import Queue as DropInQueue
from corral.bullmq import Worker as DropInWorker
from corral.errors import InvalidName, RedisConnectionError
from corral.store.client import Store
from tests.support.apps import ended, working
from tests.support.cluster import ClusterServer, cluster_of
from tests.support.node import node_binary, node_modules, why_no_node
from tests.support.servers import redis_server_binary
from tests.support.tls import make_certificates

pytestmark = pytest.mark.xdist_group("cluster")

PROGRAM = Path(__file__).parent / "node" / "cluster.js"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterServer]:
    with cluster_of(3) as cluster:
        yield cluster


@pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))
async def test_node_reaches_a_queue_by_its_tagged_name(cluster: ClusterServer) -> None:
    """Node adds to what Corral calls `orders`, and works on what Corral adds to `parcels`."""
    app = Corral(cluster.url)

    @app.job("pack", queue="orders")
    async def pack(job: JobContext) -> str:
        return f"packed {job.data['number']}"

    parcel = await app.queue("parcels").add("ship", {"number": 7})
    async with app, working(app):
        program = [str(node_binary()), str(PROGRAM), *(str(node.port) for node in cluster.nodes)]
        where = {"NODE_PATH": str(node_modules())}
        done = await asyncio.to_thread(
            subprocess.run, program, capture_output=True, text=True, timeout=60, env=where
        )
        assert done.returncode == 0, done.stderr
        packed = [f"packed {number}" for number in range(5)]
        assert json.loads(done.stdout) == {"packed": packed, "shipped": 7}
        assert (await ended(app.queue("parcels"), parcel.id)).result == "shipped 7"


@pytest.mark.skipif(redis_server_binary() is None, reason="redis-server is not installed")
async def test_every_node_is_spoken_to_by_tls_where_the_address_says_so(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    with cluster_of(3, redis_server_binary(), certificates=tmp_path) as cluster:
        names = [f"queue-{number}" for number in range(12)]
        assert {cluster.owner(f"{{{name}}}") for name in names} == {0, 1, 2}
        async with Corral(cluster.url) as app:
            for name in names:
                await app.queue(name).add("work", {})
            assert len(await app.queues()) == 12
        unauthenticated = Store(cluster.url.partition("&")[0])
        with pytest.raises(RedisConnectionError, match=r"rediss\+cluster://"):
            await unauthenticated.check_connection()
        await unauthenticated.close()


async def test_the_drop_in_takes_a_client_of_a_cluster(cluster: ClusterServer) -> None:
    client = RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, decode_responses=True)
    for given in (client, cluster.url):
        options = {"connection": given}
        events = QueueEvents("{letters}", options)
        await events.waitUntilReady()
        queue = DropInQueue("{letters}", options)
        worker = DropInWorker("{letters}", lambda job, token: asyncio.sleep(0, "sent"), options)
        job = await queue.add("send", {"to": "a@b.c"})
        assert await job.waitUntilFinished(events, 10_000) == "sent"
        # for commands of one's own there is a client of the same cluster
        assert await queue.client.hget(queue.toKey(job.id), "name") == "send"
        for each in (worker, events, queue):
            await each.close()
    await client.aclose()


async def test_the_drop_in_refuses_names_without_a_tag_and_says_so(cluster: ClusterServer) -> None:
    queue = DropInQueue("letters", {"connection": cluster.url})
    with pytest.raises(InvalidName, match=r"'bull:letters:wait'.*put a hash tag into the queue's name"):
        await queue.add("send", {})
    await queue.close()
    flows = FlowProducer({"connection": cluster.url})
    flow = {"name": "bill", "queueName": "{bills}", "children": [{"name": "sum", "queueName": "{sums}"}]}
    with pytest.raises(InvalidName, match="the same one for all queues that share a flow"):
        await flows.add(flow)
    await flows.close()
    for pattern in ("bull:letters:*", "bull:{bills}:*", "bull:{sums}:*"):
        assert not any(cluster.client(index).keys(pattern) for index in range(3))
