"""Every interface on every kind of server: workers, the command line, HTTP, the drop-in client."""

import asyncio
from typing import Any

import pytest

from corral import Corral, EventKind, JobContext
from corral.bullmq import Queue as DropInQueue
from corral.bullmq import QueueEvents
from corral.bullmq import Worker as DropInWorker
from corral.protocols import protocol_names
from corral.spark.client import QueueClient
from corral.spark.options import queue_address
from tests.servers.matrix.kinds import Served
from tests.support.apps import ended, working
from tests.support.gateway import Gateway
from tests.support.polling import becomes_true, outlast, until
from tests.support.shell import corral

LOCK_MS = 400


async def test_a_worker_holds_its_lock_and_a_tail_tells_how_it_ended(served: Served) -> None:
    """Its turns, its waits, its heartbeat's thread and the tail have each a connection of their own."""
    app = Corral(served.url)

    @app.job("slow", queue="mail")
    async def slow(job: JobContext) -> str:
        await outlast(2.5 * LOCK_MS / 1000)
        return "held"

    told: list[EventKind] = []

    async def tail() -> None:
        async for event in slow.queue.events.tail("-"):
            told.append(event.kind)

    async with app, working(app, concurrency=1, lock_ms=LOCK_MS, recover_ms=LOCK_MS // 2):
        tailing = asyncio.create_task(tail())
        job = await slow.add()
        done = await ended(slow.queue, job.id)
        assert (done.result, done.attempts_made) == ("held", 1)
        assert await becomes_true(lambda: EventKind.COMPLETED in told)
        tailing.cancel()


def test_the_command_line_adds_and_lists(served: Served) -> None:
    added = corral("queue", "add", "mail", "work", '{"n": 1}', "--url", served.url)
    assert added.code == 0, added.err
    listed = corral("queue", "ls", "--json", "--url", served.url)
    assert listed.code == 0, listed.err
    assert "mail" in listed.out
    told = corral("events", "tail", "mail", "--from", "-", "--count", "1", "--url", served.url)
    assert told.code == 0, told.err


async def test_the_gateway_takes_a_job_and_tells_its_end(served: Served) -> None:
    app = Corral(served.url, protocol="streams", namespaces=served.namespaces)

    @app.job("embed", queue=app.queue().name)
    async def embed(job: JobContext) -> dict[str, Any]:
        return {"text": job.data["text"]}

    gateway = await asyncio.to_thread(Gateway, served.url, namespaces=served.namespaces, redis_timeout_s=10.0)
    try:
        async with app, working(app):
            job_id = await asyncio.to_thread(gateway.submit, {"text": "the herd is home"})
            assert (await ended(embed.queue, job_id)).result == {"text": "the herd is home"}
            answer = await asyncio.to_thread(gateway.client.get, f"/v1/jobs/{job_id}")
            assert answer.json()["status"] == "done", answer.text
            ready = await asyncio.to_thread(gateway.client.get, "/readyz")
            assert ready.status_code == 200, ready.text
    finally:
        await asyncio.to_thread(gateway.stop)


async def test_the_drop_in_works_on_it(served: Served) -> None:
    options = {"connection": served.url}
    name = served.queue or "mail"
    events = QueueEvents(name, options)
    await events.waitUntilReady()

    async def process(job: Any, token: str) -> str:
        return f"sent to {job.data['to']}"

    queue, worker = DropInQueue(name, options), DropInWorker(name, process, options)
    job = await queue.add("send", {"to": "a@b.c"})
    assert await job.waitUntilFinished(events, 10_000) == "sent to a@b.c"
    assert await becomes_listed(queue)
    for each in (worker, events, queue):
        await each.close()


async def becomes_listed(queue: DropInQueue) -> bool:
    """A worker is seen by the connection on which it waits."""

    async def is_listed() -> bool:
        return len(await queue.getWorkers()) == 1

    return await until(is_listed)


@pytest.mark.parametrize("protocol", protocol_names())
async def test_a_client_without_an_event_loop_reads_it(served: Served, protocol: str) -> None:
    app = Corral(served.url, protocol=protocol, namespaces=served.namespaces)
    queue = app.queue()
    async with app:
        await queue.add("embed", {})
    asked = {"url": served.url, "protocol": protocol, "queue": queue.name}
    if protocol in served.namespaces:
        asked["namespace"] = served.namespaces[protocol]

    def look() -> tuple[list[str], int]:
        with QueueClient(queue_address({**asked, "queue": "*"}), retry_s=5) as client:
            # by its name as it was given, too
            given = queue.name.strip("{}")
            return client.queues(), client.call(lambda: client.ports(given).events.extent()).length

    names, length = await asyncio.to_thread(look)
    assert names == [queue.name]
    assert length >= 1
