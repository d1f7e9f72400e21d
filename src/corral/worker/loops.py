"""What a worker does beside its jobs, again and again: recover and promote."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from corral.core.job import Claim
from corral.core.ports import Broker
from corral.errors import RedisError
from corral.telemetry.logs import logger
from corral.telemetry.metrics import QueueMetrics

LAST_RUN_S = 1.0


class Loop:
    """Runs `_once` at once and then every so many seconds, and never twice at a time."""

    name = "loop"

    def __init__(self, broker: Broker, *, every: float, queue: str, metrics: QueueMetrics) -> None:
        self._broker = broker
        self._every = every
        self._metrics = metrics
        self._log = logger(self.name, queue=queue)
        self._ticking: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run from now on."""
        self._ticking = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Run no more; a run under way has a moment to end, because its answer may hold claims."""
        if self._ticking is not None:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
        if self._running is not None:
            await asyncio.wait([self._running], timeout=LAST_RUN_S)
            self._running.cancel()
        self._ticking = self._running = None

    async def _tick(self) -> None:
        while True:
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._guarded())
            else:
                self._skipped()
            await asyncio.sleep(self._every)

    async def _guarded(self) -> None:
        try:
            await self._once()
        except RedisError as fault:
            self._log.warning(f"{self.name} could not run: {fault}")
        except Exception:
            self._log.exception(f"{self.name} failed")

    def _skipped(self) -> None:
        self._log.warning(f"{self.name} skipped: the one before still runs")

    async def _once(self) -> None:
        raise NotImplementedError


class Recoverer(Loop):
    """Puts back what dead workers left."""

    name = "recovery"

    def __init__(
        self,
        broker: Broker,
        adopt: Callable[[Sequence[Claim]], None],
        *,
        every: float,
        queue: str,
        metrics: QueueMetrics,
    ) -> None:
        super().__init__(broker, every=every, queue=queue, metrics=metrics)
        self._adopt = adopt

    async def _once(self) -> None:
        recovery = await self._broker.recover()
        if recovery.claims:
            self._adopt(recovery.claims)
        found = len(recovery.requeued) + len(recovery.ended) + len(recovery.claims)
        if found:
            self._metrics.stalled(found)
            self._log.warning(
                f"found {found} abandoned jobs", requeued=len(recovery.requeued), ended=len(recovery.ended)
            )

    def _skipped(self) -> None:
        super()._skipped()
        self._metrics.skipped()


class Promoter(Loop):
    """Makes due jobs claimable where no turn does: each turn that claims promotes as well."""

    name = "promotion"

    async def _once(self) -> None:
        await self._broker.promote()
