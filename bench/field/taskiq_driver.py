"""taskiq with taskiq-redis: a list queue; it has no bulk add, so many single ones are under way at once."""

import asyncio

from driving import Handled, add_side_by_side, data, read_task, tell, timed_fill
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker

task = read_task()
everything = asyncio.Event()
handled = Handled(task["count"], everything.set)
broker = ListQueueBroker(task["url"])


@broker.task
async def work(given: dict[str, object]) -> None:
    handled.one()


async def fill(count: int) -> None:
    await broker.startup()
    await add_side_by_side(count, lambda number: work.kiq(data(number)))


async def bulk_add() -> None:
    loop = asyncio.get_running_loop()
    tell(
        await loop.run_in_executor(
            None,
            lambda: timed_fill(
                task["count"], lambda count: asyncio.run_coroutine_threadsafe(fill(count), loop).result()
            ),
        )
    )


async def process() -> None:
    await fill(task["count"])
    running = asyncio.create_task(run_receiver_task(broker, max_async_tasks=task["setting"]))
    await everything.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    tell(handled.reading())


asyncio.run(bulk_add() if task["measure"] == "bulk_add" else process())
