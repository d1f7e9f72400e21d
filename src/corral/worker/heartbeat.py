"""Heartbeat: lock renewal in a thread of its own, with an event loop and a connection of its own."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from time import perf_counter
from typing import Any

from corral.core.job import Claim
from corral.core.ports import Broker, WorkerRecords
from corral.errors import RedisError, RedisResponseError
from corral.telemetry.logs import logger
from corral.telemetry.metric_names import LOST_LOCKS, RECONNECTS, REDIS_UP
from corral.worker.attempt import Attempt, RunningAttempt, moment
from corral.worker.config import Connections, WorkerConfig
from corral.worker.records import MinuteCounts, RecordWriter
from corral.worker.unhandled import UnhandledNames

LONGEST_INTERVAL_S = 10.0
"""A worker reports that it is alive at least this often, however long its locks are."""
STOP_TIMEOUT_S = 2.0
RECORD_MARGIN_MS = 5000
"""How long a record outlives three missed beats."""


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
        minutes: MinuteCounts,
        unhandled: UnhandledNames,
    ) -> None:
        self.interval = config.heartbeat_s or min(config.profile.lock_ms / 4000, LONGEST_INTERVAL_S)
        self._renew_at = self._beat_at = 0.0
        """When each is due, by `perf_counter`."""
        self._has_failed = False
        """Whether Redis did not reply to the last renewal."""
        self._open_connections = config.open_connections
        self._clock = config.clock
        self._metrics = config.metrics
        self._held = held
        self._unread = unread
        self._some_lost = lost
        self._minutes = minutes
        self._records = RecordWriter(config, unhandled)
        self._name = config.profile.name
        self._has_warned = False
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
                self._failed(self._held(), error)
                await self._sleep(self.interval)

    async def _beat_until_stopped(self, connections: Connections) -> None:
        while not self._stopping.is_set():
            await self._beat(connections)
            await self._sleep(max(min(self._renew_at, self._beat_at) - perf_counter(), 0.0))
        with suppress(RedisError, TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S / 2):
                await connections.reporter.beat(stopping=True)
                if connections.records is not None:
                    await self._record(connections.records)
                    await connections.records.forget(self._name)

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _beat(self, connections: Connections) -> None:
        """Renew the locks, and report that the worker is alive, each when it is due."""
        start = perf_counter()
        renewing: list[Attempt] = []
        try:
            if start >= self._renew_at:
                self._renew_at = start + self.interval
                renewing = self._held()
                await self._renew(connections.broker, renewing)
                renewing = []
            if start >= self._beat_at:
                self._beat_at = start + self.interval
                beat_ms = await connections.reporter.beat()
                if beat_ms is not None:
                    self._beat_at = start + beat_ms / 1000
                await self._record(connections.records)
                await connections.check_clock()
        except RedisError as error:
            self._failed(renewing, error)
        except Exception:
            self._log.exception("a beat failed")

    async def _record(self, records: WorkerRecords | None) -> None:
        """Write what the worker does now, and what it did since the last beat."""
        if records is None:
            return
        try:
            keep_ms = int(max(self._beat_at - perf_counter(), self.interval) * 3000) + RECORD_MARGIN_MS
            await records.write(self._records.record(self._held()), self._minutes.take(), keep_ms)
            self._minutes.written()
        except RedisResponseError as error:
            # a server that allows the protocol's own keys only; nothing depends on these
            self._minutes.written()
            if not self._has_warned:
                self._has_warned = True
                self._log.warning(f"the worker cannot write about itself: {error}")

    async def _renew(self, broker: Broker, held: Sequence[Attempt]) -> None:
        unread, receipts = self._unread(self.interval * 1000)
        if not (held or unread or receipts):
            return
        start, now = perf_counter(), moment(self._clock)
        extension = await broker.extend([*[attempt.claim for attempt in held], *unread], receipts)
        seconds = perf_counter() - start
        lost, cancelled = set(map(id, extension.lost)), set(map(id, extension.cancelled))
        failures = 0
        for attempt in held:
            # protocols return the claims they were given
            if id(attempt.claim) not in lost:
                attempt.locked_at = now
            elif isinstance(attempt, RunningAttempt) and not attempt.is_ended:
                # one whose settlement is under way has no lock any more either: only its verdict can tell
                failures += 1
                self._lost(attempt)
            if id(attempt.claim) in cancelled and isinstance(attempt, RunningAttempt):
                self._cancel(attempt)
        self._metrics.renewed(len(held), failures, seconds)
        if self._has_failed:
            self._has_failed = False
            self._metrics.set(REDIS_UP, 1)

    def _failed(self, held: Sequence[Attempt], error: RedisError) -> None:
        # the turns may not know yet: while every slot is busy there are none
        self._has_failed = True
        self._metrics.set(REDIS_UP, 0)
        self._metrics.add(RECONNECTS)
        if not held:
            self._log.warning(f"failed to beat: {error}")
            return
        self._metrics.renewed(len(held), len(held))
        for attempt in held:
            job_id = attempt.claim.job.id
            self._log.error(f"failed to extend lock for job {job_id}: {error}", job=job_id)

    def _lost(self, attempt: RunningAttempt) -> None:
        if not attempt.context.lost:
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
