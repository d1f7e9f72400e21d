"""Lock renewal in a thread of its own, with a loop and a connection of its own."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from time import perf_counter
from typing import Any

from corral.core.job import Claim
from corral.errors import RedisError
from corral.telemetry.logs import logger
from corral.telemetry.metrics import QueueMetrics
from corral.worker.attempt import Attempt, moment
from corral.worker.connections import Connections, OpenConnections

LONGEST_BEAT_S = 10.0
"""A worker says that it lives at least this often, however long its locks are."""
LAST_WORD_S = 2.0


class Heartbeat:
    """Renews the locks of all held claims at a quarter of their life, whatever the handlers do to the loop.

    A beat that fails is logged and counted, the handlers go on, and the next beat tries again.
    """

    def __init__(
        self,
        open_connections: OpenConnections,
        held: Callable[[], list[Attempt]],
        *,
        queue: str,
        lock_ms: int,
        clock: Callable[[], int],
        metrics: QueueMetrics,
    ) -> None:
        self.every = min(lock_ms / 4000, LONGEST_BEAT_S)
        self._open_connections = open_connections
        self._held = held
        self._clock = clock
        self._metrics = metrics
        self._log = logger("heartbeat", queue=queue)
        self._worker_loop = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_asked_to_stop = False
        self._ended = asyncio.Event()
        self._thread = Thread(target=self._serve, name=f"corral-heartbeat-{queue}", daemon=True)

    def start(self) -> None:
        """Beat from now on."""
        self._thread.start()

    async def stop(self) -> None:
        """Say good-bye and end; at most a few seconds from now."""
        if not self._thread.is_alive():
            return
        self._is_asked_to_stop = True  # for a thread that has not got as far as its loop
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), LAST_WORD_S)

    # -- in the thread ------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            # the thread must not end in silence: without it every lock runs out
            self._log.exception("the heartbeat has ended; locks are not renewed any more")
        finally:
            self._tell(self._ended.set)

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._is_asked_to_stop:
            return
        while not self._stopping.is_set():
            try:
                async with self._open_connections() as connections:
                    await self._beat_on(connections)
            except RedisError as fault:
                self._failed(self._held(), fault, 0.0)
                await self._rest(self.every)

    async def _beat_on(self, connections: Connections) -> None:
        assert self._stopping is not None
        while not self._stopping.is_set():
            began = perf_counter()
            await self._once(connections)
            await self._rest(max(self.every - (perf_counter() - began), 0.0))
        with suppress(RedisError, TimeoutError):
            await asyncio.wait_for(connections.reporter.beat(stopping=True), LAST_WORD_S / 2)

    async def _rest(self, seconds: float) -> None:
        assert self._stopping is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _once(self, connections: Connections) -> None:
        held = self._held()
        began, asked = perf_counter(), moment(self._clock)
        try:
            if held:
                extension = await connections.broker.extend([attempt.claim for attempt in held])
                self._metrics.renewed(len(held), 0, perf_counter() - began)
                lost = self._pick(held, extension.lost)
                gone = set(map(id, lost))
                for attempt in held:
                    if id(attempt) not in gone:
                        attempt.sure = asked
                self._tell_cancelled(self._pick(held, extension.cancelled))
                self._tell_lost(lost)
            await connections.reporter.beat()
        except RedisError as fault:
            self._failed(held, fault, perf_counter() - began)
        except Exception:
            self._log.exception("a beat failed")

    def _failed(self, held: Sequence[Attempt], fault: RedisError, seconds: float) -> None:
        if not held:
            self._log.warning(f"failed to beat: {fault}")
            return
        self._metrics.renewed(len(held), len(held), seconds)
        for attempt in held:
            job_id = attempt.claim.job.id
            self._log.error(f"failed to extend lock for job {job_id}: {fault}", job=job_id)

    def _pick(self, held: Sequence[Attempt], claims: Sequence[Claim]) -> list[Attempt]:
        """The attempts these claims belong to; protocols hand back the claims they were given."""
        named = set(map(id, claims))
        return [attempt for attempt in held if id(attempt.claim) in named]

    def _tell_lost(self, lost: list[Attempt]) -> None:
        # one whose settlement is on its way has no lock left either: only its verdict can tell
        for attempt in lost:
            context = attempt.context
            if attempt.settlement is None and context is not None and not context.lost:
                context.lost = True
                self._metrics.lost_locks(1)
                job_id = attempt.claim.job.id
                self._log.error(f"lost the lock of job {job_id}; its outcome will be refused", job=job_id)

    def _tell_cancelled(self, cancelled: list[Attempt]) -> None:
        for attempt in cancelled:
            context = attempt.context
            if context is not None and not context.cancelled:
                context.cancelled = True  # at once, for a handler that blocks the loop
                self._tell(attempt.cancel)

    def _tell(self, call: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # the worker's loop has closed
            self._worker_loop.call_soon_threadsafe(call)
