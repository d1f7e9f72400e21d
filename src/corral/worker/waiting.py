"""Waiting: for jobs while the queue has none, and for Redis while it is unavailable."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from corral.core.ports import Broker, Rest
from corral.errors import RedisError, RedisResponseError
from corral.telemetry.metric_names import RECONNECTS, REDIS_UP
from corral.worker.config import WorkerConfig
from corral.worker.events import Monitor, WorkerEvent, WorkerEventKind

LONGEST_DELAY_TRIES = 32
"""From this number of tries on every delay is the longest."""


class JobWait:
    """Waits for jobs on the broker's blocking connection, once at a time; then calls `woken`."""

    def __init__(
        self, config: WorkerConfig, broker: Broker, monitor: Monitor, woken: Callable[[], None]
    ) -> None:
        self.rest: Rest | None = None
        """Why it waits; None while it does not."""
        self._broker = broker
        self._woken = woken
        self._delays = config.delays
        self._log = monitor.log
        self._waiting: asyncio.Task[None] | None = None
        self._failures = 0

    def start(self, rest: Rest) -> None:
        """Wait until there may be jobs again."""
        self.rest = rest
        self._waiting = asyncio.create_task(self._wait(rest))

    async def _wait(self, rest: Rest) -> None:
        try:
            await self._broker.wait(rest)
            self._failures = 0
        except RedisError as error:
            # the next trip finds out whether Redis is available; a wait that alone fails must not spin
            self._log.warning(f"waiting for jobs failed: {error}")
            await asyncio.sleep(self._delays(self._failures))
            self._failures += 1
        self.rest = self._waiting = None
        self._woken()

    def is_outdated(self, rest: Rest | None) -> bool:
        """Return whether it waits for another reason, or longer, than the last trip gave."""
        if self.rest is None:
            return False
        if rest is None or rest.reason is not self.rest.reason:
            return True
        return rest.until is not None and (self.rest.until is None or rest.until < self.rest.until)

    async def stop(self) -> None:
        """Wait no more."""
        waiting, self._waiting, self.rest = self._waiting, None, None
        if waiting is not None:
            waiting.cancel()
            with suppress(asyncio.CancelledError, RedisError):
                await waiting


class RedisWait:
    """Waits between tries to reach Redis, longer each time."""

    def __init__(self, config: WorkerConfig, monitor: Monitor) -> None:
        self._delays = config.delays
        self._max_tries = config.max_tries
        self._monitor = monitor
        self._tries = 0
        self._retry_now = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether Redis replied last."""
        return not self._tries

    def succeeded(self) -> None:
        """Record a reply."""
        if self._tries:
            self._tries = 0
            self._monitor.log.info("Redis is available again")
            self._monitor.emit(WorkerEvent(WorkerEventKind.AVAILABLE))
        self._monitor.metrics.set(REDIS_UP, 1)

    async def failed(self, error: RedisError) -> None:
        """Wait before the next try; after the last allowed one, raise the error."""
        if self._tries == 0:
            self._monitor.emit(WorkerEvent(WorkerEventKind.UNAVAILABLE, error=error))
        if self._max_tries and self._tries >= self._max_tries:
            raise error
        is_refused = isinstance(error, RedisResponseError)
        delay = self._delays(LONGEST_DELAY_TRIES if is_refused else self._tries)
        self._tries += 1
        self._monitor.metrics.set(REDIS_UP, 0)
        self._monitor.metrics.add(RECONNECTS)
        log = self._monitor.log.error if is_refused else self._monitor.log.warning
        log(f"Redis is unavailable: {error}", tries=self._tries, again_in=round(delay, 3))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._retry_now.wait(), delay)
        self._retry_now.clear()

    def retry_now(self) -> None:
        """End the wait: the worker stops."""
        self._retry_now.set()
