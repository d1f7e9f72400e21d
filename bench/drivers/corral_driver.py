"""Corral under measurement: `python -m bench.drivers.corral_driver asyncio|uvloop '{task}'`."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter, process_time
from typing import Any

from corral import Corral, JobContext, JobState, Queue, Worker
from corral.telemetry import logs

QUEUE = "bench"
WARM_UP = "warm-up"
JOB = "work"
BATCH = 1000
WARM_UP_JOBS = 2000
REST_S = 0.01
CALLERS = 100


def data(number: int) -> dict[str, Any]:
    """About 200 bytes of JSON."""
    return {"number": number, "text": "x" * 170}


async def server_cpu_s(app: Corral) -> float:
    """The seconds of CPU the server has used so far."""
    info = (await app.store().call("INFO", "cpu")).decode()
    fields = dict(line.split(":") for line in info.splitlines() if ":" in line)
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])


Work = Callable[[], Awaitable[Any]]


async def timed(app: Corral, count: int, work: Work) -> dict[str, Any]:
    """A reading of how long the work took, here and in the server."""
    server, own, begin = await server_cpu_s(app), process_time(), perf_counter()
    await work()
    seconds, own = perf_counter() - begin, process_time() - own
    server = await server_cpu_s(app) - server
    return {"count": count, "seconds": seconds, "own_cpu_s": own, "server_cpu_s": server}


# -- adding -------------------------------------------------------------------------------------------------


async def fill(app: Corral, queue: str, count: int, batch: int = BATCH) -> None:
    target = app.queue(queue)
    for start in range(0, count, batch):
        await target.add_many([(JOB, data(number)) for number in range(start, min(start + batch, count))])


async def bulk_add(app: Corral, task: dict[str, Any]) -> dict[str, Any]:
    await fill(app, WARM_UP, WARM_UP_JOBS)
    count, batch = task["count"], task["setting"] or BATCH
    return await timed(app, count, lambda: fill(app, QUEUE, count, batch))


async def add_one_by_one(queue: Queue, count: int) -> None:
    for number in range(count):
        await queue.add(JOB, data(number))


async def one_add(app: Corral, task: dict[str, Any]) -> dict[str, Any]:
    await add_one_by_one(app.queue(WARM_UP), WARM_UP_JOBS // 4)
    return await timed(app, task["count"], lambda: add_one_by_one(app.queue(QUEUE), task["count"]))


async def adds_at_once(app: Corral, task: dict[str, Any]) -> dict[str, Any]:
    async def add(queue: Queue, count: int) -> None:
        await asyncio.gather(*(add_one_by_one(queue, count // CALLERS) for _ in range(CALLERS)))

    await add(app.queue(WARM_UP), WARM_UP_JOBS)
    return await timed(app, task["count"], lambda: add(app.queue(QUEUE), task["count"]))


# -- working ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def worker(
    app: Corral, queue: str, handler: Callable[[JobContext], Awaitable[Any]], concurrency: int
) -> AsyncIterator[Worker]:
    """A worker that has not started; stopped at the end of the block."""
    app.job(JOB, queue=queue)(handler)
    [serving] = app.workers(queues=[queue], concurrency=concurrency)
    try:
        yield serving
    finally:
        await serving.stop()


async def work_off(
    app: Corral,
    queue: str,
    count: int,
    concurrency: int,
    watch: Callable[[Corral, int, Work], Awaitable[dict[str, Any]]] = timed,
) -> dict[str, Any]:
    """Fill a queue, then time a worker until the server holds every job as completed."""
    await fill(app, queue, count)
    handled, all_handled = 0, asyncio.Event()

    async def nothing(job: JobContext) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            all_handled.set()

    inspector = app.queue(queue)
    async with worker(app, queue, nothing, concurrency) as serving:

        async def work() -> None:
            await serving.start()
            await all_handled.wait()
            while (await inspector.counts())[JobState.COMPLETED] < count:  # noqa: ASYNC110 the server knows
                await asyncio.sleep(0.001)

        return await watch(app, count, work)


async def processing(app: Corral, task: dict[str, Any]) -> dict[str, Any]:
    await work_off(app, WARM_UP, WARM_UP_JOBS, task["setting"])
    return await work_off(app, QUEUE, task["count"], task["setting"])


async def latency(app: Corral, task: dict[str, Any]) -> dict[str, Any]:
    started = asyncio.Event()
    at = 0.0

    async def note(job: JobContext) -> None:
        nonlocal at
        at = perf_counter()
        started.set()

    latencies = []
    target = app.queue(QUEUE)
    warm_up = task["count"] // 5
    async with worker(app, QUEUE, note, 50) as serving:
        await serving.start()
        for number in range(warm_up + task["count"]):
            await asyncio.sleep(REST_S)
            started.clear()
            begin = perf_counter()
            await target.add(JOB, data(number))
            await started.wait()
            if number >= warm_up:
                latencies.append((at - begin) * 1000)
    return {"count": task["count"], "latencies_ms": latencies}


MEASURES = {
    "bulk_add": bulk_add,
    "processing": processing,
    "one_add": one_add,
    "adds_at_once": adds_at_once,
    "latency": latency,
}


async def main(task: dict[str, Any]) -> None:
    logs.configure(level="error")
    async with Corral(task["url"]) as app:
        print(json.dumps(await MEASURES[task["measure"]](app, task)))


def run(loop: str, task: dict[str, Any]) -> None:
    """Carry out a task on asyncio's own event loop or on uvloop's."""
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(task))


if __name__ == "__main__":
    run(sys.argv[1], json.loads(sys.argv[2]))
