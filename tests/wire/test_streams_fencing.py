"""Who may end a job of the streams room, and what happens when its worker falls silent."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from corral.core.job import Claim, Job
from corral.core.outcome import Completed, Dead, Released, Settlement
from corral.core.ports import Profile, Why
from corral.errors import LockMissing, LockStolen, OutOfMemory, SettleError
from corral.store.connect import Store
from corral.wire.place import Place
from corral.wire.streams.broker import FORGET_WORKER_MS, RECOVER_ROWS, StreamsBroker
from corral.wire.streams.reporter import StreamsReporter
from tests.support.servers import Server
from tests.support.stranger_streams import (
    StrangerGateway,
    StrangerWorker,
    make_old,
    now_ms,
    pending,
    story,
)

MakeBroker = Callable[..., StreamsBroker]


@pytest.fixture
def client(server: Server) -> redis.Redis:
    return server.connect()


@pytest.fixture
def make(store: Store) -> MakeBroker:
    def make(name: str = "w1", clock: Callable[[], int] = now_ms, **profile: Any) -> StreamsBroker:
        return StreamsBroker(Place(store, "jobs", "", clock, Profile(name=name, **profile)))

    return make


async def a_claim(broker: StreamsBroker) -> Claim:
    await broker.submit([Job(name="chat", data={"n": 1}, queue="jobs")])
    (claim,) = (await broker.turn([], 1)).claims
    return claim


async def settle(broker: StreamsBroker, claim: Claim, outcome: Any = None) -> SettleError | None:
    (verdict,) = (await broker.turn([Settlement(claim, outcome or Completed(b"1"), now_ms())], 0)).verdicts
    return verdict


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 5) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := await condition():
            return answer
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to pass")


# -- the receipt --------------------------------------------------------------------------------------------


async def test_the_second_settlement_of_a_claim_is_refused(make, client) -> None:
    broker = make()
    claim = await a_claim(broker)
    assert await settle(broker, claim) is None
    before = client.dump(f"job:{claim.job.id}")
    verdict = await settle(broker, claim, Dead("no"))
    assert type(verdict) is LockMissing
    assert "not pending any more" in str(verdict)
    assert client.dump(f"job:{claim.job.id}") == before
    assert story(client, claim.job.id) == ["queued", "running", "done"]


@pytest.mark.parametrize("outcome", [Completed(b"1"), Dead("x"), Released()])
async def test_a_claim_that_stands_twice_in_one_batch_is_settled_once(make, client, outcome) -> None:
    broker = make()
    claim = await a_claim(broker)
    turn = await broker.turn([Settlement(claim, outcome, now_ms()) for _ in range(2)], 0)
    assert [type(verdict) for verdict in turn.verdicts] == [type(None), LockMissing]
    assert len(story(client, claim.job.id)) == 3
    assert client.xlen("jobs:stream") == (1 if isinstance(outcome, Released) else 0)


async def test_a_settlement_after_a_stranger_took_the_entry_is_refused(make, client) -> None:
    broker = make()
    claim = await a_claim(broker)
    client.xclaim("jobs:stream", "workers", "stranger", 0, [claim.receipt.entry])
    before = client.hgetall(f"job:{claim.job.id}")
    assert type(await settle(broker, claim)) is LockStolen
    assert client.hgetall(f"job:{claim.job.id}") == before
    assert pending(client) == [(claim.receipt.entry, "stranger", 2)]


async def test_a_settlement_from_an_earlier_delivery_to_ourselves_is_refused(make, client) -> None:
    broker = make()
    claim = await a_claim(broker)
    client.xclaim("jobs:stream", "workers", "w1", 0, [claim.receipt.entry])
    assert type(await settle(broker, claim)) is LockStolen
    assert pending(client) == [(claim.receipt.entry, "w1", 2)]


async def test_a_settlement_after_a_stranger_acknowledged_is_refused(make, client) -> None:
    broker = make()
    claim = await a_claim(broker)
    client.xack("jobs:stream", "workers", claim.receipt.entry)
    assert type(await settle(broker, claim)) is LockMissing


async def test_a_settlement_after_the_whole_server_was_emptied_is_refused(make, client) -> None:
    broker = make()
    claim = await a_claim(broker)
    client.flushall()
    assert type(await settle(broker, claim)) is LockMissing
    assert client.keys() == []


async def test_a_full_server_refuses_the_whole_turn_and_nothing_is_half_done(make, client) -> None:
    broker = make()
    claim = await a_claim(broker)
    await broker.submit([Job(name="chat", data={}, queue="jobs")])
    client.config_set("maxmemory", "100kb")
    try:
        with pytest.raises(OutOfMemory):
            await settle(broker, claim)
        with pytest.raises(OutOfMemory):
            await broker.turn([], 1)
        with pytest.raises(OutOfMemory):
            await broker.submit([Job(name="chat", data={}, queue="jobs")])
        make_old(client, claim.receipt.entry)
        with pytest.raises(OutOfMemory):
            await broker.recover()
    finally:
        client.config_set("maxmemory", "0")
    assert pending(client) == [(claim.receipt.entry, "w1", 1)]
    assert await settle(broker, claim) is None
    assert len((await broker.turn([], 1)).claims) == 1


# -- renewing -----------------------------------------------------------------------------------------------


async def test_renewing_starts_the_silence_anew_and_keeps_the_delivery_count(make, client) -> None:
    broker = make()
    claim = await a_claim(broker)
    make_old(client, claim.receipt.entry)
    extension = await broker.extend([claim])
    assert (list(extension.lost), list(extension.cancelled)) == ([], [])
    (row,) = client.xpending_range("jobs:stream", "workers", "-", "+", 1)
    assert row["time_since_delivered"] < 10_000
    assert row["times_delivered"] == 1
    assert (await broker.recover()).requeued == []
    assert await settle(broker, claim) is None


async def test_renewing_tells_which_claims_are_lost(make, client) -> None:
    broker = make()
    await broker.submit([Job(name="chat", data={}, queue="jobs") for _ in range(5)])
    kept, stolen, redelivered, acknowledged, expired = (await broker.turn([], 5)).claims
    client.xclaim("jobs:stream", "workers", "stranger", 0, [stolen.receipt.entry])
    client.xclaim("jobs:stream", "workers", "w1", 0, [redelivered.receipt.entry])
    client.xack("jobs:stream", "workers", acknowledged.receipt.entry)
    client.delete(f"job:{expired.job.id}")
    extension = await broker.extend([kept, stolen, redelivered, acknowledged, expired])
    assert extension.lost == [stolen, redelivered, acknowledged, expired]
    assert not client.exists(f"job:{expired.job.id}")


async def test_another_broker_of_the_same_worker_can_renew(make, client) -> None:
    claim = await a_claim(make("w1"))
    make_old(client, claim.receipt.entry)
    assert not (await make("w1").extend([claim])).lost
    assert (await make("w2").recover()).requeued == []


async def test_more_claims_than_a_call_takes_are_renewed_in_steps(make, client) -> None:
    broker = make()
    await broker.submit([Job(name="chat", data={}, queue="jobs") for _ in range(1100)])
    claims: list[Claim] = []
    while len(claims) < 1100:
        claims += (await broker.turn([], 200)).claims
    client.xack("jobs:stream", "workers", claims[700].receipt.entry)
    assert (await broker.extend(claims)).lost == [claims[700]]


async def test_a_claim_whose_entry_was_trimmed_away_can_still_be_renewed_and_settled(make, client) -> None:
    broker = make(lock_ms=1)
    claim = await a_claim(broker)
    client.xtrim("jobs:stream", maxlen=0, approximate=False)
    assert not (await broker.extend([claim])).lost
    await asyncio.sleep(0.01)
    recovery = await broker.recover()
    assert (recovery.requeued, recovery.ended) == ([], [])
    assert await settle(broker, claim) is None
    assert client.hget(f"job:{claim.job.id}", "status") == b"done"


# -- silence ------------------------------------------------------------------------------------------------


async def test_a_silent_workers_job_goes_back_to_the_queue(make, client) -> None:
    claim = await a_claim(make("dead", lock_ms=20))
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
    claim = await a_claim(late)
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
    claim = await a_claim(make("patient", lock_ms=3_600_000))
    make_old(client, claim.receipt.entry, 60_000)
    assert (await make("hasty", lock_ms=10).recover()).requeued == []
    make_old(client, claim.receipt.entry, 3_600_000)
    assert (await make("hasty", lock_ms=10).recover()).requeued == [claim.job.id]


async def test_a_stranger_is_given_more_time_for_it_cannot_renew(make, client) -> None:
    job_id = StrangerGateway(client).create("chat", {})
    ((entry, _),) = StrangerWorker(client).take()
    broker = make(lock_ms=10)
    make_old(client, entry, 299_000)
    assert (await broker.recover()).requeued == []
    assert (await make("x", extra={"stranger_idle_ms": 1000}).recover()).requeued == [job_id]


async def test_a_job_that_kills_its_workers_ends_after_three_deliveries(make, client) -> None:
    broker = make()
    (job_id,) = await broker.submit([Job(name="chat", data={}, queue="jobs")])
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
    job = StrangerGateway(client).read(job_id)
    assert job["status"] == "error"
    assert job["error"] == {"message": "abandoned: delivered 3 times, and no worker finished it"}
    assert story(client, job_id)[-1] == "error"
    assert client.xlen("jobs:stream") == 0
    assert pending(client) == []
    assert not client.exists(f"job:{job_id}:deliveries")


async def test_giving_back_spends_none_of_the_deliveries(make, client) -> None:
    broker = make()
    (job_id,) = await broker.submit([Job(name="chat", data={}, queue="jobs")])
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
    job_id = StrangerGateway(client).create("chat", {})
    ((entry, _),) = StrangerWorker(client).take()
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
    job_id = StrangerGateway(client).create("chat", {})
    worker = StrangerWorker(client)
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
    claim = await a_claim(broker)
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
    ids = await broker.submit([Job(name="chat", data={}, queue="jobs") for _ in range(40)])
    for claim in (await broker.turn([], 40)).claims:
        make_old(client, claim.receipt.entry)
    found = await asyncio.gather(*(make(f"r{n}").recover() for n in range(4)))
    assert sorted(job_id for recovery in found for job_id in recovery.requeued) == sorted(ids)
    assert client.xlen("jobs:stream") == 40


async def test_ten_thousand_abandoned_jobs_come_back_in_bounded_steps(make, client) -> None:
    gateway = StrangerGateway(client.pipeline(transaction=False))
    ids = [gateway.create("chat", {}) for _ in range(10_000)]
    gateway.client.execute()
    StrangerWorker(client).take(10_000)
    broker = make(extra={"stranger_idle_ms": 1})
    await asyncio.sleep(0.01)
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
    gateway = StrangerGateway(client.pipeline(transaction=False))
    for _ in range(1200):
        gateway.create("chat", {})
    gateway.client.execute()
    StrangerWorker(client).take(1200)
    claim = await a_claim(make("dead", lock_ms=1))
    await asyncio.sleep(0.01)
    assert (await make("alive").recover()).requeued == [claim.job.id]


# -- consumers ----------------------------------------------------------------------------------------------


def consumers(client: redis.Redis) -> list[str]:
    return sorted(row["name"].decode() for row in client.xinfo_consumers("jobs:stream", "workers"))


async def test_a_broker_that_closes_leaves_no_consumer_behind(make, client) -> None:
    broker = make("w1")
    claim = await a_claim(broker)
    await settle(broker, claim)
    assert consumers(client) == ["w1"]
    await broker.close()
    assert consumers(client) == []
    assert client.keys("jobs:workers") == []
    assert client.keys("jobs:trip:*") == []


async def test_a_broker_that_closes_with_work_in_hand_keeps_its_consumer(make, client) -> None:
    broker = make("w1", lock_ms=1)
    claim = await a_claim(broker)
    await broker.close()
    assert pending(client) == [(claim.receipt.entry, "w1", 1)]
    await asyncio.sleep(0.01)
    assert (await make("w2").recover()).requeued == [claim.job.id]


async def test_a_consumer_that_went_silent_is_forgotten_once_it_holds_nothing(make, client) -> None:
    dead = make("dead", lambda: now_ms() - FORGET_WORKER_MS - 1000)
    claim = await a_claim(dead)
    idle = make("idle", lambda: now_ms() - FORGET_WORKER_MS - 1000)
    await idle.turn([], 1)
    client.xgroup_createconsumer("jobs:stream", "workers", "stranger")
    alive = make("alive")
    await alive.turn([], 1)
    await alive.recover()
    assert consumers(client) == ["alive", "dead", "stranger"]
    make_old(client, claim.receipt.entry)
    await alive.recover()
    assert consumers(client) == ["alive", "stranger"]
    assert list(client.hgetall("jobs:workers")) == [b"alive"]


async def test_a_beating_worker_stands_in_the_group_and_goes_when_it_stops(store, client) -> None:
    reporter = StreamsReporter(Place(store, "jobs", "", now_ms, Profile(name="w1")))
    await reporter.beat()
    await reporter.beat()
    assert consumers(client) == ["w1"]
    await reporter.beat(stopping=True)
    assert consumers(client) == []
    assert not client.exists("jobs:workers")


# -- waiting ------------------------------------------------------------------------------------------------


async def test_an_idle_worker_is_woken_by_a_new_job(make, client) -> None:
    broker = make()
    rest = (await broker.turn([], 1)).rest
    waiting = asyncio.create_task(broker.wait(rest))
    await until(lambda: _is_blocked(client, "corral:streams:w1"))
    began = time.monotonic()
    StrangerGateway(client).create("chat", {})
    await asyncio.wait_for(waiting, 2)
    assert time.monotonic() - began < 1
    assert len((await broker.turn([], 1)).claims) == 1
    await broker.close()


async def _is_blocked(client: redis.Redis, name: str) -> bool:
    return any(row["name"] == name and "b" in row["flags"] for row in client.client_list())


async def test_a_job_that_came_between_turn_and_wait_is_not_missed(make, client) -> None:
    broker = make()
    claim = await a_claim(broker)
    rest = (await broker.turn([Settlement(claim, Completed(), now_ms())], 1)).rest
    assert rest.why is Why.DRAINED
    StrangerGateway(client).create("chat", {})
    await asyncio.wait_for(broker.wait(rest), 1)
    await broker.close()


async def test_a_job_put_back_wakes_idle_workers(make, client) -> None:
    holder, idle = make("holder"), make("idle")
    claim = await a_claim(holder)
    waiting = asyncio.create_task(idle.wait((await idle.turn([], 1)).rest))
    await until(lambda: _is_blocked(client, "corral:streams:idle"))
    await settle(holder, claim, Released())
    await asyncio.wait_for(waiting, 2)
    (again,) = (await idle.turn([], 1)).claims
    assert again.job.id == claim.job.id
    await idle.close()


async def test_a_wait_that_was_cancelled_can_be_begun_again(make, client) -> None:
    broker = make("a worker")
    rest = (await broker.turn([], 1)).rest
    waiting = asyncio.create_task(broker.wait(rest))
    await until(lambda: _is_blocked(client, "corral:streams:a_worker"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    again = asyncio.create_task(broker.wait(rest))
    await until(lambda: _is_blocked(client, "corral:streams:a_worker"))
    StrangerGateway(client).create("chat", {})
    await asyncio.wait_for(again, 2)
    await broker.close()


async def test_after_a_satisfied_turn_nothing_is_waited_for(make, client) -> None:
    broker = make()
    await broker.submit([Job(name="chat", data={}, queue="jobs") for _ in range(2)])
    rest = (await broker.turn([], 1)).rest
    assert rest.why is Why.SATISFIED
    await asyncio.wait_for(broker.wait(rest), 1)


async def test_nothing_is_ever_due_for_promotion(make) -> None:
    assert await make().promote() == 0
