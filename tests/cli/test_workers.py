"""`corral workers` in every protocol."""

import asyncio

from tests.cli.conftest import AppQueue, Shell
from tests.support.apps import working


def test_workers_are_listed_while_they_are_alive(app_queue: AppQueue, shell: Shell) -> None:
    app_queue.work({})
    assert "no workers are alive" in shell("workers").out

    async def look_while_one_works() -> None:
        queues = [app_queue.queue.name]
        async with working(app_queue.app, queues=queues, protocol=app_queue.protocol, name="bessie"):
            while not await app_queue.queue.workers():
                await asyncio.sleep(0.01)
            result = await asyncio.to_thread(shell, "workers", "--json")
            assert [(one["protocol"], one["queues"], one["name"]) for one in result.documents] == [
                (app_queue.protocol, queues, "bessie")
            ]
            assert "bessie" in (await asyncio.to_thread(shell, "workers", app_queue.queue.name)).out

    app_queue.app.sync(look_while_one_works())
