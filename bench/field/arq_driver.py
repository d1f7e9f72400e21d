"""arq: an asyncio queue; it has no bulk add, so many single ones are under way at once."""

import asyncio

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from driving import BATCH, Handled, add_side_by_side, data, drive


async def fill(url: str, count: int) -> None:
    pool = await create_pool(RedisSettings.from_dsn(url))
    await add_side_by_side(count, lambda number: pool.enqueue_job("work", data(number)))
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
    running = asyncio.create_task(worker.async_run())
    await everything.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return handled


drive(fill, process)
