"""saq: an asyncio queue; it has no bulk add, so many single ones are under way at once."""

import asyncio

from driving import Handled, add_side_by_side, data, drive
from saq import Queue, Worker


async def fill(url: str, count: int) -> None:
    queue = Queue.from_url(url)
    await queue.connect()
    await add_side_by_side(count, lambda number: queue.enqueue("work", given=data(number)))
    await queue.disconnect()


async def process(url: str, count: int, concurrency: int) -> Handled:
    await fill(url, count)
    everything = asyncio.Event()
    handled = Handled(count, everything.set)

    async def work(_: object, *, given: object) -> None:
        handled.one()

    queue = Queue.from_url(url)
    worker = Worker(queue, [("work", work)], concurrency=concurrency)
    running = asyncio.create_task(worker.start())
    await everything.wait()
    await worker.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return handled


drive(fill, process)
