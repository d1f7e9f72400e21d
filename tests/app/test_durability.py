"""Durability: an add returns when its jobs are on disk or at a replica, and says where they are not."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from corral import Added, Corral, InvalidOptions, Job, JobState, NotDurable, Unsupported
from tests.docs.pages import run_page
from tests.support.persistent_server import PersistentServer
from tests.support.polling import eventually
from tests.support.servers import Server, start_valkey

PROTOCOLS = pytest.mark.parametrize("protocol", ["bullmq", "streams", "bridgemq"])
NAME = "tool"


@pytest.fixture(scope="module")
def replica() -> Iterator[tuple[Server, Server]]:
    """A server, and a replica of it."""
    primary = start_valkey("--repl-diskless-sync-delay", "0")
    replica = start_valkey("--replicaof", "127.0.0.1", str(primary.port))
    try:
        with primary.connect() as client:
            assert eventually(lambda: client.info("replication").get("slave0", {}).get("state") == "online")
        yield primary, replica
    finally:
        replica.stop()
        primary.stop()


@pytest.fixture
def replicated(replica: tuple[Server, Server]) -> Iterator[Server]:
    """The server, empty; its replica is frozen by no one."""
    primary, other = replica
    with primary.connect() as client:
        client.flushall()
    yield primary
    os.kill(other.process.pid, signal.SIGCONT)


def freeze(replica: tuple[Server, Server]) -> None:
    os.kill(replica[1].process.pid, signal.SIGSTOP)


@pytest.fixture(scope="module")
def on_disk() -> Iterator[Server]:
    server = start_valkey("--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.stop()


def calls(client: redis.Redis, command: str) -> int:
    return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


@PROTOCOLS
@pytest.mark.parametrize("level", ["disk", "replicas"])
async def test_a_durable_add_returns_when_the_server_has_confirmed_it(
    level: str, protocol: str, replicated: Server, on_disk: Server
) -> None:
    server, command = (on_disk, "waitaof") if level == "disk" else (replicated, "wait")
    with server.connect() as client:
        client.config_resetstat()
        async with Corral(server.url, protocol=protocol, durability=level) as app:
            handle = await app.queue().add(NAME, {"n": 1})
            assert await handle.state() is JobState.WAITING
            assert calls(client, command) == 1
            ids = await app.queue().add_many((NAME, {"n": n}) for n in range(50))
            assert (len(ids), calls(client, command)) == (50, 2)
            await asyncio.gather(*(app.queue().add(NAME, {"n": n}) for n in range(100)))
            assert calls(client, command) < 52, "adds that are under way together share a wait"
            before = calls(client, command)
            await app.queue().add(NAME, durability="memory")
            assert calls(client, command) == before


async def test_what_a_replica_has_not_confirmed_is_added_and_told(
    replicated: Server, replica: tuple[Server, Server]
) -> None:
    app = Corral(replicated.url, durability_timeout=0.2)

    @app.job(durability="replicas")
    async def charge(order: int) -> int:
        return order

    @app.job
    async def report(day: str) -> str:
        return day

    async with app:
        await charge.add(1)
        freeze(replica)
        with pytest.raises(
            NotDurable, match=r"job '2' is added, .*durability='replicas' within 0.2 s"
        ) as one:
            await charge.add(2)
        assert await one.value.handle.state() is JobState.WAITING
        assert one.value.handle.data == {"order": 2}
        with pytest.raises(NotDurable, match="3 jobs are added") as many:
            await charge.add_many([3, 4, 5])
        assert [handle.id for handle in many.value.handles] == ["3", "4", "5"]
        with pytest.raises(NotDurable):
            await app.queue().add_many([("charge", {"order": 6}), ("report", {"day": "monday"})])
        with pytest.raises(NotDurable):
            await app.queue().add_many([("report", {"day": "monday"}, {"durability": "replicas"})])
        with pytest.raises(NotDurable) as flow:
            await app.flow(report.call("monday"), children=[charge.call(7)]).add()
        assert await flow.value.handle.state() is not None
        assert (await app.queue().counts())[JobState.WAITING] == 10


async def test_adds_that_ask_for_nothing_do_not_wait_for_those_that_do(
    replicated: Server, replica: tuple[Server, Server]
) -> None:
    async with Corral(replicated.url, durability_timeout=30) as app:
        await app.queue().add(NAME, durability="replicas")
        freeze(replica)
        waiting = asyncio.create_task(app.queue().add(NAME, durability="replicas"))
        for _ in range(5):
            await app.queue().add(NAME)
        assert not waiting.done()
        os.kill(replica[1].process.pid, signal.SIGCONT)
        assert (await waiting).id


async def test_one_that_is_cancelled_leaves_the_others(
    replicated: Server, replica: tuple[Server, Server]
) -> None:
    async with Corral(replicated.url, durability="replicas", durability_timeout=30) as app:
        await app.queue().add(NAME)
        freeze(replica)
        first, second = (asyncio.create_task(app.queue().add(NAME)) for _ in range(2))
        with replicated.connect() as client:
            while not any(line["cmd"] == "wait" for line in client.client_list()):
                await asyncio.sleep(0.01)
        first.cancel()
        os.kill(replica[1].process.pid, signal.SIGCONT)
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).id


async def test_a_server_that_was_restarted_meanwhile_has_confirmed_nothing(tmp_path: Path) -> None:
    server = PersistentServer(tmp_path)
    restarts: list[bool] = []
    try:
        async with Corral(server.url, durability="disk") as app:

            @app.on_add
            async def restart(jobs: Sequence[Job], call_next: Any) -> Sequence[Added]:
                added: Sequence[Added] = await call_next(jobs)
                if restarts:
                    server.crash()
                    server.restart()
                return added

            await app.queue().add(NAME)
            restarts.append(True)
            with pytest.raises(NotDurable):
                await app.queue().add(NAME)
            restarts.clear()
            assert (await app.queue().add(NAME)).id == "3"
    finally:
        server.stop()


def test_the_page_runs_as_it_is_written(tmp_path: Path, on_disk: Server) -> None:
    run_page("docs/how-to/durability.md", tmp_path, on_disk.url)


# -- servers that cannot ------------------------------------------------------------------------------------


@pytest.fixture
async def everysec() -> AsyncIterator[Server]:
    server = start_valkey("--appendonly", "yes", "--appendfsync", "everysec")
    yield server
    server.stop()


async def test_a_server_that_cannot_is_refused_at_the_start(server: Server, everysec: Server) -> None:
    refusals = {
        (server.url, "disk"): "it has no append-only file; set `appendonly yes` there",
        (server.url, "replicas"): "it has no replica; connect one",
        # Valkey answers WAITAOF before the fsync of the second
        (everysec.url, "disk"): "with `appendfsync everysec` it does not tell when data are on disk",
    }
    for (url, level), complaint in refusals.items():
        with pytest.raises(Unsupported, match=complaint):
            async with Corral(url, durability=level):  # type: ignore[arg-type]
                raise AssertionError("it is not opened")
        async with Corral(url) as app:
            with pytest.raises(Unsupported, match=complaint):
                await app.queue().add(NAME, durability=level)
    for one in (server, everysec):
        with one.connect() as client:
            assert client.dbsize() == 0


async def test_a_durability_that_does_not_exist_is_refused(url: str) -> None:
    with pytest.raises(InvalidOptions, match="durability is 'tape'; use 'memory', 'disk' or 'replicas'"):
        Corral(url, durability="tape")  # type: ignore[arg-type]
    async with Corral(url) as app:
        with pytest.raises(InvalidOptions, match="durability is 'tape'"):
            await app.queue().add(NAME, durability="tape")  # type: ignore[arg-type]
        with pytest.raises(InvalidOptions, match="did you mean 'durability'"):
            await app.queue().add(NAME, durabilty="disk")  # type: ignore[call-arg]
