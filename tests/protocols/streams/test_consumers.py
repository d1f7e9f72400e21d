"""Workers of the streams protocol come, wait and go, and leave nothing behind."""

import asyncio
import time

import pytest
import redis

from corral.core.job import Job
from corral.core.outcome import Completed, Released, Settlement
from corral.core.ports import Profile, RestReason
from corral.protocols.base import Binding
from corral.protocols.streams.broker import FORGET_WORKER_MS
from corral.protocols.streams.reporter import StreamsReporter
from tests.protocols.streams.steps import claim_new, settle
from tests.support.foreign_client_streams import (
    ForeignGateway,
    make_old,
    now_ms,
    pending,
)
from tests.support.polling import outlast, until

# -- consumers ----------------------------------------------------------------------------------------------


def consumers(client: redis.Redis) -> list[str]:
    return sorted(row["name"].decode() for row in client.xinfo_consumers("jobs:stream", "workers"))


async def test_a_broker_that_closes_leaves_no_consumer_behind(make, client) -> None:
    broker = make("w1")
    claim = await claim_new(broker)
    await settle(broker, claim)
    assert consumers(client) == ["w1"]
    await broker.close()
    assert consumers(client) == []
    assert client.keys("jobs:workers") == []
    assert client.keys("jobs:trip:*") == []


async def test_a_broker_that_closes_with_work_in_hand_keeps_its_consumer(make, client) -> None:
    broker = make("w1", lock_ms=1)
    claim = await claim_new(broker)
    await broker.close()
    assert pending(client) == [(claim.receipt.entry, "w1", 1)]
    await outlast(0.01)
    assert (await make("w2").recover()).requeued == [claim.job.id]


async def test_a_consumer_that_went_silent_is_forgotten_once_it_holds_nothing(make, clock, client) -> None:
    clock.offset_ms = -FORGET_WORKER_MS - 1000
    claim = await claim_new(make("dead"))
    await make("idle").turn([], 1)
    clock.offset_ms = 0
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
    reporter = StreamsReporter(Binding(store, "jobs", "", now_ms, Profile(name="w1")))
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
    ForeignGateway(client).create("chat", {})
    await waiting
    assert time.monotonic() - began < 4, "not the end of its block"
    assert len((await broker.turn([], 1)).claims) == 1
    await broker.close()


async def _is_blocked(client: redis.Redis, name: str) -> bool:
    return any(row["name"] == name and "b" in row["flags"] for row in client.client_list())


async def test_a_job_that_came_between_turn_and_wait_is_not_missed(make, client) -> None:
    broker = make()
    claim = await claim_new(broker)
    rest = (await broker.turn([Settlement(claim, Completed(), now_ms())], 1)).rest
    assert rest.reason is RestReason.DRAINED
    ForeignGateway(client).create("chat", {})
    await asyncio.wait_for(broker.wait(rest), 1)
    await broker.close()


async def test_a_job_put_back_wakes_idle_workers(make, client) -> None:
    holder, idle = make("holder"), make("idle")
    claim = await claim_new(holder)
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
    ForeignGateway(client).create("chat", {})
    await asyncio.wait_for(again, 2)
    await broker.close()


async def test_after_a_satisfied_turn_nothing_is_waited_for(make, client) -> None:
    broker = make()
    await broker.submit([Job(name="chat", data={}, queue="jobs") for _ in range(2)])
    rest = (await broker.turn([], 1)).rest
    assert rest.reason is RestReason.SATISFIED
    await asyncio.wait_for(broker.wait(rest), 1)


async def test_nothing_is_ever_due_for_promotion(make) -> None:
    assert await make().promote() == 0
