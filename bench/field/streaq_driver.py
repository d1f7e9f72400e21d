"""streaq: an asyncio queue on streams, with a bulk add."""

import asyncio

from driving import Handled, batches, data, read_task, tell, timed_fill
from streaq import Worker

task = read_task()
everything = asyncio.Event()
handled = Handled(task["count"], everything.set)
worker: Worker[None] = Worker(redis_url=task["url"], concurrency=task.get("setting") or 16)


@worker.task()
async def work(given: object) -> None:
    handled.one()


async def fill(count: int) -> None:
    async with worker:
        for numbers in batches(count):
            await worker.enqueue_many([work.enqueue(data(number)) for number in numbers])


async def process() -> None:
    await fill(task["count"])
    running = asyncio.create_task(worker.run_async())
    await everything.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


if task["measure"] == "bulk_add":
    tell(timed_fill(task["count"], lambda count: asyncio.run(fill(count))))
else:
    asyncio.run(process())
    tell(handled.reading())
