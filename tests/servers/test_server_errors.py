"""What a real server says when it cannot serve becomes an error of our own."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from redis import exceptions as redis_errors

from corral.errors import (
    CorralError,
    RedisBusyError,
    RedisClusterError,
    RedisError,
    RedisLoadingError,
    RedisOutOfMemoryError,
    RedisPersistenceError,
    RedisReadOnlyError,
    RedisResponseError,
    RedisUnblockedError,
)
from corral.store.client import Store
from corral.store.scripts import Script
from tests.support.cluster import cluster_of
from tests.support.polling import until
from tests.support.servers import Server, free_port, start_valkey

WRITE = Script("write", "return redis.call('SET', KEYS[1], ARGV[1])")
ENDLESS = Script("endless", "while true do end")


async def assert_refused_each_way(store: Store, fault: type[RedisError]) -> None:
    """A plain command, a script, and a pipe all raise `fault`, which names the server, and write nothing."""
    for attempt in (
        store.call("SET", "key", "value"),
        store.run(WRITE, ["key"], ["value"]),
        store.pipe([["SET", "key", "value"]]),
    ):
        with pytest.raises(fault) as caught:
            await attempt
        assert type(caught.value) is fault
        assert store.address in str(caught.value)


async def full(store: Store) -> None:
    await store.call("CONFIG", "SET", "maxmemory", "1")
    await assert_refused_each_way(store, RedisOutOfMemoryError)
    await store.call("CONFIG", "SET", "maxmemory", "0")


async def replica(store: Store) -> None:
    await store.call("REPLICAOF", "127.0.0.1", free_port())
    await assert_refused_each_way(store, RedisReadOnlyError)
    await store.call("REPLICAOF", "NO", "ONE")


async def replica_without_its_primary(store: Store) -> None:
    await store.call("CONFIG", "SET", "replica-serve-stale-data", "no")
    await store.call("REPLICAOF", "127.0.0.1", free_port())
    with pytest.raises(RedisReadOnlyError, match="MASTER"):
        await store.call("GET", "key")
    await store.call("REPLICAOF", "NO", "ONE")


async def too_few_replicas(store: Store) -> None:
    await store.call("CONFIG", "SET", "min-replicas-to-write", "1")
    await assert_refused_each_way(store, RedisPersistenceError)
    await store.call("CONFIG", "SET", "min-replicas-to-write", "0")


async def unblocked(store: Store) -> None:
    line = store.blocking_connection("waiting", 5)
    number = await line.call("CLIENT", "ID")
    waiting = asyncio.create_task(line.call("BLPOP", "nothing", 5))
    await until(lambda: store.call("CLIENT", "UNBLOCK", number, "ERROR"))
    with pytest.raises(RedisUnblockedError, match="CLIENT UNBLOCK"):
        await waiting


async def unblocked_by_a_failover(store: Store) -> None:
    line = store.blocking_connection("waiting", 5)
    number = await line.call("CLIENT", "ID")
    waiting = asyncio.create_task(line.call("BLPOP", "nothing", 5))

    async def is_blocked() -> bool:
        return b"flags=b" in await store.call("CLIENT", "LIST", "ID", number)

    await until(is_blocked)
    await store.call("REPLICAOF", "127.0.0.1", free_port())
    with pytest.raises(RedisUnblockedError):
        await waiting
    await store.call("REPLICAOF", "NO", "ONE")


async def busy(store: Store) -> None:
    await store.call("CONFIG", "SET", "busy-reply-threshold", "10")
    other = Store(store.url)  # calls behind the endless script on its own connection get no reply
    running = asyncio.create_task(other.run(ENDLESS, [], []))
    found: list[RedisError] = []

    async def is_busy() -> bool:
        try:
            await store.call("GET", "key")
        except RedisError as fault:
            found.append(fault)
        return bool(found)

    await until(is_busy)
    assert type(found[0]) is RedisBusyError
    await store.call("SCRIPT", "KILL")
    with pytest.raises(RedisResponseError, match="killed"):
        await running
    await other.close()


async def forgotten_script(store: Store) -> None:
    assert await store.run(WRITE, ["key"], ["1"]) == b"OK"
    await store.call("SCRIPT", "FLUSH")
    assert await store.run(WRITE, ["key"], ["2"]) == b"OK"
    with pytest.raises(RedisResponseError, match=r"(?i)script"):
        await store.call("EVALSHA", "0" * 40, 0)


async def wrong_type(store: Store) -> None:
    await store.call("LPUSH", "list", "x")
    with pytest.raises(RedisResponseError, match="WRONGTYPE"):
        await store.call("INCR", "list")


async def broken_script(store: Store) -> None:
    # an error is recognised by its first word: job data inside an error message cannot imitate one
    feigned = Script("feigned", "error({err = 'MINE ' .. ARGV[1]})")
    with pytest.raises(RedisResponseError, match="MINE"):
        await store.run(feigned, [], ["x: OOM y -READONLY z: LOADING "])
    with pytest.raises(RedisResponseError):
        await store.run(Script("raised", "error(ARGV[1])"), [], ["it was: OOM command not allowed"])


async def forbidden(store: Store) -> None:
    await store.call("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+get")
    reader = Store(store.url.replace("redis://", "redis://reader:pw@"))
    with pytest.raises(RedisResponseError, match="permission"):
        await reader.call("SET", "key", "value")
    await reader.close()
    await store.call("ACL", "DELUSER", "reader")


EACH: list[Callable[[Store], Awaitable[None]]] = [
    full, replica, replica_without_its_primary, too_few_replicas, unblocked, unblocked_by_a_failover,
    busy, forgotten_script, wrong_type, broken_script, forbidden,
]  # fmt: skip


@pytest.fixture
async def own_store() -> AsyncIterator[Store]:
    """A server that may be left in any state."""
    server = start_valkey()
    store = Store(server.url)
    yield store
    await store.close()
    server.stop()


@pytest.mark.parametrize("check", EACH, ids=lambda check: check.__name__)
async def test_a_real_fault_becomes_an_error_of_our_own(
    own_store: Store, check: Callable[[Store], Awaitable[None]]
) -> None:
    await check(own_store)


async def test_debians_redis_says_the_same(redis7: Server) -> None:
    store = Store(redis7.url)
    for check in EACH:
        redis7.flush()
        await check(store)
        assert await store.call("CONFIG", "SET", "replica-serve-stale-data", "yes") == b"OK"
    await store.close()


async def test_a_server_that_cannot_save_is_misconfigured(own_store: Store) -> None:
    folder = Path((await own_store.call("CONFIG", "GET", "dir"))[1].decode())
    await own_store.call("CONFIG", "SET", "save", "3600 1")
    shutil.rmtree(folder)
    await own_store.call("SET", "key", "value")
    await own_store.call("BGSAVE")

    async def save_has_failed() -> bool:
        return b"rdb_last_bgsave_status:err" in await own_store.call("INFO", "persistence")

    await until(save_has_failed)
    await assert_refused_each_way(own_store, RedisPersistenceError)


@pytest.fixture
def saved() -> Iterator[Path]:
    """A folder with a file that takes a slow server a while to load."""
    folder = Path(tempfile.mkdtemp(prefix="corral-test-"))
    server = start_valkey("--dir", str(folder))
    with server.connect() as client:
        client.mset({f"key:{number}": "x" * 1000 for number in range(2000)})
        client.save()
    server.stop()
    yield folder
    shutil.rmtree(folder)


async def test_a_server_that_still_loads_says_so(saved: Path) -> None:
    slow = ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"]
    server = start_valkey("--dir", str(saved), *slow)
    store = Store(server.url)
    try:
        await assert_refused_each_way(store, RedisLoadingError)
    finally:
        await store.close()
        server.stop()


@pytest.fixture
def cluster() -> Iterator[tuple[Server, Server]]:
    """Two primaries, half of the slots each."""
    with cluster_of(2) as cluster:
        yield cluster.nodes[0], cluster.nodes[1]


async def test_a_node_of_a_cluster_that_was_taken_for_a_single_server_says_so(
    cluster: tuple[Server, Server],
) -> None:
    first, second = cluster
    with second.connect() as two:
        other = two.execute_command("CLUSTER MYID").decode()
    store = Store(first.url)
    # CLUSTER KEYSLOT foo is 12182, the second's; CLUSTER KEYSLOT bar is 5061, the first's
    with pytest.raises(RedisResponseError, match=r"12182.*write redis\+cluster://"):
        await store.call("GET", "foo")
    with pytest.raises(RedisResponseError, match=r"12182.*write redis\+cluster://"):
        await store.run(WRITE, ["foo"], ["x"])
    await store.call("SET", "{bar}here", "x")
    await store.call("CLUSTER", "SETSLOT", 5061, "MIGRATING", other)
    with pytest.raises(RedisResponseError, match=r"5061.*write redis\+cluster://"):
        await store.call("GET", "{bar}gone")
    with pytest.raises(RedisClusterError, match=r"(?i)multiple keys request"):
        await store.call("MGET", "{bar}here", "{bar}gone")
    with pytest.raises(RedisResponseError, match=r"(?i)slot.*write redis\+cluster://"):
        await store.call("MGET", "foo", "bar")
    await store.close()


async def test_a_cluster_that_is_down_says_so() -> None:
    server = start_valkey("--cluster-enabled", "yes")
    store = Store(server.url)
    try:
        await assert_refused_each_way(store, RedisClusterError)
    finally:
        await store.close()
        server.stop()


async def test_nobody_above_sees_an_error_of_the_client_library() -> None:
    store = Store(f"redis://127.0.0.1:{free_port()}")
    for attempt in (store.call("PING"), store.pipe([["PING"]]), store.run(WRITE, ["a"], ["b"]),
                    store.blocking_connection("a", 1).call("PING")):  # fmt: skip
        with pytest.raises(CorralError) as caught:
            await attempt
        assert not isinstance(caught.value, redis_errors.RedisError)
    await store.close()
