"""Run workers together until a signal: the first stops them gracefully, the second at once."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Self

from corral.core.ports import RestReason
from corral.errors import RedisError
from corral.worker import Worker

IDLE_CHECK_S = 0.05
"""How often a burst looks whether there is anything left to do."""


class Signals:
    """While entered, the first signal stops the workers gracefully and the second at once."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._came = 0
        self._starting: dict[Worker, asyncio.Task[None]] = {}
        self._working: list[Worker] = []
        self._stopping: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        # outside the main thread (or on Windows) signals are the caller's
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for number in self.NUMBERS:
                loop.add_signal_handler(number, self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for number in self.NUMBERS:
                loop.remove_signal_handler(number)

    async def serve(self, worker: Worker) -> None:
        """Start the worker and run it; a signal that comes before it has started is kept for it."""
        task = asyncio.current_task()
        assert task is not None
        self._starting[worker] = task
        try:
            await worker.start()
        finally:
            del self._starting[worker]
        self._working.append(worker)
        if self._came:
            self._stop(worker)
        await worker.run()

    def stop(self) -> None:
        """Stop the workers gracefully, as the first signal does."""
        if not self._came:
            self._signalled()

    def _signalled(self) -> None:
        self._came += 1
        if self._came == 1:
            for worker in self._working:
                self._stop(worker)
            return
        for worker in self._working:
            worker.kill()
        for task in self._starting.values():
            task.cancel()

    def _stop(self, worker: Worker) -> None:
        self._stopping.append(asyncio.ensure_future(worker.stop(self._grace)))


async def together(runs: Mapping[Worker, asyncio.Task[None]]) -> None:
    """Wait for all workers; where one fails, stop the others and raise its error."""
    tasks = list(runs.values())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        failed = any(task.done() and not task.cancelled() and task.exception() for task in tasks)
        if failed:
            await asyncio.gather(*(worker.stop(0) for worker in runs), return_exceptions=True)
        for task in tasks:
            if not task.done():
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def stop_when_idle(
    workers: Mapping[Worker, Callable[[], Awaitable[int]]], stop: Callable[[], None]
) -> None:
    """Call `stop` once no worker holds a job and no queue has waiting ones, but for paused queues.

    The values return the number of waiting jobs: a job that one worker ran may have added some to the queue
    of another, after that one found nothing to claim.
    """
    while True:
        reasons = [worker.idle_reason for worker in workers]
        if all(reason in (RestReason.DRAINED, RestReason.PAUSED) for reason in reasons):
            unpaused = zip(workers.values(), reasons, strict=True)
            try:
                waiting = [await count() for count, reason in unpaused if reason is RestReason.DRAINED]
            except RedisError:
                waiting = [1]  # unknown; the workers wait for Redis
            if not any(waiting) and all(worker.idle_reason for worker in workers):
                stop()
                return
        await asyncio.sleep(IDLE_CHECK_S)
