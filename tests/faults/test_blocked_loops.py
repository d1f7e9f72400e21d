"""Handlers that block the event loop for longer than a lock lives: no job is taken for abandoned."""

import pytest

from tests.support.fault_harness import FaultHarness
from tests.support.worker_processes import scaled, seeded, worker_pool

pytestmark = pytest.mark.faults

LOCK_MS = 1000
SHORT = {"lock_ms": LOCK_MS, "recover_ms": 300, "max_stalls": 1_000_000}


def false_stalls(harness: FaultHarness) -> tuple[int, int]:
    """Return how many starts there were too many, and how often a job was taken for abandoned."""
    records = harness.assert_each_completed_once().values()
    return sum(record.starts - 1 for record in records), sum(record.recoveries for record in records)


async def test_claims_that_are_not_read_yet_keep_their_locks_while_a_handler_blocks(harness):
    with worker_pool(harness.server.url, harness.protocol, 2, concurrency=10, **SHORT):
        for _ in range(6):
            await harness.add(2, how="block", seconds=2.5)
            await harness.add(10, how="nap", seconds=0.01)
        assert await harness.falls_to(0, 60)
    assert false_stalls(harness) == (0, 0)


@pytest.mark.timeout(900)
async def test_ten_thousand_blocking_handlers_cause_no_false_stall(harness):
    random, handlers = seeded(), scaled(10_000, least=200)
    with worker_pool(harness.server.url, harness.protocol, 16, concurrency=6, **SHORT):
        while len(harness.numbers) < handlers:
            for _ in range(10):
                await harness.add(1, how="block", seconds=random.choice([0.05] * 19 + [2.5]))
            await harness.falls_to(200, 60)
        assert await harness.falls_to(0, 120)
    assert false_stalls(harness) == (0, 0)
