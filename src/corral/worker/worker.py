"""Worker: serves one queue, and stops without losing jobs."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from corral.core.outcome import RetryPolicy
from corral.core.ports import Broker, Profile
from corral.errors import InvalidOptions, RedisError
from corral.telemetry.logs import logger
from corral.telemetry.metrics import Metrics, QueueMetrics
from corral.worker.events import Listener, Monitor
from corral.worker.executor import Executor
from corral.worker.handlers import HandlerRegistry
from corral.worker.heartbeat import Heartbeat, OpenConnections
from corral.worker.maintenance import PeriodicTask, PromotionTask, RecoveryTask
from corral.worker.turn_loop import TurnLoop

DEFAULT_CONCURRENCY = 10
MOST_CONCURRENCY = 10_000
LAST_TRIP_S = 2.0
"""How long a worker that must end tries to release what it holds."""
PROMOTE_EVERY_S = 5.0


def default_name() -> str:
    """Return `{hostname}-{pid}-{random}`."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def wall_clock() -> int:
    """Return the milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Worker:
    """Serves one queue of one protocol: claims, executes, settles.

    `open_connections` returns an async context manager that opens a Broker and a Reporter in the event loop
    that enters it; it is entered twice, here and in the heartbeat's thread. `delays(tries)` returns the
    seconds to wait while Redis is unavailable; `max_tries` None: without end.

    >>> worker = Worker("mail", open_connections, handlers, profile=Profile(name="w1"),
    ...                 delays=Reconnect().delay)  # doctest: +SKIP
    >>> await worker.run()  # doctest: +SKIP
    """

    def __init__(
        self,
        queue: str,
        open_connections: OpenConnections,
        handlers: HandlerRegistry,
        *,
        profile: Profile,
        delays: Callable[[int], float],
        max_tries: int | None = None,
        policy: RetryPolicy | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        clock: Callable[[], int] = wall_clock,
        metrics: QueueMetrics | None = None,
        listener: Listener | None = None,
        logs_payloads: bool = False,
    ) -> None:
        if not 1 <= concurrency <= MOST_CONCURRENCY:
            raise InvalidOptions(f"concurrency {concurrency!r} is outside 1..{MOST_CONCURRENCY}")
        if profile.lock_ms < 100:
            raise InvalidOptions(f"lock_ms {profile.lock_ms!r} is too short to be renewed; use 100 or more")
        self.queue = queue
        self.concurrency = concurrency
        self.profile = profile
        self._open_connections = open_connections
        self._handlers = handlers
        self._delays = delays
        self._max_tries = max_tries
        self._policy = policy or RetryPolicy()
        self._clock = clock
        self._metrics = metrics or Metrics().queue("", queue)
        self._listener = listener
        self._logs_payloads = logs_payloads
        self._log = logger("worker", queue=queue, worker=profile.name)
        self._turns: TurnLoop
        self._executor: Executor
        self._stack = AsyncExitStack()
        self._tasks: list[PeriodicTask] = []
        self._turning: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._crash: BaseException | None = None

    # -- start ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the connections and start working; raise if Redis cannot be reached this first time."""
        if self._turning is not None:
            raise InvalidOptions(f"the worker {self.profile.name!r} was started before; make another")
        self._killed = asyncio.Event()
        self._stopped = asyncio.Event()
        try:
            connections = await self._stack.enter_async_context(self._open_connections())
            self._turns = TurnLoop(
                connections.broker,
                concurrency=self.concurrency,
                lock_ms=self.profile.lock_ms,
                policy=self._policy,
                clock=self._clock,
                delays=self._delays,
                max_tries=self._max_tries,
                monitor=Monitor(self._log, self._metrics, self._listener),
            )
            self._executor = Executor(
                self._handlers,
                self._policy,
                connections.reporter,
                queue=self.queue,
                concurrency=self.concurrency,
                clock=self._clock,
                is_held=self._turns.held.__contains__,
                ended=self._turns.ended,
                freed=self._turns.freed,
                crashed=self._crashed,
                logs_payloads=self._logs_payloads,
            )
            self._stack.callback(self._executor.close)
            self._turns.bind(self._executor)
            heartbeat = Heartbeat(
                self._open_connections,
                self._turns.held_attempts,
                queue=self.queue,
                lock_ms=self.profile.lock_ms,
                clock=self._clock,
                metrics=self._metrics,
            )
            self._stack.push_async_callback(heartbeat.stop)
            # before the first claim is made: a handler may block the loop from then on
            heartbeat.start()
            await self._turns.first()
        except BaseException:
            await self._close()
            raise
        self._start_tasks(connections.broker)
        self._turning = asyncio.create_task(self._turns.run())
        self._turning.add_done_callback(self._turning_ended)
        self._log.info("working", concurrency=self.concurrency, handlers=self._handlers.names)

    def _start_tasks(self, broker: Broker) -> None:
        every, promote_ms = self.profile.recover_ms / 1000, self.profile.promote_ms
        promote = PROMOTE_EVERY_S if promote_ms is None else promote_ms / 1000
        self._tasks = [
            RecoveryTask(broker, self._turns.adopt, every=every, queue=self.queue, metrics=self._metrics),
            PromotionTask(broker, every=promote, queue=self.queue, metrics=self._metrics),
        ]
        for task in self._tasks:
            task.start()

    async def run(self) -> None:
        """Work until stopped; raise the error that ended the worker, if any."""
        if self._turning is None:
            await self.start()
        try:
            await self._stopped.wait()
        except asyncio.CancelledError:
            self.kill()
            await self._stopped.wait()
            raise
        if self._crash is not None:
            raise self._crash

    # -- stop -------------------------------------------------------------------------------------------

    async def stop(self, grace: float = 30.0) -> None:
        """Claim no more, let running jobs end within `grace` seconds, release the rest; then return."""
        if self._turning is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace))
        await asyncio.shield(self._stopping)

    def kill(self) -> None:
        """End at once: cancel what runs and release it in one last trip, as far as possible."""
        if self._turning is None:
            return
        self._killed.set()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(0))

    async def _stop(self, grace: float) -> None:
        turning = self._turning
        assert turning is not None
        try:
            self._log.info("stopping", running=len(self._turns.held), grace=grace)
            self._executor.release_ready()
            await self._turns.stop_claiming()
            for task in self._tasks:
                await task.stop()
            await self._wind_down(turning, grace)
            await self._close()
        except BaseException as error:
            self._crash = self._crash or error
            raise
        finally:
            self._log.info("stopped")
            self._stopped.set()

    async def _wind_down(self, turning: "asyncio.Task[None]", grace: float) -> None:
        killed = asyncio.create_task(self._killed.wait())
        await asyncio.wait([turning, killed], timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        self._executor.stop(list(self._turns.held))
        await asyncio.wait([turning], timeout=LAST_TRIP_S / 2)
        self._executor.release(list(self._turns.held))
        await asyncio.wait([turning], timeout=LAST_TRIP_S / 2)
        turning.cancel()
        await asyncio.wait([turning])
        self._turns.give_up()

    async def _close(self) -> None:
        try:
            await self._stack.aclose()
        except RedisError as error:
            self._log.warning(f"the connections could not be closed cleanly: {error}")

    # -- crash ------------------------------------------------------------------------------------------

    def _turning_ended(self, turning: "asyncio.Task[None]") -> None:
        if not turning.cancelled() and (error := turning.exception()) is not None:
            self._crashed(error)

    def _crashed(self, error: BaseException) -> None:
        """End the worker after a failure of one of its parts; `run` raises the error."""
        if self._crash is None:
            self._crash = error
            self._log.error("the worker ends", why=repr(error))
        self.kill()
