"""Turns of the bullmq protocol: settlements beside others, and the marker that wakes workers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest
import redis

from corral.core.outcome import Retry
from corral.errors import LockStolen, NotActive, SettlementFailed
from corral.store.client import Store
from tests.support.harness import QueueHarness
from tests.support.jobs import submit
from tests.support.polling import becomes_true
from tests.support.servers import Server

COUNTS = (3, 9)
"""Few are searched for one by one; of many the list of active jobs is read once."""


@pytest.fixture
async def harness(store: Store) -> AsyncIterator[QueueHarness]:
    async with QueueHarness("bullmq", store) as harness:
        yield harness


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with closing(server.connect()) as client:
        yield client


@pytest.mark.parametrize("count", COUNTS)
async def test_a_job_that_others_took_from_the_active_ones_is_not_settled(harness, client, count):
    broker = harness.broker()
    await submit(broker, [harness.job() for _ in range(count)])
    claims = (await broker.turn([], count)).claims
    taken = claims[0].job.id
    client.lrem("bull:default:active", 1, taken)
    verdicts = (await broker.turn([harness.settle(claim) for claim in claims], 0)).verdicts
    assert [type(verdict) for verdict in verdicts] == [NotActive] + [type(None)] * (count - 1)
    assert client.zscore("bull:default:completed", taken) is None
    assert client.hget(f"bull:default:{taken}", "returnvalue") is None


@pytest.mark.parametrize("count", COUNTS)
async def test_a_settlement_that_the_server_cannot_write_leaves_its_job_held_and_its_neighbours_alone(
    harness, client, count
):
    broker = harness.broker()
    await submit(broker, [harness.job() for _ in range(count)])
    first, *others = (await broker.turn([], count)).claims
    client.set("bull:default:delayed", "no sorted set")
    settlements = [harness.settle(first, Retry(1000, "later")), *map(harness.settle, others)]
    verdicts = (await broker.turn(settlements, 0)).verdicts
    assert [type(verdict) for verdict in verdicts] == [SettlementFailed] + [type(None)] * (count - 1)
    assert client.lrange("bull:default:active", 0, -1) == [first.job.id.encode()]
    assert (await broker.extend([first])).lost == []


async def test_a_claim_sets_the_marker_again_for_the_next_worker(harness, client):
    broker = harness.broker()
    await submit(broker, [harness.job(), harness.job()])
    assert client.zpopmin("bull:default:marker") == [(b"0", 0.0)]  # as the first worker that waits does
    await harness.claim(broker)
    assert client.zrange("bull:default:marker", 0, -1) == [b"0"]


@pytest.mark.parametrize("priority", [0, 1])
async def test_jobs_that_do_not_fit_into_one_answer_stay_in_their_order(harness, priority):
    broker = harness.broker()
    large = "x" * 1_500_000
    ids = await submit(broker, [harness.job({"n": n, "text": large}, priority=priority) for n in range(5)])
    claimed = []
    while len(claimed) < len(ids):
        turn = await broker.turn([], len(ids))
        assert 0 < len(turn.claims) < len(ids)
        claimed += [claim.job.id for claim in turn.claims]
    assert claimed == ids


async def test_the_lock_of_another_attempt_is_not_renewed(harness, client):
    broker = harness.broker()
    await submit(broker, [harness.job()])
    claim = await harness.claim(broker)
    client.set(f"bull:default:{claim.job.id}:lock", "another attempt's", px=5000)
    assert (await broker.extend([claim])).lost == [claim]
    assert client.pttl(f"bull:default:{claim.job.id}:lock") <= 5000


async def test_a_recovered_job_wakes_a_worker(harness, client):
    broker = harness.broker(recover_ms=1)
    await submit(broker, [harness.job()])
    claim = await harness.claim(broker)
    client.delete(f"bull:default:{claim.job.id}:lock")
    for _ in range(2):
        client.delete("bull:default:marker", "bull:default:stalled-check")
        recovery = await broker.recover()
    assert list(recovery.requeued) == [claim.job.id]
    assert client.zrange("bull:default:marker", 0, -1) == [b"0"]


async def test_only_what_one_trip_claimed_is_adopted(harness):
    broker, other = harness.broker(), harness.broker("another")
    await submit(broker, [harness.job(), harness.job()])
    claim, _ = await harness.claim(broker), await harness.claim(other)
    adopted = (await broker.recover(owner=claim.receipt)).claims
    assert [one.job.id for one in adopted] == [claim.job.id]


async def test_a_promoted_job_wakes_a_worker(harness, client):
    harness.now = 1_000_000
    broker = harness.broker()
    await submit(broker, [harness.job(delay=1000)])
    client.delete("bull:default:marker")
    harness.now += 1000
    assert await broker.promote() == 1
    assert client.zrange("bull:default:marker", 0, -1) == [b"0"]


async def test_an_attempt_under_the_lock_of_another_reports_nothing(harness, client):
    broker = harness.broker()
    await submit(broker, [harness.job()])
    claim = await harness.claim(broker)
    client.set(f"bull:default:{claim.job.id}:lock", "another attempt's")
    with pytest.raises(LockStolen):
        await harness.reporter().progress(claim, 50)
    assert client.hget(f"bull:default:{claim.job.id}", "progress") is None


async def test_a_worker_that_stops_while_it_waits_leaves_the_marker_to_others(harness, client):
    broker, producer = harness.broker(), harness.broker("producer")
    waiting = asyncio.create_task(broker.wait((await broker.turn([], 1)).rest))
    assert await becomes_true(lambda: is_blocked(client))
    waiting.cancel()
    await submit(producer, [harness.job()])
    client.delete("bull:default:marker")  # the server may have given it to the connection that waited
    await broker.close()
    assert client.zrange("bull:default:marker", 0, -1) == [b"0"]


def is_blocked(client):
    return client.info("clients")["blocked_clients"] > 0
