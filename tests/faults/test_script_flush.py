"""A server that forgets its scripts all the time is taught them again, and nobody notices."""

import asyncio

import pytest

from corral.worker import WorkerEventKind
from tests.support.worker_processes import scaled

pytestmark = pytest.mark.faults

END_S = 60.0


async def test_scripts_flushed_in_a_loop_cost_no_job_and_no_attempt(harness):
    flushes = 0

    async def nap(job):
        await asyncio.sleep(0)
        return job.data["number"]

    async def forget():
        nonlocal flushes
        with harness.server.connect() as client:
            while True:
                client.script_flush()
                flushes += 1
                await asyncio.sleep(0.001)

    await harness.add(scaled(5000, least=500))
    async with harness.worker(nap, concurrency=20):
        forgetting = asyncio.create_task(forget())
        try:
            assert await harness.falls_to(0, END_S)
        finally:
            forgetting.cancel()
    print(f"{flushes} flushes")
    assert flushes >= scaled(50, least=5)
    harness.assert_attempts()
    assert harness.reported(WorkerEventKind.UNAVAILABLE) == []
