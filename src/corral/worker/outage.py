"""How long a worker waits for a server that does not serve, and who is told."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from corral.errors import RedisError, RedisResponseError
from corral.worker.events import Happening, WorkerEvent
from corral.worker.reports import Reports

LONGEST_DELAY = 32
"""After so many tries every delay is the longest."""


class Outage:
    """The tries since the server last answered."""

    def __init__(self, delays: Callable[[int], float], max_tries: int | None, reports: Reports) -> None:
        self._delays = delays
        self._max_tries = max_tries
        self._reports = reports
        self._tries = 0
        self._hurry = asyncio.Event()

    def answered(self) -> None:
        """The server serves."""
        if self._tries:
            self._tries = 0
            self._reports.log.info("the server is back")
            self._reports.tell(WorkerEvent(Happening.BACK))
        self._reports.metrics.connected(True)

    async def stand_back(self, fault: RedisError) -> None:
        """Wait before the next try, longer each time; after the last allowed one the fault is raised."""
        if self._tries == 0:
            self._reports.tell(WorkerEvent(Happening.AWAY, error=fault))
        if self._max_tries is not None and self._tries >= self._max_tries:
            raise fault
        is_refused = isinstance(fault, RedisResponseError)
        delay = self._delays(LONGEST_DELAY if is_refused else self._tries)
        self._tries += 1
        self._reports.metrics.connected(False)
        self._reports.metrics.reconnecting()
        say = self._reports.log.error if is_refused else self._reports.log.warning
        say(f"the server does not serve: {fault}", tries=self._tries, again_in=round(delay, 3))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), delay)
        self._hurry.clear()

    def hurry(self) -> None:
        """The worker stops: try at once."""
        self._hurry.set()
