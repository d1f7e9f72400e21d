"""How long the keys of a job live: at least as long as a worker holds it, its idempotency key with it."""

from contextlib import closing
from typing import Any

import pytest

from corral import Corral
from corral.core.outcome import Completed, Released
from corral.store.client import Store
from tests.support.apps import working
from tests.support.harness import QueueHarness
from tests.support.polling import outlast, until
from tests.support.servers import Server


@pytest.fixture
async def harness(store: Store) -> Any:
    async with QueueHarness("streams", store) as harness:
        yield harness


@pytest.fixture
def client(server: Server) -> Any:
    with closing(server.connect()) as client:
        yield client


KEYS = ("job:{id}", "job:{id}:events", "idempotency:once", "idempotency-fingerprint:once")


def lifetimes(client: Any, job_id: str) -> set[int]:
    """Return the seconds that the keys of a job will live."""
    return {client.ttl(key.format(id=job_id)) for key in KEYS}


def age(client: Any, job_id: str, seconds: int) -> None:
    """Let the keys of a job be about to expire."""
    for key in KEYS:
        client.expire(key.format(id=job_id), seconds)


async def test_a_job_with_a_short_ttl_outlives_the_time_between_two_renewals(
    harness: QueueHarness, client: Any
) -> None:
    """Locks are renewed every 7.5 s by default, and every 10 s at least."""
    broker = harness.broker()
    await broker.submit([harness.job(ttl_s=2, idempotency_key="once")])
    claim = await harness.claim(broker)
    assert min(lifetimes(client, claim.job.id)) > 10
    for renew in (lambda: broker.extend([claim]), lambda: harness.reporter().progress(claim, 5)):
        age(client, claim.job.id, 2)
        await renew()
        assert min(lifetimes(client, claim.job.id)) > 10
    assert (await broker.turn([harness.settle(claim, Completed(b"1"))], 0)).verdicts == [None]
    assert lifetimes(client, claim.job.id) == {2}, "its result is kept as long as was asked for"


async def test_a_job_with_a_short_ttl_lives_until_its_dead_worker_is_noticed(
    harness: QueueHarness, client: Any
) -> None:
    """An abandoned job is found after the lock and the time between two searches."""
    broker = harness.broker(lock_ms=120_000, recover_ms=60_000)
    await broker.submit([harness.job(ttl_s=2, idempotency_key="once")])
    claim = await harness.claim(broker)
    assert min(lifetimes(client, claim.job.id)) > 180
    age(client, claim.job.id, 2)
    await broker.extend([claim])
    assert min(lifetimes(client, claim.job.id)) > 180


async def test_a_job_with_a_short_ttl_is_run_again_when_its_worker_has_died(harness: QueueHarness) -> None:
    dead = harness.broker("dead", lock_ms=1500, recover_ms=100)
    await dead.submit([harness.job(ttl_s=1)])
    claim = await harness.claim(dead)
    other = harness.broker("other", lock_ms=1500, recover_ms=100)

    async def is_found() -> bool:
        return claim.job.id in (await other.recover()).requeued

    await until(is_found, "the job of the dead worker is put back, after more than its ttl")
    again = await harness.claim(other)
    assert again.job.id == claim.job.id
    assert (await other.turn([harness.settle(again, Completed(b"1"))], 0)).verdicts == [None]


@pytest.mark.faults
async def test_a_job_with_a_ttl_of_2_s_and_a_live_worker_runs_for_6_s(server: Server) -> None:
    async with Corral(server.url, protocol="streams") as app:

        @app.job("tool", ttl_s=2)
        async def tool(job: Any) -> str:
            await outlast(6)
            return "done"

        async with working(app):
            handle = await tool.add({})
            assert await handle.result(timeout=20) == "done"


@pytest.mark.parametrize("step", ["claim", "extend", "report", "settle", "release", "cancel"])
async def test_an_idempotency_key_lives_as_long_as_its_job(
    harness: QueueHarness, client: Any, step: str
) -> None:
    broker = harness.broker()
    job = harness.job({"n": 1}, ttl_s=100, idempotency_key="once")
    [added] = await broker.submit([job])
    job_id = added.id  # type: ignore[union-attr]
    if step != "claim":
        claim = await harness.claim(broker)
    age(client, job_id, 5)
    match step:
        case "claim":
            await harness.claim(broker)
        case "extend":
            await broker.extend([claim])
        case "report":
            await harness.reporter().progress(claim, 5)
        case "settle":
            await broker.turn([harness.settle(claim, Completed(b"1"))], 0)
        case "release":
            await broker.turn([harness.settle(claim, Released())], 0)
        case "cancel":
            await harness.operator.cancel([job_id])
    assert lifetimes(client, job_id) == {100}
    [again] = await broker.submit([job])
    assert (again.id, again.existed) == (job_id, True)  # type: ignore[union-attr]


async def test_the_hash_has_the_progress_and_its_message(harness: QueueHarness, client: Any) -> None:
    broker, reporter = harness.broker(), harness.reporter()
    await broker.submit([harness.job()])
    claim = await harness.claim(broker)
    await reporter.progress(claim, {"progress": 25, "message": "scene 1"})
    assert client.hmget(f"job:{claim.job.id}", "progress", "progress_message") == [b"25", b"scene 1"]
    job = await harness.inspector.job(claim.job.id)
    assert job is not None
    assert job.progress == {"progress": 25, "message": "scene 1"}
    await reporter.progress(claim, 50)
    assert client.hmget(f"job:{claim.job.id}", "progress", "progress_message") == [b"50", b""]
    job = await harness.inspector.job(claim.job.id)
    assert job is not None
    assert job.progress == 50
