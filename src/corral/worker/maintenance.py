"""Periodic maintenance of a queue beside its jobs: recovery and promotion."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from corral.core.job import Claim
from corral.core.ports import Broker
from corral.errors import RedisError
from corral.telemetry.logs import logger
from corral.telemetry.metrics import QueueMetrics

LAST_RUN_S = 1.0


class PeriodicTask:
    """Calls `_run` at once and then every so many seconds, never twice at a time."""

    name = "task"

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
        """Run no more; a run under way has a moment to end, because its reply may contain claims."""
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
                self._running = asyncio.create_task(self._run_logged())
            else:
                self._skip()
            await asyncio.sleep(self._every)

    async def _run_logged(self) -> None:
        try:
            await self._run()
        except RedisError as error:
            self._log.warning(f"{self.name} could not run: {error}")
        except Exception:
            self._log.exception(f"{self.name} failed")

    def _skip(self) -> None:
        self._log.warning(f"{self.name} skipped: the previous run has not ended")

    async def _run(self) -> None:
        raise NotImplementedError


class RecoveryTask(PeriodicTask):
    """Puts back the jobs of dead workers."""

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

    async def _run(self) -> None:
        recovery = await self._broker.recover()
        if recovery.claims:
            self._adopt(recovery.claims)
        count = len(recovery.requeued) + len(recovery.ended) + len(recovery.claims)
        if count:
            self._metrics.stalled(count)
            self._log.warning(
                f"found {count} abandoned jobs", requeued=len(recovery.requeued), ended=len(recovery.ended)
            )

    def _skip(self) -> None:
        super()._skip()
        self._metrics.skipped()


class PromotionTask(PeriodicTask):
    """Makes due jobs claimable where no turn does: each turn that claims promotes as well."""

    name = "promotion"

    async def _run(self) -> None:
        await self._broker.promote()
