"""A server that crashes, freezes, pauses or refuses: workers wait for it and go on by themselves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from corral.worker import WorkerEventKind
from tests.support.fault_harness import FaultHarness
from tests.support.persistent_server import PersistentServer
from tests.support.polling import becomes_true, outlast
from tests.support.worker_harness import WorkerHarness
from tests.support.worker_processes import scaled
from tests.worker.test_reporting import (
    add_narrators,
    becomes_logged,
    check_all_was_reported,
    submit_narrators,
)

pytestmark = pytest.mark.faults

END_S = 60.0
ANSWER_S = 1.0
LOCK_MS = 2000
OUTAGE_S = 2.5
"""Long enough for calls under way to be given up."""

Trouble = Callable[[], Awaitable[None]]


@pytest.fixture
def lasting_server(tmp_path: Path) -> Iterator[PersistentServer]:
    server = PersistentServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
async def harness(lasting_server: PersistentServer, protocol: str) -> AsyncIterator[FaultHarness]:
    harness = FaultHarness(lasting_server, protocol)
    yield harness
    await harness.close()


async def nap(job):
    await asyncio.sleep(0.005)
    return job.data["number"]


async def check_worked_through(harness: FaultHarness, jobs: int, times: int, trouble: Trouble) -> None:
    """Work the jobs, with so much trouble on the way, spread evenly; then each has run exactly once."""
    await harness.add(jobs)
    async with harness.worker(nap, f"{harness.server.url}?socket_timeout={ANSWER_S}", concurrency=20):
        for time in range(1, times + 1):
            assert await harness.falls_to(jobs - jobs * time // (times + 1), END_S)
            await trouble()
        assert await harness.falls_to(0, END_S), f"{await harness.left()} jobs never ended"
    harness.assert_attempts()


@pytest.mark.parametrize("end", ["crash", "shut_down"])
async def test_a_server_that_restarts_finds_its_workers_and_all_its_jobs(harness, lasting_server, end):
    async def restart() -> None:
        before = len(harness.reported(WorkerEventKind.AVAILABLE))
        getattr(lasting_server, end)()
        assert await becomes_true(lambda: len(harness.reported(WorkerEventKind.UNAVAILABLE)) > before)
        lasting_server.restart()
        assert await becomes_true(lambda: len(harness.reported(WorkerEventKind.AVAILABLE)) > before)

    await check_worked_through(harness, scaled(3000, least=300), 5, restart)


async def test_a_frozen_server_is_waited_for(harness, lasting_server):
    async def freeze() -> None:
        lasting_server.freeze()
        await outlast(OUTAGE_S)
        lasting_server.thaw()

    await check_worked_through(harness, scaled(2000, least=300), 2, freeze)
    assert harness.reported(WorkerEventKind.UNAVAILABLE)


async def test_a_server_that_pauses_its_clients_is_waited_for(harness, lasting_server):
    async def pause() -> None:
        with lasting_server.connect() as client:
            client.client_pause(int(OUTAGE_S * 1000), all=True)
        await outlast(OUTAGE_S)

    await check_worked_through(harness, scaled(2000, least=300), 2, pause)
    assert harness.reported(WorkerEventKind.UNAVAILABLE)


async def test_a_server_that_has_become_a_replica_is_waited_for(harness, lasting_server):
    async def become_replica() -> None:
        with lasting_server.connect() as client:
            # of a master that is not there: what it holds is kept, and writes are refused
            client.replicaof("127.0.0.1", 1)
            assert await becomes_true(lambda: harness.reported(WorkerEventKind.UNAVAILABLE))
            await outlast(0.5)
            client.replicaof("NO", "ONE")

    await check_worked_through(harness, scaled(2000, least=300), 2, become_replica)


async def test_a_server_that_runs_out_of_memory_loses_nothing(harness, lasting_server):
    async def run_out_of_memory() -> None:
        with lasting_server.connect() as client:
            client.config_set("maxmemory", 1)
            await outlast(0.5)
            client.config_set("maxmemory", 0)

    await check_worked_through(harness, scaled(2000, least=300), 2, run_out_of_memory)


async def test_a_server_without_memory_lets_running_jobs_keep_their_locks(harness, lasting_server):
    async def work(job):
        await outlast(3 * LOCK_MS / 1000)
        return job.data["number"]

    await harness.add(5)
    with lasting_server.connect() as client:
        async with harness.worker(work, lock_ms=LOCK_MS, recover_ms=LOCK_MS // 4):
            assert await becomes_true(lambda: len(harness.runs) == 5)
            client.config_set("maxmemory", 1)
            await outlast(2 * LOCK_MS / 1000)
            client.config_set("maxmemory", 0)
            assert await harness.falls_to(0, END_S)
    harness.assert_attempts()


async def test_handlers_report_through_a_restart(lasting_server, protocol):
    async with WorkerHarness(lasting_server.url, protocol=protocol) as harness:
        add_narrators(harness)
        async with harness.worker():
            ids = await submit_narrators(harness)
            for job_id in ids:
                assert await becomes_logged(harness, job_id)
            lasting_server.shut_down()
            await outlast(2.0)
            lasting_server.restart()
            await check_all_was_reported(harness, ids)
