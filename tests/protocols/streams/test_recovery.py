"""What becomes of the jobs of a streams worker that falls silent."""

import asyncio
from typing import Any

import pytest

from corral.core.job import Job
from corral.core.outcome import Completed, Released
from corral.errors import LockMissing
from corral.protocols.streams.broker import RECOVER_ROWS, StreamsBroker
from tests.protocols.streams.steps import claim_new, settle
from tests.support.foreign_client_streams import (
    ForeignGateway,
    ForeignWorker,
    make_old,
    pending,
    story,
)
from tests.support.jobs import submit
from tests.support.polling import outlast, until

# -- silence ------------------------------------------------------------------------------------------------


async def test_a_silent_workers_job_goes_back_to_the_queue(make, client) -> None:
    claim = await claim_new(make("dead", lock_ms=20))
    other = make("alive", lock_ms=30_000)
    recovery = await until(lambda: _recovered(other))
    assert (recovery.requeued, recovery.ended) == ([claim.job.id], [])
    assert client.hget(f"job:{claim.job.id}", "status") == b"queued"
    (again,) = (await other.turn([], 1)).claims
    assert (again.job.id, again.job.data) == (claim.job.id, {"n": 1})
    assert (again.job.starts, again.job.stalls) == (2, 1)
    assert await settle(other, again) is None
    assert story(client, claim.job.id) == ["queued", "running", "queued", "running", "done"]


async def _recovered(broker: StreamsBroker) -> Any:
    recovery = await broker.recover()
    return recovery if recovery.requeued or recovery.ended else None


async def test_the_late_settlement_of_a_silent_worker_is_refused(make, client) -> None:
    late, other = make("late"), make("other")
    claim = await claim_new(late)
    make_old(client, claim.receipt.entry)
    await other.recover()
    assert type(await settle(late, claim)) is LockMissing
    assert client.hget(f"job:{claim.job.id}", "status") == b"queued"
    (again,) = (await other.turn([], 1)).claims
    assert type(await settle(late, claim)) is LockMissing
    assert client.hget(f"job:{claim.job.id}", "status") == b"running"
    assert await settle(other, again, Completed(b'"mine"')) is None
    assert client.hget(f"job:{claim.job.id}", "result") == b'"mine"'


async def test_each_workers_own_lock_counts_not_that_of_whoever_looks(make, client) -> None:
    claim = await claim_new(make("patient", lock_ms=3_600_000))
    make_old(client, claim.receipt.entry, 60_000)
    assert (await make("hasty", lock_ms=10).recover()).requeued == []
    make_old(client, claim.receipt.entry, 3_600_000)
    assert (await make("hasty", lock_ms=10).recover()).requeued == [claim.job.id]


async def test_a_stranger_is_given_more_time_for_it_cannot_renew(make, client) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    ((entry, _),) = ForeignWorker(client).take()
    broker = make(lock_ms=10)
    make_old(client, entry, 299_000)
    assert (await broker.recover()).requeued == []
    assert (await make("x", extra={"stranger_idle_ms": 1000}).recover()).requeued == [job_id]


async def test_a_job_that_kills_its_workers_ends_after_three_deliveries(make, client) -> None:
    broker = make()
    (job_id,) = await submit(broker, [Job(name="chat", data={}, queue="jobs")])
    for delivery in (1, 2):
        (claim,) = (await broker.turn([], 1)).claims
        assert claim.job.starts == delivery
        make_old(client, claim.receipt.entry)
        assert (await broker.recover()).requeued == [job_id]
        assert client.get(f"job:{job_id}:deliveries") == b"%d" % delivery
        assert 3590 < client.ttl(f"job:{job_id}:deliveries") <= 3600
    (claim,) = (await broker.turn([], 1)).claims
    make_old(client, claim.receipt.entry)
    recovery = await broker.recover()
    assert (recovery.requeued, recovery.ended) == ([], [job_id])
    job = ForeignGateway(client).read(job_id)
    assert job["status"] == "error"
    assert job["error"] == {"message": "abandoned: delivered 3 times, and no worker finished it"}
    assert story(client, job_id)[-1] == "error"
    assert client.xlen("jobs:stream") == 0
    assert pending(client) == []
    assert not client.exists(f"job:{job_id}:deliveries")


async def test_giving_back_spends_none_of_the_deliveries(make, client) -> None:
    broker = make()
    (job_id,) = await submit(broker, [Job(name="chat", data={}, queue="jobs")])
    for _ in range(2):
        (claim,) = (await broker.turn([], 1)).claims
        make_old(client, claim.receipt.entry)
        await broker.recover()
        for _ in range(3):
            (claim,) = (await broker.turn([], 1)).claims
            assert await settle(broker, claim, Released()) is None
    (claim,) = (await broker.turn([], 1)).claims
    assert claim.job.stalls == 2
    make_old(client, claim.receipt.entry)
    assert (await broker.recover()).ended == [job_id]


async def test_deliveries_to_strangers_count_too(make, client) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    ((entry, _),) = ForeignWorker(client).take()
    for consumer in ("b", "c"):
        client.xclaim("jobs:stream", "workers", consumer, 0, [entry])
    make_old(client, entry)
    assert (await make().recover()).ended == [job_id]


@pytest.mark.parametrize(
    ("profile", "most"),
    [
        ({"extra": {"max_deliveries": 1}}, 1),
        ({"max_stalls": 4}, 5),
        ({"max_stalls": 9, "extra": {"max_deliveries": 2}}, 2),
    ],
)
async def test_how_many_deliveries_is_a_setting(make, client, profile, most) -> None:
    broker = make(**profile)
    await broker.submit([Job(name="chat", data={}, queue="jobs")])
    deliveries = 0
    while True:
        (claim,) = (await broker.turn([], 1)).claims
        deliveries += 1
        make_old(client, claim.receipt.entry)
        recovery = await broker.recover()
        if recovery.ended:
            break
    assert deliveries == most


async def test_what_a_worker_finished_but_did_not_acknowledge_is_only_acknowledged(make, client) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    worker = ForeignWorker(client)
    ((entry, _),) = worker.take()
    worker.start(job_id)
    worker._update(job_id, status="done", result="7")
    worker._tell(job_id, "done")
    make_old(client, entry)
    recovery = await make().recover()
    assert (recovery.requeued, recovery.ended) == ([], [])
    assert client.hget(f"job:{job_id}", "result") == b"7"
    assert pending(client) == []
    assert client.xlen("jobs:stream") == 0


async def test_an_expired_job_of_a_silent_worker_is_only_acknowledged(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
    client.delete(f"job:{claim.job.id}", f"job:{claim.job.id}:events")
    make_old(client, claim.receipt.entry)
    recovery = await broker.recover()
    assert (recovery.requeued, recovery.ended) == ([], [])
    assert broker.skipped == {"expired": 1}
    assert not client.exists(f"job:{claim.job.id}")
    assert pending(client) == []


async def test_recovery_on_an_empty_server_writes_nothing(make, client) -> None:
    recovery = await make().recover()
    assert (recovery.claims, recovery.requeued, recovery.ended) == ((), [], [])
    assert client.keys() == []


async def test_two_recoveries_at_once_put_each_job_back_once(make, client) -> None:
    broker = make()
    ids = await submit(broker, [Job(name="chat", data={}, queue="jobs") for _ in range(40)])
    for claim in (await broker.turn([], 40)).claims:
        make_old(client, claim.receipt.entry)
    found = await asyncio.gather(*(make(f"r{n}").recover() for n in range(4)))
    assert sorted(job_id for recovery in found for job_id in recovery.requeued) == sorted(ids)
    assert client.xlen("jobs:stream") == 40


async def test_ten_thousand_abandoned_jobs_come_back_in_bounded_steps(make, client) -> None:
    gateway = ForeignGateway(client.pipeline(transaction=False))
    ids = [gateway.create("chat", {}) for _ in range(10_000)]
    gateway.client.execute()
    ForeignWorker(client).take(10_000)
    broker = make(extra={"stranger_idle_ms": 1})
    await outlast(0.01)
    client.config_resetstat()
    recovery = await broker.recover()
    assert sorted(recovery.requeued) == sorted(ids)
    stats = client.info("commandstats")
    calls = stats["cmdstat_evalsha"]["calls"]
    assert calls >= 10_000 / RECOVER_ROWS, "no single call looks at more than its share"
    assert stats["cmdstat_xpending"]["calls"] <= calls
    assert client.xlen("jobs:stream") == 10_000
    assert pending(client) == []


async def test_silent_strangers_do_not_hide_what_lies_behind_them(make, client) -> None:
    gateway = ForeignGateway(client.pipeline(transaction=False))
    for _ in range(1200):
        gateway.create("chat", {})
    gateway.client.execute()
    ForeignWorker(client).take(1200)
    claim = await claim_new(make("dead", lock_ms=1))
    await outlast(0.01)
    assert (await make("alive").recover()).requeued == [claim.job.id]
