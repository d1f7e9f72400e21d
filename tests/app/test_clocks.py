"""Machines whose clocks are wrong: due times follow the server's clock."""

import time

import pytest

import corral.app
from corral import Corral, Transient
from corral.core.options import Capability
from corral.protocols import names_with
from corral.worker import wall_clock
from tests.support.apps import ended, working
from tests.support.logs import capture_logs
from tests.support.servers import Server

MINUTES_10 = 600_000
DELAY_MS = 700


@pytest.fixture(params=names_with(Capability.DELAY))
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[MINUTES_10, -MINUTES_10], ids=["ahead", "behind"])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps made while it is used run on a machine whose clock is wrong."""
    monkeypatch.setattr(corral.app, "wall_clock", lambda: wall_clock() + request.param)


def made(server: Server, protocol: str, begun: list[float]) -> Corral:
    """An app whose only handler notes when it begins, and fails once."""
    app = Corral(server.url, protocol=protocol)

    @app.job("work", attempts=2, backoff=DELAY_MS)
    async def work(job):
        begun.append(time.monotonic())
        if job.attempt == 1:
            raise Transient("once more")

    return app


def assert_on_time(start: float, begun: list[float], delay_ms: int = DELAY_MS) -> None:
    """The delay and the backoff took as long as they should; a busy machine may be late."""
    waits = [begun[0] - start, begun[1] - begun[0]]
    assert [delay_ms / 1000 - 0.05 <= wait <= delay_ms / 1000 + 3 for wait in waits] == [True, True], waits


@pytest.mark.usefixtures("wrong_clock")
async def test_delays_and_backoffs_are_right_beside_a_worker_whose_clock_is_wrong(
    server: Server, protocol: str
):
    begun: list[float] = []
    with capture_logs() as logs:
        async with (
            made(server, protocol, begun) as worker,
            Corral(server.url, protocol=protocol, clock=wall_clock) as producer,
            working(worker),
        ):
            start = time.monotonic()
            job = await producer.queue().add("work", {}, delay=DELAY_MS, attempts=2, backoff=DELAY_MS)
            await ended(producer.queue(), job.id, seconds=10)
    assert_on_time(start, begun)
    [warning] = [log for log in logs if "clock" in log["event"]]
    assert warning["log_level"] == "warning"
    assert "600.0 s" in warning["event"]


@pytest.mark.usefixtures("wrong_clock")
@pytest.mark.parametrize("is_list", [False, True])
async def test_the_first_delay_of_a_producer_whose_clock_is_wrong_is_right(
    server: Server, protocol: str, is_list: bool, monkeypatch: pytest.MonkeyPatch
):
    begun: list[float] = []
    async with Corral(server.url, protocol=protocol) as producer:
        monkeypatch.undo()
        async with made(server, protocol, begun) as worker, working(worker):
            options = {"delay": DELAY_MS, "attempts": 2, "backoff": DELAY_MS}
            start = time.monotonic()
            if is_list:
                [job_id] = await producer.queue().add_many([("work", {})], **options)
            else:
                job_id = (await producer.queue().add("work", {}, **options)).id
            await ended(worker.queue(), job_id, seconds=10)
    assert_on_time(start, begun)


@pytest.mark.faults
async def test_a_delay_of_6_s_takes_6_s_beside_a_worker_10_minutes_ahead(
    server: Server, protocol: str, monkeypatch: pytest.MonkeyPatch
):
    begun: list[float] = []
    monkeypatch.setattr(corral.app, "wall_clock", lambda: wall_clock() + MINUTES_10)
    async with made(server, protocol, begun) as worker:
        monkeypatch.undo()
        async with Corral(server.url, protocol=protocol) as producer, working(worker):
            start = time.monotonic()
            job = await producer.queue().add("work", {}, delay=6000, attempts=2, backoff=6000)
            await ended(producer.queue(), job.id, seconds=20)
    assert_on_time(start, begun, 6000)


async def test_the_time_is_asked_for_when_a_store_is_first_used_and_not_for_each_job(
    server: Server, protocol: str
):
    def asked() -> int:
        with server.connect() as client:
            return int(client.info("commandstats").get("cmdstat_time", {}).get("calls", 0))

    before = asked()
    async with Corral(server.url, protocol=protocol) as app:
        for number in range(20):
            await app.queue().add("work", {"n": number})
    assert asked() == before + 1


async def test_a_clock_that_was_given_is_taken_as_it_is(server: Server, protocol: str):
    async with Corral(server.url, protocol=protocol, clock=lambda: 1_700_000_000_000) as app:
        job = await app.queue().add("work", {})
        stored = await app.queue().job(job.id)
    assert stored is not None
    assert stored.created_at == 1_700_000_000_000
