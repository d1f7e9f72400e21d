"""Worker: serves one queue, and stops without losing jobs."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

from corral.core.options import seconds
from corral.core.ports import Rest
from corral.errors import InvalidOptions, RedisError
from corral.telemetry.logs import logger
from corral.worker.config import WorkerConfig
from corral.worker.heartbeat import Heartbeat
from corral.worker.maintenance import PeriodicTask, PromotionTask, RecoveryTask
from corral.worker.turn_loop import TurnLoop

LAST_TRIP_S = 2.0
"""How long a worker that must end tries to release what it holds."""


class Worker:
    """Serves one queue of one protocol: claims, executes, settles.

    >>> worker = Worker(WorkerConfig(queue="mail", handlers=handlers, …))   # doctest: +SKIP
    >>> await worker.run()                                                  # doctest: +SKIP
    """

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self._log = logger("worker", queue=config.queue, worker=config.profile.name)
        self._turns: TurnLoop
        self._stack = AsyncExitStack()
        self._tasks: list[PeriodicTask] = []
        self._turning: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._crash: BaseException | None = None

    @property
    def queue(self) -> str:
        """The queue it serves."""
        return self.config.queue

    @property
    def is_ready(self) -> bool:
        """Whether it claims jobs, and Redis replies."""
        return self._turning is not None and self._stopping is None and self._turns.is_connected

    @property
    def idle_rest(self) -> Rest | None:
        """Why it holds no job and claimed none; None while it has work, or has not started."""
        return None if self._turning is None else self._turns.idle_rest

    # -- start ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the connections and start working; raise if Redis cannot be reached this first time."""
        config = self.config
        if self._turning is not None:
            raise InvalidOptions(f"the worker {config.profile.name!r} was started before; make another")
        self._killed = asyncio.Event()
        self._stopped = asyncio.Event()
        try:
            resources = await self._stack.enter_async_context(config.open_resources())
            connections = await self._stack.enter_async_context(config.open_connections())
            self._turns = TurnLoop(config, connections, self._crashed, resources)
            self._stack.callback(self._turns.executor.close)
            heartbeat = Heartbeat(
                config,
                held=self._turns.held_attempts,
                unread=self._turns.unread_claims,
                lost=self._turns.executor.check_locks,
                minutes=self._turns.minutes,
                unhandled=self._turns.executor.unhandled,
            )
            self._stack.push_async_callback(heartbeat.stop)
            # before the first claim is made: a handler may block the loop from then on
            heartbeat.start()
            await self._turns.first()
        except BaseException:
            await self._close()
            raise
        broker = connections.broker
        self._tasks = [RecoveryTask(config, broker, self._turns.adopt), PromotionTask(config, broker)]
        self._turning = asyncio.create_task(self._turns.run())
        self._turning.add_done_callback(self._turning_ended)
        self._log.info("working", concurrency=config.concurrency, handlers=config.handlers.names)

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

    async def stop(self, grace: float | timedelta = 30.0) -> None:
        """Claim no more, let running jobs end within `grace` seconds (or a timedelta), release the rest."""
        if self._turning is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(seconds(grace)))
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
            self._turns.executor.begin_stop()
            await self._turns.stop_claiming()
            for task in self._tasks:
                await task.stop()
            await self._wind_down(turning, grace)
            await self._close()
        except BaseException as error:
            self._crash = self._crash or error
            raise
        finally:
            self._stopped.set()  # before the line: a log that fails must not keep `run` waiting
            self._log.info("stopped")

    async def _wind_down(self, turning: "asyncio.Task[None]", grace: float) -> None:
        killed = asyncio.create_task(self._killed.wait())
        await asyncio.wait([turning, killed], timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        self._turns.executor.stop(list(self._turns.held))
        await asyncio.wait([turning], timeout=LAST_TRIP_S / 2)
        self._turns.executor.release(list(self._turns.held))
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
