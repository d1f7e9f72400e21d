"""saq: an asyncio queue; it has no bulk add, so many single ones are under way at once."""

import asyncio

from driving import Handled, data, order, tell, timed_fill
from saq import Queue, Worker

UNDER_WAY = 50


async def fill(url: str, count: int) -> None:
    queue = Queue.from_url(url)
    await queue.connect()
    numbers = iter(range(count))

    async def add() -> None:
        for number in numbers:
            await queue.enqueue("work", given=data(number))

    await asyncio.gather(*(add() for _ in range(UNDER_WAY)))
    await queue.disconnect()


async def process(url: str, count: int, concurrency: int) -> Handled:
    await fill(url, count)
    everything = asyncio.Event()
    handled = Handled(count, everything.set)

    async def work(_: object, *, given: object) -> None:
        handled.one()

    queue = Queue.from_url(url)
    worker = Worker(queue, [("work", work)], concurrency=concurrency)
    handled.begin()
    running = asyncio.create_task(worker.start())
    await everything.wait()
    await worker.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return handled


asked = order()
if asked["measure"] == "bulk_add":
    tell(timed_fill(asked["count"], lambda count: asyncio.run(fill(asked["url"], count))))
else:
    tell(asyncio.run(process(asked["url"], asked["count"], asked["setting"])).reading())
