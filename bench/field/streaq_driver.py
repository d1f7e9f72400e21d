"""streaq: an asyncio queue on streams, with a bulk add."""

import asyncio

from driving import Handled, batches, data, order, tell, timed_fill
from streaq import Worker

asked = order()
everything = asyncio.Event()
handled = Handled(asked["count"], everything.set)
worker: Worker[None] = Worker(redis_url=asked["url"], concurrency=asked.get("setting") or 16)


@worker.task()
async def work(given: object) -> None:
    handled.one()


async def fill(count: int) -> None:
    async with worker:
        for numbers in batches(count):
            await worker.enqueue_many([work.enqueue(data(number)) for number in numbers])


async def process() -> None:
    await fill(asked["count"])
    running = asyncio.create_task(worker.run_async())
    await everything.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


if asked["measure"] == "bulk_add":
    tell(timed_fill(asked["count"], lambda count: asyncio.run(fill(count))))
else:
    asyncio.run(process())
    tell(handled.reading())
