"""Every kind of connection that the official client accepts is read as an address."""

import asyncio
import ssl
from typing import Any

import pytest
import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import Sentinel

from corral.bullmq import Queue, QueueEvents, Worker
from corral.bullmq.connection import address_of
from corral.errors import InvalidOptions
from tests.dropin.factory import EventRecorder, Factory, nothing
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (None, "redis://localhost:6379/0"),
        ({}, "redis://localhost:6379/0"),
        ("redis://db:1/2", "redis://db:1/2"),
        ({"host": "db", "port": 6380, "db": 3}, "redis://db:6380/3"),
        ({"host": "::1", "password": "a/b:c@d"}, "redis://:a%2Fb%3Ac%40d@[::1]:6379/0"),
        ({"username": "me", "password": "x"}, "redis://me:x@localhost:6379/0"),
        ({"username": "me"}, "redis://me@localhost:6379/0"),
        ({"socket_timeout": 3, "retry": object()}, "redis://localhost:6379/0?socket_timeout=3"),
        ({"unix_socket_path": "/run/r s.sock", "db": 1}, "unix:///run/r%20s.sock?db=1"),
        (
            {"ssl": True, "ssl_cert_reqs": ssl.CERT_NONE, "ssl_ca_certs": None, "ssl_check_hostname": False},
            "rediss://localhost:6379/0?ssl_cert_reqs=none&ssl_check_hostname=False",
        ),
        (redis.Redis(host="db", socket_timeout=None, socket_connect_timeout=None), "redis://db:6379/0"),
        (redis.from_url("redis://u:p@db:1/4?socket_timeout=9"), "redis://u:p@db:1/4?socket_timeout=9.0"),
        (redis.Redis(unix_socket_path="/run/r.sock", socket_timeout=None), "unix:///run/r.sock?db=0"),
    ],
)
def test_a_connection_is_read_as_an_address(connection: Any, url: str) -> None:
    assert address_of(connection) == url


def test_a_sentinel_client_is_read_as_a_sentinel_address() -> None:
    watching = {"username": "w", "password": "x", "socket_timeout": 1}
    sentinel = Sentinel([("a", 26379), ("b", 26380)], sentinel_kwargs=watching)
    client = sentinel.master_for("shop", db=2, password="p/w", socket_timeout=None)
    assert address_of(client) == (
        "redis+sentinel://:p%2Fw@a:26379,b:26380/shop/2?sentinel_username=w&sentinel_password=x"
    )
    safe = Sentinel([("a", 1)]).master_for("shop", ssl=True, ssl_ca_certs="/etc/ca.pem", socket_timeout=None)
    assert address_of(safe).startswith("rediss+sentinel://a:1/shop/0?")
    assert "ssl_ca_certs=%2Fetc%2Fca.pem" in address_of(safe)
    with pytest.raises(InvalidOptions, match=r"give sentinel\.master_for\('shop'\)"):
        address_of(sentinel.slave_for("shop"))
    with pytest.raises(InvalidOptions, match=r"which does not name a service.*redis\+sentinel://"):
        address_of(sentinel)  # type: ignore[arg-type]


def test_a_cluster_client_is_read_as_a_cluster_address() -> None:
    nodes = [ClusterNode("a", 7000), ClusterNode("b", 7001)]
    client = RedisCluster(startup_nodes=nodes, username="me", password="x", socket_timeout=None)
    assert address_of(client).startswith("redis+cluster://me:x@a:7000,b:7001")
    safe = RedisCluster(host="a", port=7000, ssl=True, ssl_ca_certs="/etc/ca.pem")
    assert address_of(safe).startswith("rediss+cluster://a:7000?")
    assert "ssl_ca_certs=%2Fetc%2Fca.pem" in address_of(safe)


def test_tls_of_a_client_is_kept() -> None:
    client = redis.Redis(host="db", ssl=True, ssl_ca_certs="/etc/ca.pem", ssl_cert_reqs="optional")
    assert address_of(client).startswith("rediss://db:6379/0?")
    assert "ssl_ca_certs=%2Fetc%2Fca.pem" in address_of(client)
    assert "ssl_cert_reqs=optional" in address_of(client)


@pytest.mark.parametrize("connection", [5, ["db"], {"credential_provider": object()}])
def test_an_invalid_connection_is_refused_with_the_valid_kinds(connection: Any) -> None:
    with pytest.raises(InvalidOptions, match="give host, port, db, username and password, a URL, or"):
        address_of(connection)


@pytest.mark.parametrize("kind", ["dict", "url", "client"])
async def test_every_kind_of_connection_works(server: Server, kind: str) -> None:
    client = redis.Redis(host="127.0.0.1", port=server.port)
    connection: Any = {
        "dict": {"host": "127.0.0.1", "port": server.port}, "url": server.url, "client": client,
    }[kind]  # fmt: skip
    queue, events = Queue("mail", {"connection": connection}), QueueEvents("mail", {"connection": connection})
    await events.waitUntilReady()
    worker = Worker("mail", nothing, {"connection": connection})
    job = await queue.add("send", {})
    assert await job.waitUntilFinished(events, 10_000) is None
    for each in (worker, events, queue):
        await each.close()
    assert await client.exists("bull:mail:1") == 1, "a client passed as connection stays open"
    await client.aclose()


async def test_the_client_of_a_queue_uses_the_same_server(factory: Factory) -> None:
    queue = factory.queue(prefix="shop")
    await queue.add("send", {"a": 1})
    assert await queue.client.llen(queue.keys["wait"]) == 1
    assert await queue.client.hget(queue.toKey("1"), "name") == "send"
    assert await (await queue.waitUntilReady()).ping() is True


def test_one_queue_is_used_from_many_event_loops(server: Server) -> None:
    queue = Queue("mail", {"connection": server.url})
    for number in range(3):
        job = asyncio.run(queue.add("send", number))
        assert job.id == str(number + 1)
    assert asyncio.run(queue.count()) == 3


async def test_a_worker_waits_for_a_server_that_is_not_up_yet(factory: Factory, server: Server) -> None:
    job = await factory.queue().add("send", {})
    events = await factory.events()
    with Proxy(server.port) as proxy:
        proxy.go_away()
        worker = Worker("mail", nothing, {"connection": proxy.url})
        recorded = EventRecorder(worker, "error", "completed")
        await recorded.wait_for("error")
        assert recorded.names() == ["error"]
        proxy.come_back()
        assert await job.waitUntilFinished(events, 10_000) is None
        await worker.close()


async def test_a_worker_goes_on_after_an_outage(factory: Factory, server: Server) -> None:
    queue, events = factory.queue(), await factory.events()
    with Proxy(server.port) as proxy:
        worker = Worker("mail", nothing, {"connection": proxy.url})
        recorded = EventRecorder(worker, "error")
        await (await queue.add("send", {})).waitUntilFinished(events, 10_000)
        proxy.go_away()
        job = await queue.add("send", {})
        await recorded.wait_for("error")
        proxy.come_back()
        assert await job.waitUntilFinished(events, 10_000) is None
        await worker.close()


async def test_a_worker_is_closed_during_an_outage(factory: Factory, server: Server) -> None:
    with Proxy(server.port) as proxy:
        proxy.go_away()
        worker = Worker("mail", nothing, {"connection": proxy.url})
        await asyncio.sleep(0.02)
        await asyncio.wait_for(worker.close(), 5)
        assert worker.closed
