"""The drop-in for BullMQ's Python client under measurement: `… -m bench.drivers.dropin_driver {task}`."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter, process_time
from typing import Any

from bench.drivers.corral_driver import BATCH, CALLERS, JOB, QUEUE, REST_S, WARM_UP, WARM_UP_JOBS, data
from corral.bullmq import Job, Queue, Worker
from corral.bullmq.types import JobOptions
from corral.telemetry import logs

OPTIONS: JobOptions = {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}, "keepLogs": 1000}
"""What Corral's native API gives a job by default."""


async def server_cpu_s(queue: Queue) -> float:
    """The seconds of CPU the server has used so far."""
    info = await queue.client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def timed(queue: Queue, count: int, work: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """A reading of how long the work took, here and in the server."""
    server, own, begin = await server_cpu_s(queue), process_time(), perf_counter()
    await work()
    seconds, own = perf_counter() - begin, process_time() - own
    server = await server_cpu_s(queue) - server
    return {"count": count, "seconds": seconds, "own_cpu_s": own, "server_cpu_s": server}


async def fill(queue: Queue, count: int, batch: int = BATCH) -> None:
    for start in range(0, count, batch):
        numbers = range(start, min(start + batch, count))
        await queue.addBulk([{"name": JOB, "data": data(number), "opts": OPTIONS} for number in numbers])


async def bulk_add(task: dict[str, Any]) -> dict[str, Any]:
    await fill(_queue(task, WARM_UP), WARM_UP_JOBS)
    queue, count, batch = _queue(task), task["count"], task["setting"] or BATCH
    return await timed(queue, count, lambda: fill(queue, count, batch))


async def add_one_by_one(queue: Queue, count: int) -> None:
    for number in range(count):
        await queue.add(JOB, data(number), OPTIONS)


async def one_add(task: dict[str, Any]) -> dict[str, Any]:
    queue, count = _queue(task), task["count"]
    await add_one_by_one(_queue(task, WARM_UP), WARM_UP_JOBS // 4)
    return await timed(queue, count, lambda: add_one_by_one(queue, count))


async def adds_at_once(task: dict[str, Any]) -> dict[str, Any]:
    async def add(queue: Queue, count: int) -> None:
        await asyncio.gather(*(add_one_by_one(queue, count // CALLERS) for _ in range(CALLERS)))

    queue, count = _queue(task), task["count"]
    await add(_queue(task, WARM_UP), WARM_UP_JOBS)
    return await timed(queue, count, lambda: add(queue, count))


async def processing(task: dict[str, Any]) -> dict[str, Any]:
    await _work_off(task, WARM_UP, WARM_UP_JOBS)
    return await _work_off(task, QUEUE, task["count"])


async def _work_off(task: dict[str, Any], name: str, count: int) -> dict[str, Any]:
    """Fill a queue, then time a worker until the server holds every job as completed."""
    queue = _queue(task, name)
    await fill(queue, count)
    handled, all_handled = 0, asyncio.Event()

    async def nothing(job: Job, token: str) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            all_handled.set()

    worker = _worker(task, name, nothing, task["setting"])

    async def work() -> None:
        running.append(asyncio.ensure_future(worker.run()))
        await all_handled.wait()
        while (await queue.getJobCounts("completed"))["completed"] < count:  # noqa: ASYNC110 the server knows
            await asyncio.sleep(0.001)

    running: list[asyncio.Future[None]] = []
    reading = await timed(queue, count, work)
    await worker.close()
    await asyncio.gather(*running)
    return reading


async def latency(task: dict[str, Any]) -> dict[str, Any]:
    started = asyncio.Event()
    at = 0.0

    async def note(job: Job, token: str) -> None:
        nonlocal at
        at = perf_counter()
        started.set()

    latencies = []
    queue, warm_up = _queue(task), task["count"] // 5
    worker = _worker(task, QUEUE, note, 50)
    running = asyncio.ensure_future(worker.run())
    for number in range(warm_up + task["count"]):
        await asyncio.sleep(REST_S)
        started.clear()
        begin = perf_counter()
        await queue.add(JOB, data(number), OPTIONS)
        await started.wait()
        if number >= warm_up:
            latencies.append((at - begin) * 1000)
    await worker.close()
    await running
    return {"count": task["count"], "latencies_ms": latencies}


def _queue(task: dict[str, Any], name: str = QUEUE) -> Queue:
    return Queue(name, {"connection": task["url"]})


def _worker(task: dict[str, Any], name: str, processor: Any, concurrency: int) -> Worker:
    return Worker(name, processor, {"connection": task["url"], "concurrency": concurrency, "autorun": False})


MEASURES = {
    "bulk_add": bulk_add,
    "processing": processing,
    "one_add": one_add,
    "adds_at_once": adds_at_once,
    "latency": latency,
}


async def main(task: dict[str, Any]) -> None:
    logs.configure(level="error")
    print(json.dumps(await MEASURES[task["measure"]](task)))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[-1])))
