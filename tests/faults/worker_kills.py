"""Worker processes killed at random while jobs come in and are worked."""

import asyncio
from random import Random

from tests.support.fault_harness import FaultHarness
from tests.support.worker_processes import worker_pool

WORKERS = 4
CONCURRENCY = 8
LOCK_MS = 600
RECOVER_MS = 300
NAP_S = 0.02
AHEAD = 4 * WORKERS * CONCURRENCY
"""Jobs that are left when a worker is killed: enough that every worker holds some."""
DRAIN_S = 60.0


async def kill_at_random(harness: FaultHarness, *, jobs: int, kills: int, random: Random) -> None:
    """Add the jobs in as many waves as there are kills, and kill a random worker process in each.

    A wave sets out when the one before is nearly worked off, and its kill comes when it is so itself: thus
    every kill hits a queue that is being worked, however fast the machine.
    """
    with worker_pool(
        harness.server.url, harness.protocol, WORKERS, concurrency=CONCURRENCY, lock_ms=LOCK_MS,
        recover_ms=RECOVER_MS,
        max_stalls=1_000_000,
    ) as pool:  # fmt: skip
        for wave in range(1, kills + 1):
            pool.wait_for_two()
            await harness.add(jobs * wave // kills - len(harness.numbers), how="nap", seconds=NAP_S)
            assert await harness.falls_to(AHEAD, DRAIN_S), f"nothing goes on in wave {wave}"
            await asyncio.sleep(random.uniform(0, NAP_S))
            pool.kill_one(random)
            pool.start()
        assert await harness.falls_to(0, DRAIN_S), f"{await harness.left()} of {jobs} jobs never ended"


def assert_kills_hit(harness: FaultHarness, kills: int) -> None:
    """Nothing was lost or doubled, and the kills did hit workers that held jobs."""
    records = harness.assert_each_completed_once()
    recovered = sum(record.recoveries for record in records.values())
    print(f"{len(records)} jobs, {kills} kills: {recovered} attempts were found abandoned and put back")
    assert recovered >= 2 * kills, "most kills hit nobody who held a job: this run proves nothing"
