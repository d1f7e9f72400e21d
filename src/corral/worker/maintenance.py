"""Periodic maintenance of a queue beside its jobs: recovery and promotion."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from corral.core.job import Claim
from corral.core.ports import Broker
from corral.errors import RedisError
from corral.telemetry.logs import logger
from corral.telemetry.metric_names import LEFT_OUT, SKIPPED, STALLED
from corral.worker.config import WorkerConfig

LAST_RUN_S = 1.0
PROMOTE_EVERY_S = 5.0


class PeriodicTask:
    """Calls `_run` at once and then every so many seconds, never twice at a time.

    A run may return after how many seconds, from its end, the next should begin.
    """

    def __init__(self, name: str, config: WorkerConfig, broker: Broker, every: float) -> None:
        self._name = name
        self._broker = broker
        self._every = every
        self._metrics = config.metrics
        self._log = logger(name, queue=config.queue)
        self._running: asyncio.Task[float | None] | None = None
        self._ticking = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Run no more; a run under way has a moment to end, because its reply may contain claims."""
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking
        if self._running is not None:
            await asyncio.wait([self._running], timeout=LAST_RUN_S)
            self._running.cancel()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            start = loop.time()
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._run_logged())
            else:
                self._skip()
            await asyncio.wait([self._running], timeout=self._every)
            pause = self._running.result() if self._running.done() else None
            await asyncio.sleep(self._every - (loop.time() - start) if pause is None else pause)

    async def _run_logged(self) -> float | None:
        try:
            return await self._run()
        except RedisError as error:
            self._log.warning(f"{self._name} could not run: {error}")
        except Exception:
            self._log.exception(f"{self._name} failed")
        return None

    def _skip(self) -> None:
        self._log.warning(f"{self._name} skipped: the previous run has not ended")

    async def _run(self) -> float | None:
        raise NotImplementedError


class RecoveryTask(PeriodicTask):
    """Puts back the jobs of dead workers."""

    def __init__(
        self, config: WorkerConfig, broker: Broker, adopt: Callable[[Sequence[Claim]], None]
    ) -> None:
        super().__init__("recovery", config, broker, config.profile.sweep_ms / 1000)
        self._adopt = adopt

    async def _run(self) -> float | None:
        recovery = await self._broker.recover()
        if recovery.is_skipped:
            self._log.debug("recovery left out: another worker has run it within the interval")
            self._metrics.add(LEFT_OUT)
        if recovery.claims:
            self._adopt(recovery.claims)
        requeued, ended = len(recovery.requeued), len(recovery.ended)
        if count := requeued + ended + len(recovery.claims):
            self._metrics.add(STALLED, count)
            self._log.warning(f"found {count} abandoned jobs", requeued=requeued, ended=ended)
        return None if recovery.next_ms is None else recovery.next_ms / 1000

    def _skip(self) -> None:
        super()._skip()
        self._metrics.add(SKIPPED)


class PromotionTask(PeriodicTask):
    """Makes due jobs claimable where no turn does: each turn that claims promotes as well."""

    def __init__(self, config: WorkerConfig, broker: Broker) -> None:
        promote_ms = config.profile.promote_ms
        every = PROMOTE_EVERY_S if promote_ms is None else promote_ms / 1000
        super().__init__("promotion", config, broker, every)

    async def _run(self) -> None:
        await self._broker.promote()
