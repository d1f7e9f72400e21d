"""Heartbeat: lock renewal in a thread of its own, with an event loop and a connection of its own."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from time import perf_counter
from typing import Any

from corral.core.job import Claim
from corral.errors import RedisError
from corral.telemetry.logs import logger
from corral.telemetry.metrics import LOST_LOCKS
from corral.worker.attempt import Attempt, RunningAttempt, moment
from corral.worker.config import Connections, WorkerConfig

LONGEST_INTERVAL_S = 10.0
"""A worker reports that it is alive at least this often, however long its locks are."""
STOP_TIMEOUT_S = 2.0


class Heartbeat:
    """Renews the locks of all held claims at a quarter of their life, even while handlers block the loop.

    Also renews what a blocked loop has claimed and does not hold yet: `unread` returns those claims, and the
    receipts of trips without an answer.
    Calls `lost` on the worker's event loop when some are lost.

    A beat that fails is logged and counted, the handlers go on, and the next beat tries again.
    """

    def __init__(
        self,
        config: WorkerConfig,
        *,
        held: Callable[[], list[Attempt]],
        unread: Callable[[float], tuple[list[Claim], list[Any]]],
        lost: Callable[[], None],
    ) -> None:
        self.interval = min(config.profile.lock_ms / 4000, LONGEST_INTERVAL_S)
        self._open_connections = config.open_connections
        self._clock = config.clock
        self._metrics = config.metrics
        self._held = held
        self._unread = unread
        self._some_lost = lost
        self._log = logger("heartbeat", queue=config.queue)
        self._worker_loop = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._is_stopped = False
        self._ended = asyncio.Event()
        self._thread = Thread(target=self._serve, name=f"corral-heartbeat-{config.queue}", daemon=True)

    def start(self) -> None:
        """Beat from now on."""
        self._thread.start()

    async def stop(self) -> None:
        """Deregister the worker and end, within a few seconds."""
        if not self._thread.is_alive():
            return
        self._is_stopped = True  # for a thread that has not started its loop yet
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), STOP_TIMEOUT_S)
            self._thread.join(STOP_TIMEOUT_S)  # its last statement was to set `_ended`

    # -- in the thread ------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            # the thread must not end silently: without it every lock expires
            self._log.exception("the heartbeat has ended; locks are not renewed any more")
        finally:
            self._call_in_worker(self._ended.set)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._is_stopped:
            return
        while not self._stopping.is_set():
            try:
                async with self._open_connections() as connections:
                    await self._beat_until_stopped(connections)
            except RedisError as error:
                self._failed(self._held(), error, 0.0)
                await self._sleep(self.interval)

    async def _beat_until_stopped(self, connections: Connections) -> None:
        while not self._stopping.is_set():
            start = perf_counter()
            await self._beat(connections)
            await self._sleep(max(self.interval - (perf_counter() - start), 0.0))
        with suppress(RedisError, TimeoutError):
            await asyncio.wait_for(connections.reporter.beat(stopping=True), STOP_TIMEOUT_S / 2)

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _beat(self, connections: Connections) -> None:
        held, (unread, receipts) = self._held(), self._unread(self.interval * 1000)
        start, now = perf_counter(), moment(self._clock)
        try:
            if held or unread or receipts:
                claims = [attempt.claim for attempt in held] + unread
                extension = await connections.broker.extend(claims, receipts)
                self._metrics.renewed(len(held), 0, perf_counter() - start)
                lost, cancelled = set(map(id, extension.lost)), set(map(id, extension.cancelled))
                for attempt in held:
                    # protocols return the claims they were given
                    if id(attempt.claim) not in lost:
                        attempt.locked_at = now
                    elif isinstance(attempt, RunningAttempt):
                        self._lost(attempt)
                    if id(attempt.claim) in cancelled and isinstance(attempt, RunningAttempt):
                        self._cancel(attempt)
            await connections.reporter.beat()
        except RedisError as error:
            self._failed(held, error, perf_counter() - start)
        except Exception:
            self._log.exception("a beat failed")

    def _failed(self, held: Sequence[Attempt], error: RedisError, seconds: float) -> None:
        if not held:
            self._log.warning(f"failed to beat: {error}")
            return
        self._metrics.renewed(len(held), len(held), seconds)
        for attempt in held:
            job_id = attempt.claim.job.id
            self._log.error(f"failed to extend lock for job {job_id}: {error}", job=job_id)

    def _lost(self, attempt: RunningAttempt) -> None:
        # one whose settlement is under way has no lock any more either: only its verdict can tell
        if not attempt.is_ended and not attempt.context.lost:
            attempt.context.lost = True
            self._metrics.add(LOST_LOCKS)
            job_id = attempt.claim.job.id
            self._log.error(f"lost the lock of job {job_id}; its outcome will be refused", job=job_id)
            self._call_in_worker(self._some_lost)

    def _cancel(self, attempt: RunningAttempt) -> None:
        if not attempt.context.cancel_requested:
            # at once, for a handler that blocks the loop
            attempt.context.cancel_requested = attempt.context.cancelled = True
            self._call_in_worker(attempt.context.cancel)

    def _call_in_worker(self, call: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # the worker's loop has closed
            self._worker_loop.call_soon_threadsafe(call)
