"""Handles: the result of a job, however it came, and what a job can be asked meanwhile."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from corral import (
    Corral,
    JobContext,
    JobFailed,
    JobFilter,
    JobHandle,
    JobState,
    ResultGone,
    Transient,
    Unrecoverable,
    Unsupported,
)
from tests.support.apps import ended, working
from tests.support.polling import forever, until
from tests.support.proxy import Proxy, ProxyFault, runs
from tests.support.servers import Server

PROTOCOLS = pytest.mark.parametrize("protocol", ["bullmq", "streams", "bridgemq"])
NAME = "tool"


class GatewayDown(Exception):
    """An error of the user's own."""


@dataclass
class Receipt:
    number: int


@pytest.fixture
async def app(url: str) -> AsyncIterator[Corral]:
    async with Corral(url) as app:
        yield app


def connections(server: Server) -> list[str]:
    """The names of the connections that wait for results."""
    with server.connect() as client:
        return [one["name"] for one in client.client_list() if one["name"] == "corral:wait"]


# -- results ------------------------------------------------------------------------------------------------


@PROTOCOLS
async def test_a_result_is_awaited_and_has_its_type(app: Corral, protocol: str) -> None:
    @app.job(NAME, protocol=protocol)
    async def charge(number: int) -> Receipt:
        return Receipt(number)

    early = await charge.add(1)
    waiting = asyncio.create_task(early.result(timeout=timedelta(seconds=20)))
    async with working(app):
        assert await waiting == Receipt(1), "awaited before the worker started"
        assert await (await charge.add(2)).result(timeout=30) == Receipt(2)
        late = await charge.add(3)
        await ended(charge.queue, late.id)
        assert await late.result(timeout=30) == Receipt(3), "it came before the wait began"
    assert await late.result(timeout=30) == Receipt(3), "no worker runs any more"
    assert await late.wait(timeout=30) is JobState.COMPLETED


@PROTOCOLS
async def test_a_job_that_fails_says_why(app: Corral, protocol: str) -> None:
    retries = {} if protocol == "streams" else {"attempts": 2, "backoff": 10}

    @app.job(NAME, protocol=protocol, **retries)
    async def charge() -> None:
        raise ConnectionResetError("the bank hung up")

    async with working(app):
        handle = await charge.add()
        with pytest.raises(JobFailed, match="the bank hung up") as failure:
            await handle.result(timeout=30)
        assert await handle.wait() is JobState.DEAD
    assert (failure.value.job_id, failure.value.reason) == (handle.id, "the bank hung up")
    assert failure.value.error_class == "ConnectionResetError"
    assert "raise ConnectionResetError" in failure.value.trace
    assert failure.value.attempts == (1 if protocol == "streams" else 2)


@PROTOCOLS
async def test_a_thousand_results_cost_one_connection(app: Corral, server: Server, protocol: str) -> None:
    @app.job(NAME, protocol=protocol)
    async def double(number: int) -> int:
        return 2 * number

    handles = await double.add_many(range(1000))
    waiting = asyncio.gather(*(handle.result(timeout=60) for handle in handles))
    await until(lambda: _async(len(connections(server)) == 1), "the connection")
    async with working(app, concurrency=100):
        assert await waiting == [2 * number for number in range(1000)]
    assert len(connections(server)) <= 1


async def _async(value: Any) -> Any:
    return value


async def test_the_result_of_a_job_that_is_removed_when_it_completes_is_in_its_event(app: Corral) -> None:
    @app.job(queue="mail", remove_on_complete=True, remove_on_fail=True, attempts=1)
    async def double(number: int) -> int:
        if number < 0:
            raise Unrecoverable("below zero")
        return 2 * number

    async with working(app):
        assert await (await double.add(4)).result(timeout=30) == 8
        with pytest.raises(JobFailed, match="below zero"):
            await (await double.add(-1)).result(timeout=30)
        late = await double.add(5)
        await until(lambda: _gone(late), "its removal")
        assert await late.result(timeout=30) == 10


async def _gone(handle: Any) -> bool:
    return await handle.state() is None


async def test_events_that_were_trimmed_are_not_needed_while_the_job_is_there(
    app: Corral, server: Server
) -> None:
    @app.job(queue="mail")
    async def double(number: int) -> int:
        return 2 * number

    handle = await double.add(4)
    async with working(app):
        await ended(double.queue, handle.id)
    with server.connect() as client:
        client.xtrim("bull:mail:events", maxlen=0)
    assert await handle.result(timeout=30) == 8
    await double.queue.remove([handle.id])
    with server.connect() as client:
        client.xtrim("bull:mail:events", maxlen=0)
    with pytest.raises(ResultGone, match=f"job {handle.id} was removed, and no event tells how it ended"):
        await handle.result(timeout=30)


async def test_a_job_that_is_removed_while_it_is_awaited_is_gone(app: Corral) -> None:
    @app.job(queue="mail")
    async def double(number: int) -> int:
        return 2 * number

    handle = await double.add(4)
    waiting = asyncio.create_task(handle.result(timeout=30))
    await until(lambda: _async(double.queue.results._awaited), "the wait")
    await double.queue.remove(JobFilter())
    with pytest.raises(ResultGone):
        await waiting


async def test_a_result_that_takes_too_long_leaves_the_job_alone(app: Corral) -> None:
    @app.job(queue="mail")
    async def double(number: int) -> int:
        return 2 * number

    handle = await double.add(4)
    with pytest.raises(TimeoutError, match=r"job .* of queue .* has not ended within 0.05 s"):
        await handle.result(timeout=0.05)
    async with working(app):
        assert await handle.result(timeout=30) == 8


async def test_a_result_outlives_a_lost_connection(app: Corral, server: Server) -> None:
    @app.job(queue="mail")
    async def double(number: int) -> int:
        return 2 * number

    handle = await double.add(4)
    waiting = asyncio.create_task(handle.result(timeout=30))
    await until(lambda: _async(connections(server)), "the connection")
    with server.connect() as client:
        client.client_kill_filter(_type="normal", skipme=True)
    async with working(app):
        assert await waiting == 8


@PROTOCOLS
def test_a_plain_function_waits_for_a_result(url: str, protocol: str) -> None:
    app = Corral(url)

    @app.job(NAME, protocol=protocol)
    async def double(number: int) -> int:
        return 2 * number

    async def work_and_wait() -> int:
        async with working(app):
            return await (await double.add(4)).result(timeout=30)

    assert app.sync(work_and_wait()) == 8
    handle = app.sync(double.add(5))
    with pytest.raises(TimeoutError):
        app.sync(handle.result(timeout=0.05))
    app.sync(app.close())
    app.sync.close()


# -- the rest of a handle -----------------------------------------------------------------------------------


@PROTOCOLS
async def test_a_handle_tells_state_progress_logs_and_events(app: Corral, protocol: str) -> None:
    go_on = asyncio.Event()

    @app.job(NAME, protocol=protocol)
    async def slow(job: JobContext) -> str:
        await job.progress(50)
        await job.log("half")
        await go_on.wait()
        return "done"

    handle = await slow.add({})
    assert await handle.state() is JobState.WAITING
    seen = []

    async def watch() -> None:
        async for event in handle.events():
            seen.append(event.kind)

    async with working(app):
        watching = asyncio.create_task(watch())
        await until(lambda: handle.logs(), "its log")
        assert (await handle.state(), await handle.progress()) == (JobState.ACTIVE, 50)
        assert await handle.logs() == ["half"]
        go_on.set()
        assert await handle.result(timeout=30) == "done"
        await asyncio.wait_for(watching, 20)
    assert [kind for kind in seen if kind in ("added", "active", "progress", "completed")] == [
        "added", "active", "progress", "completed",
    ]  # fmt: skip


@PROTOCOLS
async def test_a_handle_cancels_and_retries_where_the_protocol_can(app: Corral, protocol: str) -> None:
    is_broken = True

    @app.job(NAME, protocol=protocol)
    async def flaky() -> str:
        if is_broken:
            raise Unrecoverable("not yet")
        return "at last"

    cancelled = await flaky.add()
    assert await cancelled.cancel(), "it waits"
    with pytest.raises((JobFailed, ResultGone)):
        await cancelled.result(timeout=30)
    async with working(app, lock_ms=400):
        handle = await flaky.add()
        assert await handle.wait(timeout=30) is JobState.DEAD
        is_broken = False
        if protocol == "streams":
            with pytest.raises(Unsupported, match="has no retry"):
                await handle.retry()
        else:
            assert await handle.retry()
            assert await handle.result(timeout=30) == "at last"
        assert not await handle.cancel(), "it has ended"


KNOWN: dict[str, dict[str, Any]] = {
    "bullmq": {"id": "order-17"},
    "streams": {"idempotency_key": "order-17"},
    "bridgemq": {"id": "order-17"},
}


@PROTOCOLS
async def test_a_job_that_was_there_already_is_the_stored_one(app: Corral, protocol: str) -> None:
    @app.job(NAME, protocol=protocol)
    async def double(number: int) -> int:
        return 2 * number

    once = double.options(**KNOWN[protocol])
    first, again = await once.add(4), await once.add(4)
    assert (first.existed, again.existed, again.id, again.data) == (False, True, first.id, {"number": 4})
    async with working(app):
        assert await asyncio.gather(first.result(20), again.result(20)) == [8, 8]


@PROTOCOLS
def test_a_plain_function_asks_a_handle_everything(url: str, protocol: str) -> None:
    app = Corral(url)

    @app.job(NAME, protocol=protocol)
    async def speak(job: JobContext, word: str) -> str:
        await job.progress(50)
        await job.log(word)
        return word.upper()

    async def work(handle: JobHandle[str]) -> JobState:
        async with working(app):
            return await handle.wait(timeout=30)

    async def kinds(handle: JobHandle[str]) -> list[str]:
        return [event.kind async for event in handle.events()]

    handle = app.sync(speak.add("moo"))
    assert app.sync(handle.state()) is JobState.WAITING
    assert app.sync(work(handle)) is JobState.COMPLETED
    assert (app.sync(handle.result()), app.sync(handle.progress())) == ("MOO", 50)
    assert app.sync(handle.logs()) == ["moo"]
    assert app.sync(kinds(handle))[-1] == "completed"
    assert not app.sync(handle.cancel())
    app.sync(app.close())
    app.sync.close()


async def test_a_handle_cancels_and_retries(app: Corral) -> None:
    is_broken = True

    @app.job(queue="mail", attempts=1)
    async def flaky() -> str:
        if is_broken:
            raise Transient("not yet")
        return "at last"

    @app.job(queue="mail", attempts=1)
    async def endless(job: JobContext) -> None:
        await forever()

    async with working(app, lock_ms=400):
        handle = await flaky.add()
        assert await handle.wait(timeout=30) is JobState.DEAD
        is_broken = False
        assert await handle.retry()
        assert await handle.result(timeout=30) == "at last"
        assert not await handle.cancel(), "it has ended"
    waiting = await endless.add()
    assert await waiting.cancel()
    assert await reached_none(waiting)


async def reached_none(handle: Any) -> bool:
    return await handle.state() is None


# -- what it costs ------------------------------------------------------------------------------------------


@PROTOCOLS
async def test_a_result_that_is_there_costs_one_round_trip(server: Server, protocol: str) -> None:
    with Proxy(server.port) as proxy:
        async with Corral(proxy.url) as app:

            @app.job(NAME, protocol=protocol)
            async def double(number: int) -> int:
                return 2 * number

            async with working(app):
                handles = await double.add_many([1, 2])
                assert await handles[0].result(timeout=30) == 2, (
                    "the connection is open, the scripts are known"
                )
                await ended(double.queue, handles[1].id)
            proxy.commands.clear()
            proxy.rule(lambda command: True, ProxyFault.HELD)
            waiting = asyncio.create_task(handles[1].result(timeout=30))
            await until(lambda: _async(len(proxy.commands) >= 2), "its commands, of which none is answered")
            in_one_trip = list(proxy.commands)
            proxy.let_go()
            assert await waiting == 4
            assert proxy.commands == in_one_trip


@PROTOCOLS
async def test_a_result_that_is_awaited_costs_one_round_trip_after_its_event(
    server: Server, protocol: str
) -> None:
    go_on = asyncio.Event()
    with Proxy(server.port) as proxy:
        async with Corral(server.url) as app, Corral(proxy.url) as other:

            @app.job(NAME, protocol=protocol)
            async def slow(job: JobContext) -> int:
                await go_on.wait()
                return 4

            async with working(app):
                handle = await other.queue(slow.queue.name, protocol).add(NAME, {})
                await until(lambda: _is(handle, JobState.ACTIVE), "its start")
                waiting = asyncio.create_task(handle.result(timeout=30))
                await until(lambda: _async(proxy.count(runs("XREAD")) == 1), "the wait for an event")
                proxy.commands.clear()
                go_on.set()
                assert await waiting == 4
    assert len(proxy.commands) == 2, "the position in the events and the job, sent together"


async def _is(handle: Any, state: JobState) -> bool:
    return bool(await handle.state() is state)


TRAFFIC = """
import sys, time, redis
client = redis.Redis.from_url(sys.argv[1])
one = "redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10000, '*', 'event', 'active', 'jobId', n)"
add = f"for n = 1, 1000 do {one} end"
count, end = 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    client.eval(add, 1, "bull:busy:events")
    count += 1000
print(count)
"""
SECONDS = 1.5


async def test_waiting_costs_next_to_nothing_however_busy_the_queue_is(app: Corral, server: Server) -> None:
    @app.job(queue="busy")
    async def double(number: int) -> int:
        return 2 * number

    waiting = [asyncio.create_task(handle.result()) for handle in await double.add_many(range(10))]
    await until(lambda: _async(connections(server)), "the connection")
    traffic = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAFFIC, server.url, str(SECONDS), stdout=asyncio.subprocess.PIPE
    )
    before, cpu = time.monotonic(), time.process_time()
    out, _ = await traffic.communicate()
    share = (time.process_time() - cpu) / (time.monotonic() - before)
    events = int(out) / SECONDS
    async with working(app):
        assert await asyncio.gather(*waiting) == [2 * number for number in range(10)]
    print(f"{share:.1%} of a core beside {events:,.0f} events a second")
    assert events > 20_000
    assert share < 0.05
