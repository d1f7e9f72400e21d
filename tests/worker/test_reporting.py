"""Progress, log lines and events of a handler outlast an outage shorter than its lock."""

import asyncio
import re
import threading
from collections.abc import Callable
from itertools import count

import pytest

from corral.core.job import JobState
from corral.core.ports import Profile
from corral.errors import LockMissing, RedisConnectionError
from corral.protocols import protocol_names
from corral.worker import WorkerEventKind
from tests.support import process_handlers
from tests.support.jobs import submit
from tests.support.polling import becomes_true, outlast
from tests.support.proxy import Command, Proxy, ProxyFault
from tests.support.worker_harness import WorkerHarness

LINES = [f"line {number}" for number in range(process_handlers.LINES)]


def add_narrators(harness: WorkerHarness) -> None:
    """Handlers that report in each of the ways a handler runs; the names are known to every protocol."""
    harness.handlers.add("chat", process_handlers.narrate_async)
    harness.handlers.add("plan", process_handlers.narrate)
    harness.handlers.add("code", process_handlers.narrate, process=True)


async def submit_narrators(harness: WorkerHarness) -> list[str]:
    return await submit(harness.producer, [harness.job(name=name) for name in ("chat", "plan", "code")])


async def check_all_was_reported(harness: WorkerHarness, ids: list[str]) -> None:
    for job in await harness.ended(*ids, seconds=30):
        assert (job.state, job.attempts_made, job.reason) == (JobState.COMPLETED, 1, None), job.name
        assert await harness.inspector.logs(job.id) == LINES, job.name
        events = re.findall(r"step-\d+", str(await harness.events.of_job(job)))
        assert events == [f"step-{number}" for number in range(len(LINES))], job.name
    assert harness.reported(WorkerEventKind.LOST) == []


@pytest.mark.parametrize("protocol", protocol_names())
async def test_handlers_report_through_an_outage(server, protocol):
    with Proxy(server.port) as proxy:
        async with WorkerHarness(server.url, proxy.url, protocol) as harness:
            add_narrators(harness)
            async with harness.worker():
                ids = await submit_narrators(harness)
                for job_id in ids:
                    assert await becomes_logged(harness, job_id)
                proxy.go_away()
                await outlast(0.5)
                proxy.come_back()
                await check_all_was_reported(harness, ids)


async def becomes_logged(harness: WorkerHarness, job_id: str) -> bool:
    for _ in range(1000):
        if await harness.inspector.logs(job_id):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_reports_made_at_once_keep_their_order_through_an_outage(server):
    with Proxy(server.port) as proxy:
        async with WorkerHarness(server.url, proxy.url) as harness:
            begun = asyncio.Event()

            @harness.handle("work")
            async def work(job):
                begun.set()
                await outlast(0.1)
                first = [asyncio.create_task(job.log(line)) for line in LINES[:5]]
                await outlast(0.1)
                proxy.come_back()
                await asyncio.gather(*first, *(job.log(line) for line in LINES[5:10]))

            async with harness.worker():
                [job_id] = await harness.submit("work", {})
                await begun.wait()
                proxy.go_away()
                [job] = await harness.ended(job_id)
            assert job.state is JobState.COMPLETED
            assert await harness.inspector.logs(job_id) == LINES[:10]


def second_with(text: bytes) -> Callable[[Command], bool]:
    """Match the second command with this text; the first may find its script unknown to the server."""
    commands = count(1)
    return lambda command: any(text in part for part in command) and next(commands) == 2


@pytest.mark.parametrize("fault", [ProxyFault.SWALLOW, ProxyFault.LATE])
@pytest.mark.parametrize("protocol", protocol_names())
async def test_a_line_and_an_event_whose_reply_was_lost_are_written_once(server, protocol, fault):
    with Proxy(server.port) as proxy:
        async with WorkerHarness(server.url, proxy.url, protocol) as harness:

            @harness.handle(harness.job_name)
            async def work(job):
                for _ in range(3):
                    await job.log("the same line")
                for _ in range(3):
                    await job.emit("same-step", {})

            for text in (b"the same line", b"same-step"):
                proxy.rule(second_with(text), fault, late_s=0.05)
            async with harness.worker():
                [job_id] = await harness.submit(harness.job_name, {})
                [job] = await harness.ended(job_id)
            await outlast(0.1)
            assert job.state is JobState.COMPLETED
            assert await harness.inspector.logs(job_id) == ["the same line"] * 3
            assert str(await harness.events.of_job(job)).count("same-step") == 3


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_handler_is_told_when_its_lock_is_over(server, kind):
    with Proxy(server.port) as proxy:
        async with WorkerHarness(server.url, proxy.url) as harness:
            errors, begun = [], threading.Event()

            def note(error):
                errors.append(error)

            if kind == "async":

                @harness.handle("work")
                async def work(job):
                    begun.set()
                    try:
                        while True:
                            await job.log("line")
                    except LockMissing as error:
                        note(error)

            else:

                @harness.handle("work")
                def work_in_thread(job):
                    begun.set()
                    try:
                        while True:
                            job.log("line")
                    except LockMissing as error:
                        note(error)

            async with harness.worker(profile=Profile(name="w", lock_ms=500)):
                await harness.submit("work", {})
                assert await becomes_true(begun.is_set)
                proxy.go_away()
                assert await becomes_true(lambda: errors, 5)
                proxy.come_back()
    assert isinstance(errors[0].__cause__, RedisConnectionError)
