"""BullMQ's own Python client."""

import asyncio

from bullmq import Queue, Worker
from driving import Handled, batches, data, drive

OPTIONS = {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}, "keepLogs": 1000}


async def fill(url: str, count: int) -> None:
    queue = Queue("bench", {"connection": url})
    for numbers in batches(count):
        await queue.addBulk([{"name": "work", "data": data(number), "opts": OPTIONS} for number in numbers])
    await queue.close()


async def process(url: str, count: int, concurrency: int) -> Handled:
    await fill(url, count)
    everything = asyncio.Event()
    handled = Handled(count, everything.set)

    async def work(job: object, token: str) -> None:
        handled.one()

    worker = Worker("bench", work, {"connection": url, "concurrency": concurrency})
    await everything.wait()
    await worker.close(force=True)
    return handled


drive(fill, process)
