"""Workers killed during flows: every parent completes once, after all its children."""

import asyncio
from random import Random

import pytest

from corral import JobContext
from tests.faults.worker_kills import AHEAD, DRAIN_S, LOCK_MS, NAP_S, RECOVER_MS, WORKERS, assert_kills_hit
from tests.support.fault_harness import FaultHarness
from tests.support.worker_process_main import JOB
from tests.support.worker_processes import scaled, seeded, worker_pool

CHILDREN = 10

pytestmark = pytest.mark.parametrize("protocol", ["bullmq"])


@pytest.mark.faults
@pytest.mark.timeout(600)
async def test_500_parents_of_ten_children_complete_once_each_after_their_children(
    harness: FaultHarness,
) -> None:
    kills = scaled(60, least=2)
    await kill_during_flows(harness, parents=scaled(500, least=20), kills=kills, random=seeded())
    assert_kills_hit(harness, kills)
    assert_after_their_children(harness)


async def test_a_few_kills_during_flows(harness: FaultHarness) -> None:
    await kill_during_flows(harness, parents=24, kills=2, random=seeded())
    assert_kills_hit(harness, 2)
    assert_after_their_children(harness)


async def kill_during_flows(harness: FaultHarness, *, parents: int, kills: int, random: Random) -> None:
    """Add the flows in as many waves as there are kills, and kill a random worker process in each."""
    with worker_pool(
        harness.server.url, harness.protocol, WORKERS, lock_ms=LOCK_MS, recover_ms=RECOVER_MS,
        max_stalls=1_000_000,
    ) as pool:  # fmt: skip
        added = 0
        for wave in range(1, kills + 1):
            pool.wait_for_two()
            await add_flows(harness, range(added, parents * wave // kills))
            added = parents * wave // kills
            assert await harness.falls_to(AHEAD, DRAIN_S), f"nothing goes on in wave {wave}"
            await asyncio.sleep(random.uniform(0, NAP_S))
            pool.kill_one(random)
            pool.start()
        assert await harness.falls_to(0, DRAIN_S), f"{await harness.left()} jobs never ended"


async def add_flows(harness: FaultHarness, numbers: range) -> None:
    """Add a flow for each number."""
    app = harness.app

    if JOB not in [name for _, _, name in app.job_types]:

        @app.job(JOB)
        async def run(job: JobContext) -> None: ...

    job_type = app.job_types[harness.protocol, harness.queue.name, JOB]

    def call(job_id: str):
        number = harness.numbers[job_id] = len(harness.numbers)
        return job_type.options(id=job_id).call({"number": number, "how": "nap", "seconds": NAP_S})

    for number in numbers:
        children = [call(f"child-{number}-{n}") for n in range(CHILDREN)]
        await app.flow(call(f"parent-{number}"), children=children).add()


def assert_after_their_children(harness: FaultHarness) -> None:
    """By the events, no parent began before all its children had completed."""
    completed: set[bytes] = set()
    began = 0
    with harness.server.connect() as client:
        events = client.xrange("bull:default:events")
    for _, event in events:
        job_id = event.get(b"jobId", b"")
        if event[b"event"] == b"completed":
            completed.add(job_id)
        elif event[b"event"] == b"active" and job_id.startswith(b"parent-"):
            began += 1
            number = job_id.removeprefix(b"parent-").decode()
            early = {f"child-{number}-{n}".encode() for n in range(CHILDREN)} - completed
            assert not early, f"{job_id} began before {early}"
    assert began >= len(harness.numbers) // (CHILDREN + 1)
