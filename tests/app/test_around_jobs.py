"""What an app puts around its jobs: resources, middleware, listeners, and layers around adding."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import pytest
from msgspec.structs import replace

from corral import (
    Added,
    Corral,
    InvalidOptions,
    Job,
    JobContext,
    JobFailed,
    SyncJobContext,
    Transient,
    WorkerEvent,
)
from tests.support import process_app
from tests.support.apps import ended, working
from tests.support.polling import becomes_true


@dataclass
class Resources:
    name: str
    is_open: bool = True


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


# -- resources ----------------------------------------------------------------------------------------------


async def test_handlers_share_what_the_lifespan_yields(url: str) -> None:
    opened: list[Resources] = []

    @asynccontextmanager
    async def lifespan(app: Corral) -> AsyncIterator[Resources]:
        assert isinstance(app, Corral)
        async with asyncio.TaskGroup() as group:  # it must be left by the task that entered it
            idle = group.create_task(asyncio.sleep(60))
            opened.append(Resources("bank"))
            yield opened[-1]
            idle.cancel()
        opened[-1].is_open = False

    async with Corral(url, lifespan=lifespan) as app:

        @app.job(queue="orders")
        async def charge(job: JobContext[Resources], order: int) -> list[Any]:
            return [order, job.resources.name, job.resources.is_open]

        @app.job(queue="images")
        def thumbnail(job: SyncJobContext[Resources]) -> str:
            return job.resources.name

        async with working(app):
            assert await (await charge.add(17)).result(20) == [17, "bank", True]
            assert await (await thumbnail.add({})).result(20) == "bank"
            assert opened == [Resources("bank")], "two workers, one lifespan"
        assert not opened[0].is_open


async def test_a_lifespan_that_fails_ends_the_worker_before_its_first_claim(url: str) -> None:
    @asynccontextmanager
    async def lifespan(app: Corral) -> AsyncIterator[None]:
        raise RuntimeError("no bank")
        yield

    async with Corral(url, lifespan=lifespan) as app:

        @app.job(queue="orders")
        async def charge(order: int) -> None: ...

        handle = await charge.add(1)
        with pytest.raises(RuntimeError, match="no bank"):
            await app.run()
        assert await handle.state() == "waiting"


async def test_without_a_lifespan_there_are_no_resources(app: Corral) -> None:
    @app.job
    async def look(job: JobContext) -> bool:
        return job.resources is None

    async with working(app):
        assert await (await look.add({})).result(20)


# -- middleware ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
async def test_middleware_sees_and_replaces_results_and_errors(app: Corral, is_async: bool) -> None:
    seen: list[Any] = []

    @app.middleware
    async def outer(job: Any, call_next: Any) -> Any:
        seen.append(("outer", job.name, job.attempt))
        return await call_next(job)

    @app.middleware
    async def inner(job: Any, call_next: Any) -> Any:
        try:
            result = await call_next(job)
        except KeyError as error:
            seen.append(error)
            raise Transient("replaced") from error
        seen.append(result)
        return Resources(f"{result.name}!") if isinstance(result, Resources) else result

    async def work(number: int) -> Resources:
        return _work(number)

    def work_in_thread(number: int) -> Resources:
        return _work(number)

    def _work(number: int) -> Resources:
        if number < 0:
            raise KeyError("below zero")
        return Resources("bank")

    kind = app.job("work", attempts=1)(work if is_async else work_in_thread)
    async with working(app):
        assert await (await kind.add(1)).result(20) == Resources("bank!"), "the result itself, not its JSON"
        with pytest.raises(JobFailed, match="replaced"):
            await (await kind.add(-1)).result(20)
    assert [seen[0], seen[1], seen[2]] == [("outer", "work", 1), Resources("bank"), ("outer", "work", 1)]
    assert isinstance(seen[3], KeyError)


async def test_resources_and_middleware_are_there_in_a_process(url: str) -> None:
    async with Corral(url) as producer:
        queue = producer.queue("heavy")
        async with working(process_app.app_at(url)):
            heavy = await queue.add("heavy", {"number": 3})
            slow = await queue.add("slow", {"number": 4})
            jobs = [await ended(queue, handle.id) for handle in (heavy, slow)]
    assert [(job.reason, job.result) for job in jobs] == [
        (None, {"text": "3 bank, through middleware"}),
        (None, {"text": "4 bank, through middleware"}),
    ]


async def test_no_middleware_costs_nothing(app: Corral) -> None:
    @app.job
    async def raw(job: JobContext) -> None: ...

    [worker] = app.workers()
    handler = worker.config.handlers.find("raw")
    assert worker.config.handlers is app.handlers(raw.queue)
    assert handler is not None
    assert handler.fn is raw.__wrapped__  # type: ignore[attr-defined]
    assert worker.config.listener is None


async def test_plain_middleware_runs_in_the_thread_of_a_sync_handler_inside_of_the_async_ones(
    app: Corral,
) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[Any] = []

    @app.middleware
    def in_thread(job: Any, call_next: Any) -> Any:
        seen.append((job.name, get_ident()))
        return f"{call_next(job)}!"

    @app.middleware
    async def on_the_loop(job: Any, call_next: Any) -> Any:
        tenant.set("acme")
        return f"{await call_next(job)}?"

    @app.job
    def blocking() -> str:
        seen.append(get_ident())
        return tenant.get()

    @app.job
    async def awaited() -> str:
        return tenant.get()

    async with working(app):
        assert await (await blocking.add()).result(20) == "acme!?"
        assert await (await awaited.add()).result(20) == "acme?"
    [(name, thread), handlers_thread] = seen
    assert name == "blocking"
    assert thread == handlers_thread != get_ident()


async def test_a_layer_around_adding_that_is_no_coroutine_function_is_refused(app: Corral) -> None:
    def plain(jobs: Any, call_next: Any) -> Any: ...

    with pytest.raises(InvalidOptions, match="use an `async def` with two parameters"):
        app.on_add(plain)


# -- adding, and events of workers --------------------------------------------------------------------------


async def test_on_add_sees_and_replaces_jobs(app: Corral) -> None:
    calls: list[int] = []

    @app.on_add
    async def stamp(jobs: Sequence[Job], call_next: Any) -> Sequence[Added]:
        calls.append(len(jobs))
        added: Sequence[Added] = await call_next(
            [replace(job, data={**job.data, "tenant": "acme"}) for job in jobs]
        )
        return added

    @app.job(queue="mail")
    async def send(to: str, tenant: str = "") -> str:
        return f"{to} {tenant}"

    async with working(app):
        one = await send.add("ada")
        assert one.data == {"to": "ada", "tenant": "acme"}
        assert await one.result(20) == "ada acme"
        for handle in await send.add_many(["grace", "joan"]):
            assert (await handle.result(20)).endswith(" acme")
        await app.queue("mail").add_many([("send", {"to": "by name"})])
    assert calls == [1, 2, 1]


async def test_every_listener_hears_every_event(app: Corral) -> None:
    heard: list[list[str]] = [[], [], []]

    @app.listener
    def broken(event: WorkerEvent) -> None:
        heard[0].append(event.kind)
        raise ValueError("a listener of poor quality")

    @app.listener
    def second(event: WorkerEvent) -> None:
        heard[1].append(event.kind)

    def third(event: WorkerEvent) -> None:
        heard[2].append(event.kind)

    @app.job
    async def work(number: int) -> None: ...

    async with working(app, listener=third):
        await (await work.add(1)).result(20)
        assert await becomes_true(lambda: "settled" in heard[2])
    assert heard[0] == heard[1] == heard[2]
    assert {"active", "settled"} <= set(heard[0])
