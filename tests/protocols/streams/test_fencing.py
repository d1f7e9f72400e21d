"""Who may end a job of the streams protocol."""

import pytest

from corral.core.job import Claim, Job
from corral.core.outcome import Completed, Dead, Released, Settlement
from corral.errors import LockMissing, LockStolen, RedisOutOfMemoryError
from tests.protocols.streams.steps import claim_new, settle
from tests.support.foreign_client_streams import (
    make_old,
    now_ms,
    pending,
    story,
)
from tests.support.polling import outlast

# -- the receipt --------------------------------------------------------------------------------------------


async def test_the_second_settlement_of_a_claim_is_refused(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
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
    claim = await claim_new(broker)
    turn = await broker.turn([Settlement(claim, outcome, now_ms()) for _ in range(2)], 0)
    assert [type(verdict) for verdict in turn.verdicts] == [type(None), LockMissing]
    assert len(story(client, claim.job.id)) == 3
    assert client.xlen("jobs:stream") == (1 if isinstance(outcome, Released) else 0)


async def test_a_settlement_after_a_stranger_took_the_entry_is_refused(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
    client.xclaim("jobs:stream", "workers", "stranger", 0, [claim.receipt.entry])
    before = client.hgetall(f"job:{claim.job.id}")
    assert type(await settle(broker, claim)) is LockStolen
    assert client.hgetall(f"job:{claim.job.id}") == before
    assert pending(client) == [(claim.receipt.entry, "stranger", 2)]


async def test_a_settlement_after_a_stranger_took_the_entry_uncounted_is_refused(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
    # JUSTID takes an entry over without counting a delivery: only the owner tells
    client.xclaim("jobs:stream", "workers", "stranger", 0, [claim.receipt.entry], justid=True)
    assert type(await settle(broker, claim)) is LockStolen
    assert pending(client) == [(claim.receipt.entry, "stranger", 1)]


async def test_a_settlement_from_an_earlier_delivery_to_ourselves_is_refused(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
    client.xclaim("jobs:stream", "workers", "w1", 0, [claim.receipt.entry])
    assert type(await settle(broker, claim)) is LockStolen
    assert pending(client) == [(claim.receipt.entry, "w1", 2)]


async def test_a_settlement_after_a_stranger_acknowledged_is_refused(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
    client.xack("jobs:stream", "workers", claim.receipt.entry)
    assert type(await settle(broker, claim)) is LockMissing


async def test_a_settlement_after_the_whole_server_was_emptied_is_refused(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
    client.flushall()
    assert type(await settle(broker, claim)) is LockMissing
    assert client.keys() == []


async def test_a_full_server_refuses_the_whole_turn_and_nothing_is_half_done(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
    await broker.submit([Job(name="chat", data={}, queue="jobs")])
    client.config_set("maxmemory", "100kb")
    try:
        with pytest.raises(RedisOutOfMemoryError):
            await settle(broker, claim)
        with pytest.raises(RedisOutOfMemoryError):
            await broker.turn([], 1)
        with pytest.raises(RedisOutOfMemoryError):
            await broker.submit([Job(name="chat", data={}, queue="jobs")])
        make_old(client, claim.receipt.entry)
        with pytest.raises(RedisOutOfMemoryError):
            await broker.recover()
    finally:
        client.config_set("maxmemory", "0")
    assert pending(client) == [(claim.receipt.entry, "w1", 1)]
    assert await settle(broker, claim) is None
    assert len((await broker.turn([], 1)).claims) == 1


# -- renewing -----------------------------------------------------------------------------------------------


async def test_renewing_starts_the_silence_anew_and_keeps_the_delivery_count(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
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
    claim = await claim_new(make("w1"))
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
    claim = await claim_new(broker)
    client.xtrim("jobs:stream", maxlen=0, approximate=False)
    assert not (await broker.extend([claim])).lost
    await outlast(0.01)
    recovery = await broker.recover()
    assert (recovery.requeued, recovery.ended) == ([], [])
    assert await settle(broker, claim) is None
    assert client.hget(f"job:{claim.job.id}", "status") == b"done"
