"""LateStart: claims that could not begin in time are renewed before they do, or not begun at all."""

import asyncio
from collections.abc import Callable, Sequence

from corral.core.ports import Broker
from corral.errors import LockMissing, RedisError
from corral.telemetry.metric_names import LOST_LOCKS
from corral.worker.attempt import Attempt, Moment, RunningAttempt, moment
from corral.worker.config import WorkerConfig
from corral.worker.events import Monitor, WorkerEvent, WorkerEventKind


class LateStart:
    """Renews attempts whose locks may have expired before their handlers began: in a blocked event loop, a
    stopped process, or a reply that took long.

    Those that are still held are passed to `start`, or to `release` when the worker stops; those that are
    lost are removed from `held`, and `freed` is called.
    """

    def __init__(
        self,
        config: WorkerConfig,
        broker: Broker,
        monitor: Monitor,
        held: dict[Attempt, None],
        *,
        start: Callable[[Sequence[RunningAttempt], Moment], None],
        release: Callable[[Sequence[RunningAttempt]], None],
        freed: Callable[[], None],
    ) -> None:
        self._clock = config.clock
        self._delays = config.delays
        self._broker = broker
        self._monitor = monitor
        self._held = held
        self._start = start
        self._release = release
        self._freed = freed
        self._renewing: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def renew(self, attempts: Sequence[RunningAttempt]) -> None:
        """Renew these, then start them."""
        task = asyncio.create_task(self._renew(attempts))
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    def begin_stop(self) -> None:
        """Start no more."""
        self._is_stopping = True

    def close(self) -> None:
        for task in self._renewing:
            task.cancel()

    async def _renew(self, attempts: Sequence[RunningAttempt]) -> None:
        tries = 0
        while not self._is_stopping:
            now = moment(self._clock)
            try:
                extension = await self._broker.extend([attempt.claim for attempt in attempts])
                break
            except RedisError as error:
                self._monitor.log.warning(f"claims could not be renewed before they begin: {error}")
                await asyncio.sleep(self._delays(tries))
                tries += 1
        else:
            self._release(attempts)
            return
        lost = set(map(id, extension.lost))
        kept = [attempt for attempt in attempts if id(attempt.claim) not in lost]
        for attempt in attempts:
            if id(attempt.claim) in lost:
                self._drop(attempt)
            elif attempt.locked_at.steady < now.steady:  # the heartbeat may have renewed it since
                attempt.locked_at = now
        if self._is_stopping:
            self._release(kept)
        elif kept:
            self._start(kept, min((attempt.locked_at for attempt in kept), key=lambda at: at.steady))

    def _drop(self, attempt: RunningAttempt) -> None:
        """Forget a claim that was lost before its handler began."""
        if attempt.is_ended:
            return  # released meanwhile: its verdict will tell
        del self._held[attempt]
        self._freed()
        claim = attempt.claim
        if not attempt.context.lost:
            self._monitor.metrics.add(LOST_LOCKS)
        self._monitor.log.warning("a claim was lost before its handler began", job=claim.job.id)
        error = LockMissing(claim.job.id, "its handler had not begun")
        self._monitor.emit(WorkerEvent(WorkerEventKind.LOST, claim, None, error))
