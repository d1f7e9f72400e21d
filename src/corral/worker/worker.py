"""The worker: starts its parts, and stops them so that nothing is lost."""

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
from corral.worker.connections import OpenConnections
from corral.worker.events import Listener
from corral.worker.executor import Executor
from corral.worker.heartbeat import Heartbeat
from corral.worker.loops import Loop, Promoter, Recoverer
from corral.worker.registry import Registry
from corral.worker.reports import Reports
from corral.worker.turns import Turns

LAST_TRIP_S = 2.0
"""How long a worker that must end tries to give back what it holds."""
PROMOTE_EVERY_S = 5.0
MOST_CONCURRENCY = 10_000


def default_name() -> str:
    """`{hostname}-{pid}-{random}`."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def wall_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Worker:
    """Serves one queue of one protocol: claims, executes, settles.

    `open_connections` gives an async context manager that opens a Broker and a Reporter in the event loop
    that enters it; it is entered twice, here and in the heartbeat's thread.
    `delays(tries)` says how many seconds to wait for a server that is away; `max_tries` None: for ever.

    >>> worker = Worker("mail", open_connections, registry, profile=Profile(name="w1"),
    ...                 delays=Reconnect().delay)  # doctest: +SKIP
    >>> await worker.run()  # doctest: +SKIP
    """

    def __init__(
        self,
        queue: str,
        open_connections: OpenConnections,
        registry: Registry,
        *,
        profile: Profile,
        delays: Callable[[int], float],
        max_tries: int | None = None,
        policy: RetryPolicy | None = None,
        concurrency: int = 50,
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
        self._registry = registry
        self._delays = delays
        self._max_tries = max_tries
        self._policy = policy or RetryPolicy()
        self._clock = clock
        self._metrics = metrics or Metrics().queue("", queue)
        self._listener = listener
        self._logs_payloads = logs_payloads
        self._log = logger("worker", queue=queue, worker=profile.name)
        self._stack = AsyncExitStack()
        self._loops: list[Loop] = []
        self._heartbeat: Heartbeat | None = None
        self._turning: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._crash: BaseException | None = None

    # -- start ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the connections and go to work; raises where the server cannot be reached the first time."""
        if self._turning is not None:
            raise InvalidOptions(f"the worker {self.profile.name!r} was started before; make another")
        self._killed = asyncio.Event()
        self._stopped = asyncio.Event()
        try:
            connections = await self._stack.enter_async_context(self._open_connections())
            self._turns = Turns(
                connections.broker,
                concurrency=self.concurrency,
                lock_ms=self.profile.lock_ms,
                policy=self._policy,
                clock=self._clock,
                delays=self._delays,
                max_tries=self._max_tries,
                reports=Reports(self._log, self._metrics, self._listener),
            )
            self._executor = Executor(
                self._registry,
                self._policy,
                connections.reporter,
                queue=self.queue,
                concurrency=self.concurrency,
                clock=self._clock,
                ended=self._turns.ended,
                freed=self._turns.freed,
                crashed=self._crashed,
                logs_payloads=self._logs_payloads,
            )
            self._turns.bind(self._executor)
            self._heartbeat = self._new_heartbeat()
            # it beats before the first claim is made: a handler may block the loop from then on
            self._heartbeat.start()
            await self._turns.first()
        except BaseException:
            await self._close()
            raise
        self._loops = self._new_loops(connections.broker)
        for loop in self._loops:
            loop.start()
        self._turning = asyncio.create_task(self._turns.run())
        self._turning.add_done_callback(self._turning_ended)
        self._log.info("working", concurrency=self.concurrency, handlers=self._registry.names)

    def _new_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self._open_connections,
            self._turns.listed,
            queue=self.queue,
            lock_ms=self.profile.lock_ms,
            clock=self._clock,
            metrics=self._metrics,
        )

    def _new_loops(self, broker: Broker) -> list[Loop]:
        every, promote_ms = self.profile.recover_ms / 1000, self.profile.promote_ms
        promote = PROMOTE_EVERY_S if promote_ms is None else promote_ms / 1000
        return [
            Recoverer(broker, self._turns.adopt, every=every, queue=self.queue, metrics=self._metrics),
            Promoter(broker, every=promote, queue=self.queue, metrics=self._metrics),
        ]

    async def run(self) -> None:
        """Work until stopped; raises what ended the worker, if it was not a stop."""
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
        """Claim no more, let running jobs end within `grace` seconds, give back the rest; then return."""
        if self._turning is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace))
        await asyncio.shield(self._stopping)

    def kill(self) -> None:
        """End at once: cancel what runs and give it back in one last trip, as far as that is possible."""
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
            self._executor.give_back()
            await self._turns.stop_claiming()
            for loop in self._loops:
                await loop.stop()
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
        self._executor.leave(list(self._turns.held))
        await asyncio.wait([turning], timeout=LAST_TRIP_S / 2)
        self._executor.insist(list(self._turns.held))
        await asyncio.wait([turning], timeout=LAST_TRIP_S / 2)
        turning.cancel()
        await asyncio.wait([turning])
        self._turns.give_up()

    async def _close(self) -> None:
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        if hasattr(self, "_executor"):
            self._executor.close()
        try:
            await self._stack.aclose()
        except RedisError as fault:
            self._log.warning(f"the connections could not be closed in good order: {fault}")

    # -- crash ------------------------------------------------------------------------------------------

    def _turning_ended(self, turning: "asyncio.Task[None]") -> None:
        if not turning.cancelled() and (error := turning.exception()) is not None:
            self._crashed(error)

    def _crashed(self, error: BaseException) -> None:
        """A part of the worker failed: end it, and let `run` say why."""
        if self._crash is None:
            self._crash = error
            self._log.error("the worker ends", why=repr(error))
        self.kill()
