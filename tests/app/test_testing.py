"""corral.testing: jobs run until idle, time is moved, handlers are called directly."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import pytest

from corral import Corral, InvalidOptions, JobContext, JobState, SyncJobContext, testing
from corral.errors import Transient
from corral.testing.plugin import UseApp

pytestmark = pytest.mark.anyio
PROTOCOLS_WITH_DELAYS = ["bullmq", "bridgemq"]


@dataclass
class Order:
    id: int
    total: float


class Shop:
    """An app as a user's module has it, and what its handlers did."""

    def __init__(self, protocol: str) -> None:
        self.ran: list[str] = []
        self.app = app = Corral("redis://nowhere.invalid", protocol=protocol)
        ran = self.ran

        @app.job(queue="orders")
        async def charge(job: JobContext, order: Order) -> float:
            ran.append(f"charge {order.id}")
            await job.progress(50)
            await mail.add(f"charged {order.id}")
            return order.total

        @app.job(queue="mail")
        def mail(text: str) -> None:
            ran.append(text)

        self.charge, self.mail = charge, mail


@pytest.fixture
def shop(protocol: str, corral_app: UseApp) -> Shop:
    shop = Shop(protocol)
    corral_app(shop.app)
    return shop


@pytest.mark.parametrize("protocol", ["bullmq", "bridgemq"])
async def test_jobs_run_until_nothing_is_left(shop: Shop) -> None:
    handles = await shop.charge.add_many([Order(n, 1.5) for n in (1, 2, 3)])
    await testing.assert_added(shop.charge, Order(2, 1.5))
    assert [job.data["order"]["id"] for job in await testing.added(shop.charge)] == [1, 2, 3]
    assert await shop.app.run_until_idle() == 6
    assert shop.ran == ["charge 1", "charge 2", "charge 3", "charged 1", "charged 2", "charged 3"]
    job = await shop.charge.queue.job(handles[0].id)
    assert job is not None
    assert (job.state, job.result) == (JobState.COMPLETED, 1.5)
    assert await testing.added(shop.mail) == []
    assert await shop.app.run_until_idle() == 0
    await shop.app.close()


async def test_the_streams_protocol_runs_until_idle_too(corral_app: UseApp) -> None:
    app = corral_app(Corral("redis://nowhere.invalid", protocol="streams"))

    @app.job
    async def embed(job: JobContext, text: str) -> int:
        return len(text)

    handle = await embed.add("twelve chars")
    assert await app.run_until_idle() == 1
    job = await embed.queue.job(handle.id)
    assert job is not None
    assert job.result == 12
    await app.close()


@pytest.mark.parametrize("protocol", ["bullmq"])
async def test_what_was_not_added_fails_with_what_was(shop: Shop) -> None:
    await shop.charge.add(Order(1, 1.0))
    with pytest.raises(AssertionError, match=r"(?s)no job 'charge' was added with .*'id': 2.*those.*'id': 1"):
        await testing.assert_added(shop.charge, Order(2, 1.0))
    await shop.app.close()


@pytest.mark.parametrize("protocol", PROTOCOLS_WITH_DELAYS)
async def test_delayed_jobs_run_when_the_clock_has_moved(shop: Shop, corral_clock: testing.Clock) -> None:
    await shop.mail.options(delay=timedelta(minutes=5)).add("later")
    assert await shop.app.run_until_idle() == 0
    corral_clock.move(timedelta(minutes=4))
    assert await shop.app.run_until_idle() == 0
    corral_clock.move(timedelta(minutes=2))
    assert await shop.app.run_until_idle() == 1
    await shop.mail.options(delay=timedelta(hours=3)).add("much later")
    assert await shop.app.run_until_idle(through=timedelta(hours=2)) == 0
    assert await shop.app.run_until_idle(through=timedelta(hours=2)) == 1
    assert shop.ran == ["later", "much later"]
    await shop.app.close()


@pytest.mark.parametrize("protocol", PROTOCOLS_WITH_DELAYS)
async def test_retries_run_without_waiting(corral_app: UseApp, protocol: str) -> None:
    app = corral_app(Corral("redis://nowhere.invalid", protocol=protocol))
    attempts = []

    @app.job(queue="orders", attempts=4)
    async def flaky(job: JobContext) -> None:
        attempts.append(app.clock())
        raise Transient("not yet")

    handle = await flaky.add()
    assert await app.run_until_idle() == 1
    assert await app.run_until_idle(through=timedelta(hours=1)) == 3
    waits = [later - earlier for earlier, later in pairwise(attempts)]
    assert waits == [1000, 2000, 4000], "the backoff, to the millisecond"
    job = await flaky.queue.job(handle.id)
    assert job is not None
    assert job.state is JobState.DEAD
    await app.close()


@pytest.mark.parametrize("protocol", PROTOCOLS_WITH_DELAYS)
async def test_schedules_fire_as_time_passes(corral_app: UseApp, protocol: str) -> None:
    app = corral_app(Corral("redis://nowhere.invalid", protocol=protocol))
    ticks = []

    @app.job(queue="reports")
    async def report(job: JobContext) -> None:
        ticks.append(app.clock())

    app.schedule("report", cron="*/10 * * * *")
    await app.run_until_idle()
    ticks.clear()
    await app.run_until_idle(through=timedelta(hours=1))
    assert len(ticks) == 6
    assert {later - earlier for earlier, later in pairwise(ticks)} == {600_000}
    await app.close()


async def test_a_clock_that_cannot_be_moved_is_named(url: str) -> None:
    async with Corral(url) as app:
        app.job("work")(lambda job: None)
        with pytest.raises(InvalidOptions, match=r"use Corral\(clock=testing.Clock\(\)\)"):
            await app.run_until_idle(through=timedelta(hours=1))
    with pytest.raises(InvalidOptions, match="forward only"):
        testing.Clock().move(timedelta(seconds=-1))


async def test_an_app_has_its_own_server_and_clock_again_afterwards(url: str) -> None:
    app = Corral(url)
    own_clock = app.clock()
    with testing.using(app, url="redis://nowhere.invalid", clock=testing.Clock(5)):
        assert (app.url, app.clock()) == ("redis://nowhere.invalid", 5)
    assert app.url == url
    assert app.clock() >= own_clock
    await app.close()


def test_the_synchronous_api_works_in_tests_too(corral_app: UseApp) -> None:
    shop = Shop("bullmq")
    corral_app(shop.app)
    shop.app.sync(shop.mail.add("hello"))
    assert shop.app.sync(shop.app.run_until_idle()) == 1
    assert shop.ran == ["hello"]
    shop.app.sync(shop.app.close())
    shop.app.sync.close()


# -- direct calls -------------------------------------------------------------------------------------------


async def test_a_handler_called_directly_is_the_function_it_was() -> None:
    app = Corral("redis://nowhere.invalid")

    @app.job
    async def charge(job: JobContext[list[str]], order: Order) -> float:
        job.resources.append(f"order {order.id}")
        await job.progress(50, "authorised")
        await job.log("charged")
        await job.emit("paid", {"total": order.total})
        return order.total * job.attempt

    @app.job
    def pack(job: SyncJobContext[None], order: Order) -> int:
        job.progress(10)
        return job.log(f"packed {order.id}")

    bank: list[str] = []
    job = testing.context(bank, attempts_made=1)
    assert await charge(job, Order(17, 9.5)) == 19.0
    assert bank == ["order 17"]
    assert job.reports.progress == [{"progress": 50, "message": "authorised"}]
    assert (job.reports.log, job.reports.events) == (["charged"], [("paid", {"total": 9.5})])
    sync_job = testing.sync_context()
    assert pack(sync_job, Order(1, 1.0)) == 1
    assert (sync_job.reports.progress, sync_job.reports.log) == ([10], ["packed 1"])


async def test_all_jobs_of_a_run_have_the_same_resources(corral_app: UseApp) -> None:
    opened: list[int] = []
    used: list[int] = []

    @asynccontextmanager
    async def lifespan(app: Corral) -> AsyncIterator[int]:
        opened.append(len(opened))
        yield opened[-1]
        opened.append(-1)

    app = corral_app(Corral(lifespan=lifespan))

    @app.job(queue="orders")
    async def charge(job: JobContext[int], more: int) -> None:
        used.append(job.resources)
        if more:
            await charge.options(delay=timedelta(seconds=1)).add(more - 1)

    await charge.add(2)
    assert await app.run_until_idle(through=timedelta(seconds=5)) == 3
    assert (used, opened) == ([0, 0, 0], [0, -1])
