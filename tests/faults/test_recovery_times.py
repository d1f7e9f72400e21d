"""How long the jobs of a killed worker wait for another worker."""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from corral.store.client import Store
from tests.support.fault_harness import FaultHarness
from tests.support.harness import QueueHarness
from tests.support.jobs import submit
from tests.support.polling import becomes_true, outlast
from tests.support.servers import Server
from tests.support.worker_processes import WorkerProcess, seeded, worker_pool

LOCK_MS = 1000
RECOVER_MS = 500
LONGEST_CALL_MS = 100


async def recovery_times(harness: FaultHarness, kills: int, window_s: float, **profile: Any) -> list[float]:
    """Kill so many workers, each with one job, within the window; return how long each job then waited."""
    url, protocol, random = harness.server.url, harness.protocol, seeded()
    with worker_pool(url, protocol, kills, concurrency=1, **profile) as victims:
        await harness.add(kills, how="nap", seconds=600, is_announced=True)
        assert await becomes_true(lambda: all(victim.jobs_reported("began") for victim in victims.processes))
        # as many as are killed: a worker runs jobs that have stalled one at a time
        with worker_pool(url, protocol, kills, concurrency=1, **profile) as survivors:
            waits = [
                kill(victim, survivors.processes, random, window_s) for victim in list(victims.processes)
            ]
            times = await asyncio.gather(*waits)
    print(f"{protocol}: {kills} kills, recovered after {min(times):.2f} to {max(times):.2f} s")
    return times


async def kill(
    victim: WorkerProcess, survivors: Sequence[WorkerProcess], random: Random, window_s: float
) -> float:
    """Kill a worker at a random time within the window; return when its job began again, in seconds."""
    await asyncio.sleep(random.uniform(0, window_s))
    [job_id] = victim.jobs_reported("began")
    await asyncio.to_thread(victim.kill)
    start = time.monotonic()

    def has_begun() -> bool:
        return any(job_id in survivor.jobs_reported("began") for survivor in survivors)

    assert await becomes_true(has_begun, 130), f"{job_id} is lost"
    return time.monotonic() - start


async def test_a_killed_workers_job_begins_again_within_lock_interval_and_a_second(harness):
    times = await recovery_times(harness, 4, RECOVER_MS / 1000, lock_ms=LOCK_MS, recover_ms=RECOVER_MS)
    assert max(times) <= (LOCK_MS + RECOVER_MS) / 1000 + 1


@pytest.mark.faults
@pytest.mark.timeout(300)
async def test_at_the_defaults_a_killed_workers_job_begins_again_within_a_minute(harness):
    times = await recovery_times(harness, 16, 30)
    assert max(times) <= 60


async def sweep_calls(server: Server, protocol: str, jobs: int) -> list[float]:
    """Let so many jobs stall, and recover them; return the server's time for each call, in ms."""
    store = Store(server.url)
    async with QueueHarness(protocol, store) as harness:
        dead = harness.broker("dead", lock_ms=200, recover_ms=100)
        alive = harness.broker("alive", lock_ms=200, recover_ms=100)
        await submit(dead, [harness.job({"n": n}) for n in range(jobs)])
        held = 0
        while held < jobs:
            held += len((await dead.turn([], 500)).claims)
        with server.connect() as client:
            client.config_set("slowlog-max-len", 100_000)
            client.config_set("slowlog-log-slower-than", 0)
            requeued = [*(await alive.recover()).requeued]  # in bullmq they are only suspects yet
            await outlast(0.5)
            requeued += (await alive.recover()).requeued
            entries = client.slowlog_get(100_000)
            client.config_set("slowlog-log-slower-than", 10_000)
            client.slowlog_reset()
    await store.close()
    assert len(set(requeued)) == len(requeued) == jobs
    calls = [entry["duration"] / 1000 for entry in entries if entry["command"].startswith(b"EVAL")]
    print(f"{protocol}: {jobs} jobs in {len(calls)} calls, the longest of {max(calls):.1f} ms")
    return calls


async def test_many_stalled_jobs_are_recovered_in_several_calls(server: Server, protocol: str):
    assert len(await sweep_calls(server, protocol, 1100)) >= 3


@pytest.mark.faults
async def test_no_call_of_a_sweep_over_10000_jobs_takes_the_server_100_ms(server: Server, protocol: str):
    assert max(await sweep_calls(server, protocol, 10_000)) < LONGEST_CALL_MS
