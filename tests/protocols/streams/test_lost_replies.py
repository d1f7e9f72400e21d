"""A turn of the streams protocol whose answer never arrives, through a wire that can be cut."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from corral.core.ports import Profile
from corral.errors import LockMissing, RedisConnectionError
from corral.protocols.base import Binding
from corral.protocols.streams.broker import StreamsBroker
from corral.store.client import Store
from tests.protocols.streams.steps import settlement, submit
from tests.support.foreign_client_streams import ForeignWorker, now_ms, pending, story
from tests.support.polling import becomes_true
from tests.support.servers import Server


class Wire:
    """Carries bytes to the server and back; can cut at an answer, keep answers, or hold requests."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.swallows_answers = False
        self.keeps_answers = False
        self.holds_requests = False
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        return f"redis://127.0.0.1:{port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above_reader, above_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        for carry in (self._ask(reader, writer, above_writer), self._answer(above_reader, writer)):
            task = asyncio.create_task(carry)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, on: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            if self.holds_requests:
                self._held.append((on, data))
                back.close()
                return
            on.write(data)
        on.close()

    async def _answer(self, reader: asyncio.StreamReader, on: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.swallows_answers:
                on.close()
                return
            if self.keeps_answers:
                self._held.append((on, data))
                continue
            if not on.is_closing():
                on.write(data)
        on.close()

    def let_go(self) -> None:
        """Hand on at last what was held."""
        for on, data in self._held:
            if not on.is_closing():
                on.write(data)
        self._held.clear()

    async def close(self) -> None:
        self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[Wire]:
    wire = Wire(server.port)
    yield wire
    await wire.close()


@pytest.fixture
async def broker(wire: Wire) -> AsyncIterator[StreamsBroker]:
    store = Store(await wire.open())
    broker = StreamsBroker(Binding(store, "jobs", "", now_ms, Profile(name="w1")))
    # the scripts are known to the server before any answer is lost
    await broker.turn([], 1)
    yield broker
    await broker.close()
    await store.close()


async def test_what_a_lost_trip_claimed_is_adopted_at_once(broker, wire, client) -> None:
    ids = await submit(broker, 3)
    (held,) = (await broker.turn([], 1)).claims
    wire.swallows_answers = True
    with pytest.raises(RedisConnectionError):
        await broker.turn([], 2)
    wire.swallows_answers = False
    owner = broker.unanswered
    assert owner is not None
    recovery = await broker.recover(owner)
    assert broker.unanswered is None
    assert [claim.job.id for claim in recovery.claims] == ids[1:]
    assert [claim.job.data for claim in recovery.claims] == [{"n": 1}, {"n": 2}]
    turn = await broker.turn([settlement(claim) for claim in (held, *recovery.claims)], 0)
    assert turn.verdicts == [None, None, None]
    assert all(story(client, job_id) == ["queued", "running", "done"] for job_id in ids)


async def test_an_adoption_whose_answer_is_lost_can_be_asked_again(broker, wire) -> None:
    ids = await submit(broker, 2)
    wire.swallows_answers = True
    with pytest.raises(RedisConnectionError):
        await broker.turn([], 2)
    with pytest.raises(RedisConnectionError):
        await broker.recover(broker.unanswered)
    wire.swallows_answers = False
    assert broker.unanswered is not None
    recovery = await broker.recover(broker.unanswered)
    assert [claim.job.id for claim in recovery.claims] == ids


async def test_settlements_of_a_lost_trip_are_answered_as_done_when_sent_again(broker, wire, client) -> None:
    (job_id,) = await submit(broker, 1)
    (claim,) = (await broker.turn([], 1)).claims
    wire.swallows_answers = True
    with pytest.raises(RedisConnectionError):
        await broker.turn([settlement(claim)], 0)
    wire.swallows_answers = False
    assert broker.unanswered is None
    (verdict,) = (await broker.turn([settlement(claim)], 0)).verdicts
    assert type(verdict) is LockMissing
    assert story(client, job_id) == ["queued", "running", "done"]


async def test_a_trip_that_never_arrived_left_nothing_to_adopt(broker, wire, client) -> None:
    ids = await submit(broker, 1)
    wire.holds_requests = True
    with pytest.raises(RedisConnectionError):
        await broker.turn([], 1)
    wire.holds_requests = False
    assert list((await broker.recover(broker.unanswered)).claims) == []
    assert pending(client) == []
    assert [claim.job.id for claim in (await broker.turn([], 1)).claims] == ids


async def test_a_trip_that_arrives_after_it_was_given_up_takes_nothing(broker, wire, client) -> None:
    await submit(broker, 2)
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    wire.holds_requests = True
    with pytest.raises(RedisConnectionError):
        await broker.turn([], 2)
    wire.holds_requests = False
    await broker.recover(broker.unanswered)
    (claim,) = (await broker.turn([], 1)).claims
    wire.let_go()
    assert await becomes_true(lambda: client.info("commandstats")["cmdstat_evalsha"]["calls"] >= calls + 3)
    assert pending(client) == [(claim.receipt.entry, "w1", 1)]


async def test_only_the_lost_trip_is_adopted_not_what_a_namesake_holds(broker, wire, client) -> None:
    ids = await submit(broker, 2)
    ForeignWorker(client, "w1").take(1)
    wire.swallows_answers = True
    with pytest.raises(RedisConnectionError):
        await broker.turn([], 1)
    wire.swallows_answers = False
    recovery = await broker.recover(broker.unanswered)
    assert [claim.job.id for claim in recovery.claims] == ids[1:]


async def test_what_was_taken_away_meanwhile_is_not_adopted(broker, wire, client) -> None:
    ids = await submit(broker, 3)
    wire.swallows_answers = True
    with pytest.raises(RedisConnectionError):
        await broker.turn([], 3)
    wire.swallows_answers = False
    entries = [entry for entry, _, _ in pending(client)]
    client.xclaim("jobs:stream", "workers", "other", 0, [entries[0]])
    client.xack("jobs:stream", "workers", entries[1])
    recovery = await broker.recover(broker.unanswered)
    assert [claim.job.id for claim in recovery.claims] == ids[2:]


async def test_one_claim_can_be_asked_for_by_its_receipt(broker) -> None:
    await submit(broker, 2)
    one, _ = (await broker.turn([], 2)).claims
    recovery = await broker.recover(one.receipt)
    assert [claim.receipt for claim in recovery.claims] == [one.receipt]
    assert recovery.claims[0].job.data == one.job.data
    await broker.turn([settlement(one)], 0)
    assert list((await broker.recover(one.receipt)).claims) == []


async def test_a_turn_that_was_cancelled_half_way_can_be_adopted(broker, wire, client) -> None:
    ids = await submit(broker, 1)
    wire.keeps_answers = True
    trip = asyncio.create_task(broker.turn([], 1))
    assert await becomes_true(lambda: pending(client))
    trip.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trip
    wire.keeps_answers = False
    wire.let_go()
    assert [claim.job.id for claim in (await broker.recover(broker.unanswered)).claims] == ids
