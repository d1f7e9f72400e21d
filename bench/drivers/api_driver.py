"""Styles of handlers: `python -m bench.drivers.api_driver raw|fields|dataclass|middleware '{task}'`."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.drivers.corral_driver import JOB, QUEUE, WARM_UP, WARM_UP_JOBS, fill, timed
from corral import Corral, JobContext, JobState
from corral.telemetry import logs

Ended = Callable[[], None]
"""Called by each handler."""


@dataclass
class Order:
    """The data of a job of the benchmarks."""

    number: int
    text: str


def raw(app: Corral, queue: str, ended: Ended) -> None:
    """A handler that reads `job.data` itself."""

    @app.job(JOB, queue=queue)
    async def handler(job: JobContext) -> None:
        ended()


def fields(app: Corral, queue: str, ended: Ended) -> None:
    """A handler whose parameters are the fields of the data."""

    @app.job(JOB, queue=queue)
    async def handler(job: JobContext, number: int, text: str) -> None:
        ended()


def whole(app: Corral, queue: str, ended: Ended) -> None:
    """A handler that takes the data as a dataclass."""

    @app.job(JOB, queue=queue, data="whole")
    async def handler(order: Order) -> None:
        ended()


def middleware(app: Corral, queue: str, ended: Ended) -> None:
    """The raw handler with one middleware around it."""
    raw(app, queue, ended)
    if not app.middlewares:

        @app.middleware
        async def around(job: Any, call_next: Any) -> Any:
            return await call_next(job)


STYLES = {"raw": raw, "fields": fields, "dataclass": whole, "middleware": middleware}


async def work_off(app: Corral, style: str, queue: str, count: int, concurrency: int) -> dict[str, Any]:
    """Fill a queue, then time a worker until the server holds every job as completed."""
    await fill(app, queue, count)
    handled, all_handled = 0, asyncio.Event()

    def ended() -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            all_handled.set()

    STYLES[style](app, queue, ended)
    [serving] = app.workers(queues=[queue], concurrency=concurrency)

    async def work() -> None:
        await serving.start()
        await all_handled.wait()
        while (await app.queue(queue).counts())[JobState.COMPLETED] < count:  # noqa: ASYNC110 the server knows
            await asyncio.sleep(0.001)

    try:
        return await timed(app, count, work)
    finally:
        await serving.stop()


async def main(style: str, task: dict[str, Any]) -> None:
    logs.configure(level="error")
    async with Corral(task["url"]) as app:
        await work_off(app, style, WARM_UP, WARM_UP_JOBS, task["setting"])
        print(json.dumps(await work_off(app, style, QUEUE, task["count"], task["setting"])))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
