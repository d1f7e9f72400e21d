"""Sentinels: the master is found through them, and found again when it has died or stepped down."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis.asyncio.sentinel import Sentinel

from corral import Corral, JobContext, JobState
from corral.bullmq import Queue as DropInQueue
from corral.bullmq import Worker as DropInWorker
from corral.core.job import Job
from corral.errors import InvalidOptions, RedisConnectionError, RedisReadOnlyError, RedisResponseError
from corral.job_type import JobType
from corral.store.client import Reconnect, Store
from corral.worker import WorkerEvent, WorkerEventKind
from tests.support.apps import ended, working
from tests.support.polling import becomes_true, until
from tests.support.sentinel import SERVICE, SentinelServer, sentinels_of
from tests.support.servers import Server, free_port, redis_server_binary, start_valkey
from tests.support.tls import make_certificates

pytestmark = pytest.mark.xdist_group("sentinel")

JOBS = 1000
LOCK_MS = 2000


@pytest.fixture
def service() -> Iterator[SentinelServer]:
    """For tests that do it harm."""
    with sentinels_of() as service:
        yield service


@pytest.fixture(scope="module")
def quiet_service() -> Iterator[SentinelServer]:
    """For tests that leave it as it was."""
    with sentinels_of() as service:
        yield service


@pytest.mark.parametrize(
    "protocol",
    ["bullmq", *(pytest.param(protocol, marks=pytest.mark.faults) for protocol in ("bridgemq", "streams"))],
)
async def test_workers_go_on_at_the_new_master_when_the_old_one_is_killed(
    service: SentinelServer, protocol: str
) -> None:
    """Replication is not waited for, so what the old master alone knew is done again, and nothing else."""
    runs: Counter[int] = Counter()
    settled: set[int] = set()
    app = Corral(service.url, protocol=protocol)

    def listen(event: WorkerEvent) -> None:
        if event.kind is WorkerEventKind.SETTLED and event.claim is not None:
            settled.add(event.claim.job.data["number"])

    @app.job("embed" if protocol == "streams" else "count", queue=app.queue().name)
    async def count(job: JobContext) -> None:
        await asyncio.sleep(0.05)
        runs[job.data["number"]] += 1

    await count.add_many([{"number": number} for number in range(JOBS)])
    assert await becomes_true(service.is_replicated)
    reconnect = Reconnect(most_ms=500)
    locks = {"lock_ms": LOCK_MS, "recover_ms": 500, "max_stalls": 3}
    async with app, working(app, concurrency=20, reconnect=reconnect, listener=listen, **locks):
        assert await becomes_true(lambda: len(settled) >= JOBS // 4, 30)
        sent_on = frozenset(settled)
        await asyncio.to_thread(service.send_on)
        before = await asyncio.to_thread(service.kill_master)
        assert len(runs) < JOBS
        assert await becomes_true(lambda: len(runs) == JOBS, 60), f"{JOBS - len(runs)} jobs never ran"
        assert await asyncio.to_thread(service.master) is not before
        assert await all_ended(app)
    doubled = {number for number, times in runs.items() if times > 1}
    assert not doubled & sent_on, "what the replica knew to be done was done again"
    assert len(doubled) < JOBS // 4


async def all_ended(app: Corral) -> bool:
    """Wait until no job is waiting or active: locks that the replica still had must expire first."""

    async def have_ended() -> bool:
        counts = await app.queue().counts()
        assert not counts.get(JobState.DEAD)
        return not any(counts.get(state) for state in (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE))

    return await until(have_ended, seconds=30)


async def test_the_drop_in_takes_a_client_that_asks_sentinels(quiet_service: SentinelServer) -> None:
    sentinel = Sentinel([("127.0.0.1", sentinel.port) for sentinel in quiet_service.sentinels])
    client = sentinel.master_for(SERVICE, decode_responses=True)
    for given in (client, quiet_service.url):
        queue = DropInQueue("mail", {"connection": given})
        job = await queue.add("send", {"to": "a@b.c"})
        worker = DropInWorker("mail", lambda job, token: asyncio.sleep(0, "sent"), {"connection": given})
        assert await is_completed(queue, job.id)
        # for commands of one's own there is a client of the same master
        assert await queue.client.hget(queue.toKey(job.id), "name") == "send"
        await worker.close()
        await queue.close()
    await client.aclose()


async def is_completed(queue: DropInQueue, job_id: str) -> bool:
    async def has_completed() -> bool:
        return await queue.getJobState(job_id) == "completed"

    return await until(has_completed)


@pytest.mark.faults
async def test_a_worker_that_waits_is_woken_at_the_new_master_when_the_old_one_steps_down(
    service: SentinelServer,
) -> None:
    app = Corral(service.url)

    @app.job("echo")
    async def echo(job: JobContext) -> str:
        return "echoed"

    async with app, working(app, concurrency=2, reconnect=Reconnect(most_ms=500)):
        await ended(echo.queue, (await echo.add()).id)
        assert await becomes_true(service.is_replicated)
        await asyncio.to_thread(service.fail_over)
        assert await becomes_true(lambda: steps_down(service.data[0]), 30)
        job = await added_at_the_new_master(echo)
        assert (await ended(echo.queue, job.id)).result == "echoed"


async def added_at_the_new_master(kind: JobType) -> Job:
    """Add a job as soon as there is a master that accepts it."""

    async def added() -> Job | None:
        with suppress(RedisConnectionError, RedisReadOnlyError):
            return await kind.add()
        return None

    return await until(added)


def steps_down(server: Server) -> bool:
    with server.connect() as client:
        return bool(client.info("replication")["role"] == "slave")


async def test_any_sentinel_that_answers_will_do_and_unknown_services_are_named(
    quiet_service: SentinelServer,
) -> None:
    url = quiet_service.url.replace("://", f"://127.0.0.1:{free_port()},")
    store = Store(url)
    await store.check_connection()
    assert await store.call("SET", "a", "b") == b"OK"
    await store.close()
    unauthenticated = Store(url.replace(f"/{SERVICE}", "/warehouse"))
    with pytest.raises(RedisResponseError, match="the sentinels know no service 'warehouse'"):
        await unauthenticated.check_connection()
    await unauthenticated.close()
    nobody = Store(f"redis+sentinel://127.0.0.1:{free_port()}/{SERVICE}")
    with pytest.raises(RedisConnectionError, match="no sentinel answers"):
        await nobody.check_connection()
    await nobody.close()


async def test_a_sentinel_that_names_a_replica_is_asked_again() -> None:
    """A sentinel may be late: what it names must say of itself that it is the master."""
    master = start_valkey()
    replica = start_valkey("--replicaof", "127.0.0.1", str(master.port))
    named = replica.port

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            port = str(named)
            writer.write(f"*2\r\n$9\r\n127.0.0.1\r\n${len(port)}\r\n{port}\r\n".encode())

    sentinel = await asyncio.start_server(late, "127.0.0.1", 0)
    store = Store(f"redis+sentinel://127.0.0.1:{sentinel.sockets[0].getsockname()[1]}/{SERVICE}")
    try:
        with pytest.raises(RedisReadOnlyError, match="has become a slave"):
            await store.call("SET", "a", "b")
        named = master.port
        assert await store.call("SET", "a", "b") == b"OK"
        # it steps down while we are connected
        named = replica.port
        with replica.connect() as client:
            client.replicaof("NO", "ONE")
        with master.connect() as client:
            client.replicaof("127.0.0.1", replica.port)
        with pytest.raises((RedisReadOnlyError, RedisConnectionError)):
            await store.call("SET", "a", "c")
        assert await store.call("SET", "a", "c") == b"OK"
        with replica.connect() as client:
            assert client.get("a") == b"c"
    finally:
        await store.close()
        sentinel.close()
        master.stop()
        replica.stop()


async def test_sentinels_with_a_login_of_their_own_are_given_it(quiet_service: SentinelServer) -> None:
    for sentinel in quiet_service.sentinels:
        with sentinel.connect() as client:
            client.execute_command("ACL SETUSER watcher on >quiet +sentinel +auth")
    friend = Store(f"{quiet_service.url}?sentinel_username=watcher&sentinel_password=quiet")
    assert "quiet" not in friend.address
    await friend.check_connection()
    await friend.close()
    unauthenticated = Store(f"{quiet_service.url}?sentinel_username=watcher&sentinel_password=loud")
    with pytest.raises(RedisResponseError, match="WRONGPASS"):
        await unauthenticated.check_connection()
    await unauthenticated.close()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis+sentinel://a:1", "does not say which service"),
        ("redis+sentinel://a:1/shop/first", "'first' is not the number of a database"),
        ("redis+sentinel://a:1/shop?sentinel_colour=blue", "'sentinel_colour' is no option"),
    ],
)
def test_a_wrong_address_of_sentinels_is_refused_by_name(url: str, complaint: str) -> None:
    with pytest.raises(InvalidOptions, match=complaint):
        Store(url)


async def test_a_database_may_be_named_behind_the_service(quiet_service: SentinelServer) -> None:
    for url in (f"{quiet_service.url}/3", f"{quiet_service.url}?db=3"):
        store = Store(url)
        await store.call("INCR", "writes")
        await store.close()
    with quiet_service.master().connect() as client:
        client.select(3)
        assert client.get("writes") == b"2"


@pytest.mark.skipif(redis_server_binary() is None, reason="redis-server is not installed")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_sentinels_and_their_master_are_spoken_to_by_tls_where_the_address_says_so(
    tmp_path: Path,
) -> None:
    make_certificates(tmp_path)
    with sentinels_of(redis_server_binary(), certificates=tmp_path) as service:
        assert service.url.startswith("rediss+sentinel://")
        app = Corral(service.url)

        @app.job("echo")
        async def echo(job: JobContext) -> str:
            return "echoed"

        async with app, working(app, concurrency=2, reconnect=Reconnect(most_ms=500)):
            assert (await ended(echo.queue, (await echo.add()).id)).result == "echoed"
            assert await becomes_true(service.is_replicated)
            before = await asyncio.to_thread(service.kill_master)
            job = await added_at_the_new_master(echo)
            assert (await ended(echo.queue, job.id)).result == "echoed"
            assert await asyncio.to_thread(service.master) is not before
        plain = Store(service.url.replace("rediss+", "redis+").partition("?")[0])
        with pytest.raises(RedisConnectionError, match="no sentinel answers"):
            await plain.check_connection()
        await plain.close()
        distrustful = Store(service.url.partition("?")[0])
        with pytest.raises(RedisConnectionError, match="certificate"):
            await distrustful.check_connection()
        await distrustful.close()
