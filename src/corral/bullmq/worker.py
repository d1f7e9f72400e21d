"""Worker: runs a processor for the jobs of one queue."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from corral.bullmq.job import Job, retry_policy
from corral.bullmq.options import core_options
from corral.bullmq.processor import Processor, ProcessorRunner, connections
from corral.bullmq.queue_base import QueueBase
from corral.bullmq.types import WorkerOptions
from corral.core.ports import Limit, Profile, Rest, RestReason
from corral.errors import RedisError
from corral.protocols.bullmq.broker import BullmqBroker
from corral.store.client import Reconnect
from corral.worker import ANY_NAME, HandlerRegistry, WorkerConfig
from corral.worker.worker import Worker as Engine

NO_LIMIT_S = 86_400.0 * 365
"""How long running jobs may take when the worker is paused or closed."""
DEFAULTS = {
    "drainDelay": 5,
    "concurrency": 1,
    "lockDuration": 30_000,
    "maxStalledCount": 1,
    "stalledInterval": 30_000,
    "runRetryDelay": 15_000,
    "autorun": True,
}


class Worker(QueueBase):
    """Runs `processor(job, token)` or `processor(job, token, signal)` for each job.

    It begins at once, unless `{"autorun": False}`. Without a processor, jobs are taken with `getNextJob`.

    Events: active (job, "waiting"), completed (job, result), failed (job, error), progress (job, progress),
    stalled (job id), drained, error (error), paused, resumed, closing, closed, locksRenewed,
    lockRenewalFailed.

    >>> worker = Worker("mail", process, {"connection": {"host": "127.0.0.1"}})      # doctest: +SKIP
    >>> await worker.close()                                                         # doctest: +SKIP
    """

    def __init__(self, name: str, processor: Processor | None, opts: WorkerOptions | None = None) -> None:
        super().__init__(name, opts)
        self.opts = {**DEFAULTS, **self.opts}
        self.opts.setdefault("lockRenewTime", self.opts["lockDuration"] // 2)
        _check(self.opts)
        self.id = uuid4().hex
        self.processor = processor
        self.workerName: str | None = self.opts.get("name")
        self.running = False
        self.paused = False
        self.closed = False
        self.forceClosing = False
        self.drained = False
        self.profile = _profile(self.opts)
        self._runner = None if processor is None else ProcessorRunner(self, processor)
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resumed = asyncio.Event()
        self._engine_stop: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._main: asyncio.Task[Any] | None = None
        self._stopped = asyncio.Event()
        self._stopped.set()
        self._manual: BullmqBroker | None = None
        """The broker of `getNextJob`."""
        self._rest: Rest | None = None
        if processor is not None and self.opts["autorun"]:
            self._main = asyncio.ensure_future(self._autorun())

    # -- run ------------------------------------------------------------------------------------------------

    async def _autorun(self) -> None:
        try:
            await self.run()
        except Exception as error:
            self.emit("error", error)

    async def run(self) -> None:
        """Work until closed."""
        if self._runner is None:
            raise Exception("No process function is defined.")
        if self.running:
            raise Exception("Worker is already running")
        self.running = True
        self._stopped.clear()
        self._loop = asyncio.get_running_loop()
        try:
            while not self.closing:
                if self.paused:
                    self._resumed.clear()
                    await self._resumed.wait()
                else:
                    await self._work(self._runner)
        finally:
            self.running = False
            self._stopped.set()

    async def _work(self, runner: ProcessorRunner) -> None:
        """Work until paused or closed; wait for a server that is not available."""
        registry = HandlerRegistry()
        registry.add(ANY_NAME, runner.handle)
        reconnect, tries = Reconnect(), 0
        while not (self.closing or self.paused):
            self._engine = Engine(
                WorkerConfig(
                    queue=self.name,
                    handlers=registry,
                    open_connections=connections(self, self._emit_threadsafe),
                    profile=self.profile,
                    delays=reconnect.delay,
                    policy=retry_policy(runner.backoff),
                    concurrency=self.opts["concurrency"],
                    listener=runner.listen,
                    listens_to=runner.listens_to,
                    has_delays=True,
                    clock=self.connection.clock,
                )
            )
            try:
                await self._engine.start()
            except RedisError as fault:
                if tries == 0:
                    self.emit("error", fault)
                self._resumed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._resumed.wait(), reconnect.delay(tries))
                tries += 1
                continue
            if self.closing or self.paused:
                # paused or closed while it started
                self._stop_engine()
            self.emit("ready")
            await self._engine.run()
            return

    def _emit_threadsafe(self, event: str, *args: Any) -> None:
        """Emit on the worker's own event loop, from any thread."""
        emit = self._emit_lost_locks if event == "lockRenewalFailed" else self.emit
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(emit, event, *args)

    def _emit_lost_locks(self, event: str, ids: list[str]) -> None:
        # a job that has ended since has no lock, and lost none
        runner = self._runner
        lost = [job_id for job_id in ids if runner is not None and runner.is_running(job_id)]
        if lost:
            self.emit(event, lost)
        for job_id in lost:
            self.emit("error", Exception(f"could not renew lock for job {job_id}"))

    # -- without a processor --------------------------------------------------------------------------------

    async def getNextJob(self, token: str, opts: Mapping[str, Any] | None = None) -> Job | None:
        """Claim the next job under `token` until it is moved or its lock expires; None if there is none.

        After a call that returned None, the next waits for a job, unless `{"block": False}`.
        """
        if self.paused or self.closing:
            return None
        if self._manual is None:
            self._manual = self.broker()
        if self._rest is not None and (opts or {}).get("block", True):
            await self._manual.wait(self._rest)
        claim, rest = await self.claim(self._manual, token)
        self._rest = rest if claim is None else None
        self.drained = claim is None
        if claim is None:
            if rest.reason is RestReason.DRAINED:
                self.emit("drained")
            return None
        job = Job.from_claim(self, claim)
        self.emit("active", job, "waiting")
        return job

    async def rateLimit(self, expireTimeMs: int) -> None:
        """Let no worker that has a limit begin a job for this time; then raise `RateLimitError`."""
        await self.operator.block_claims(expireTimeMs)

    # -- cancel, pause, close -------------------------------------------------------------------------------

    def cancelJob(self, job_id: str, reason: str | None = None) -> bool:
        """Abort the signal of a job that this worker runs; False if it has none (the processor takes two
        arguments) or does not run here."""
        return self._runner is not None and self._runner.abort(job_id, reason)

    def cancelAllJobs(self, reason: str | None = None) -> None:
        """Abort the signals of all jobs that this worker runs."""
        if self._runner is not None:
            self._runner.abort(None, reason)

    async def pause(self, do_not_wait_active: bool = False) -> None:
        """Begin no job until `resume`; wait for those that run, unless `do_not_wait_active`."""
        if not self.paused:
            self.paused = True
            self._resumed.set()
            stop = self._stop_engine()
            if stop is not None and not do_not_wait_active:
                await asyncio.shield(stop)
            self.emit("paused")

    def resume(self) -> None:
        """Begin jobs again."""
        if self.paused:
            self.paused = False
            self._resumed.set()
            self.emit("resumed")

    def isPaused(self) -> bool:
        return self.paused

    def isRunning(self) -> bool:
        return self.running

    async def close(self, force: bool = False) -> None:
        """Begin no more jobs, and wait for those that run.

        With `force` their signals are aborted, and they are cancelled and returned to the queue.
        """
        if force and not self.forceClosing:
            self.forceClosing = True
            self.cancelAllJobs("worker force-closed")
            if self._engine is not None:
                self._engine.kill()
        if self._closing is None:
            self.closing = True
            self.emit("closing", "closing queue")
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._resumed.set()
        stop = self._stop_engine()
        if stop is not None:
            await stop
        await self._stopped.wait()
        try:
            if self._manual is not None:
                await self._manual.close()
            await super().close()
        except RedisError as fault:
            self.emit("error", fault)
        self.closed = True
        self.emit("closed")

    def _stop_engine(self) -> "asyncio.Task[None] | None":
        """Stop the engine, if there is one; return the task that does."""
        if self._engine is None:
            return None
        if self._engine_stop is None or self._engine_stop.done():
            self._engine_stop = asyncio.ensure_future(self._engine.stop(NO_LIMIT_S))
        return self._engine_stop


def _profile(opts: Mapping[str, Any]) -> Profile:
    limiter, metrics = opts.get("limiter"), opts.get("metrics")
    kept = core_options({name: opts.get(name) for name in ("removeOnComplete", "removeOnFail")})
    return Profile(
        name=opts.get("name") or "",
        lock_ms=opts["lockDuration"],
        max_stalls=opts["maxStalledCount"],
        recover_ms=opts["stalledInterval"],
        limit=Limit(limiter["max"], limiter["duration"]) if limiter else None,
        keep_completed=kept.keep_completed,
        keep_dead=kept.keep_dead,
        metrics_points=metrics.get("maxDataPoints") if metrics else None,
    )


def _check(opts: Mapping[str, Any]) -> None:
    """Raise ValueError, with the message of BullMQ 5.62.0, where a worker cannot have these options."""
    rules = (
        ("concurrency", 1, "concurrency must be a finite number greater than 0"),
        ("maxStalledCount", 0, "maxStalledCount must be greater or equal than 0"),
        ("stalledInterval", 1, "stalledInterval must be greater than 0"),
        ("drainDelay", 0.001, "drainDelay must be greater than 0"),
        ("lockDuration", 100, "lockDuration must be greater or equal than 100"),
    )
    for name, least, message in rules:
        value = opts[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value < float("inf"):
            raise ValueError(message)
    if opts.get("maxStartedAttempts") is not None and opts["maxStartedAttempts"] < 0:
        raise ValueError("maxStartedAttempts must be greater or equal than 0")
