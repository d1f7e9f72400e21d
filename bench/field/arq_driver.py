"""arq: an asyncio queue; it has no bulk add, so many single ones are under way at once."""

import asyncio

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from driving import BATCH, Handled, data, order, tell, timed_fill

UNDER_WAY = 50


async def fill(url: str, count: int) -> None:
    pool = await create_pool(RedisSettings.from_dsn(url))
    numbers = iter(range(count))

    async def add() -> None:
        for number in numbers:
            await pool.enqueue_job("work", data(number))

    await asyncio.gather(*(add() for _ in range(UNDER_WAY)))
    await pool.aclose()


async def process(url: str, count: int, concurrency: int) -> Handled:
    await fill(url, count)
    everything = asyncio.Event()
    handled = Handled(count, everything.set)

    async def work(_: object, given: object) -> None:
        handled.one()

    worker = Worker(
        [func(work, name="work")],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=concurrency,
        queue_read_limit=max(concurrency, BATCH // 10),
        poll_delay=0.001,
        keep_result=0,
        handle_signals=False,
    )
    handled.begin()
    running = asyncio.create_task(worker.async_run())
    await everything.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return handled


asked = order()
if asked["measure"] == "bulk_add":
    tell(timed_fill(asked["count"], lambda count: asyncio.run(fill(asked["url"], count))))
else:
    tell(asyncio.run(process(asked["url"], asked["count"], asked["setting"])).reading())
