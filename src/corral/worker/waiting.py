"""Waiting for work, on the broker's blocking connection, while a slot is free."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from corral.core.ports import Broker, Rest
from corral.errors import RedisError


class Waiter:
    """At most one wait at a time; `woken` is called when there may be work again."""

    def __init__(
        self,
        broker: Broker,
        woken: Callable[[], None],
        delays: Callable[[int], float],
        log: FilteringBoundLogger,
    ) -> None:
        self.rest: Rest | None = None
        """What is being waited out; None while nothing is."""
        self._broker = broker
        self._woken = woken
        self._delays = delays
        self._log = log
        self._waiting: asyncio.Task[None] | None = None
        self._failures = 0

    def start(self, rest: Rest) -> None:
        """Wait this out."""
        self.rest = rest
        self._waiting = asyncio.create_task(self._wait(rest))

    async def _wait(self, rest: Rest) -> None:
        try:
            await self._broker.wait(rest)
            self._failures = 0
        except RedisError as fault:
            # the next trip finds out how the server is; a wait that alone is refused must not spin
            self._log.warning(f"waiting for work failed: {fault}")
            await asyncio.sleep(self._delays(self._failures))
            self._failures += 1
        self.rest = self._waiting = None
        self._woken()

    def is_outdated(self, rest: Rest | None) -> bool:
        """Is something else being waited out than what the last trip found?"""
        if self.rest is None:
            return False
        if rest is None or rest.why is not self.rest.why:
            return True
        return rest.until is not None and (self.rest.until is None or rest.until < self.rest.until)

    async def stop(self) -> None:
        """Wait no more."""
        waiting, self._waiting, self.rest = self._waiting, None, None
        if waiting is not None:
            waiting.cancel()
            with suppress(asyncio.CancelledError, RedisError):
                await waiting
