"""Worker: runs a processor for the jobs of one queue, over Corral's engine."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from corral.bullmq.job import Job, policy
from corral.bullmq.options import core_options
from corral.bullmq.processor import Processing, Processor, connections
from corral.bullmq.queue_base import QueueBase
from corral.core.ports import Limit, Profile, Rest, Why
from corral.errors import RedisError
from corral.protocols.bullmq.broker import BullmqBroker
from corral.store.client import Reconnect
from corral.worker import ANY_NAME, Registry
from corral.worker import Worker as Engine

AS_LONG_AS_IT_TAKES_S = 86_400.0 * 365
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

    def __init__(self, name: str, processor: Processor | None, opts: Mapping[str, Any] | None = None) -> None:
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
        self._profile = _profile(self.opts)
        self._processing = None if processor is None else Processing(self, processor, self)
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resumed = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._main: asyncio.Task[Any] | None = None
        self._stopped = asyncio.Event()
        self._stopped.set()
        self._manual: BullmqBroker | None = None
        self._rest: Rest | None = None
        if processor is not None and self.opts["autorun"]:
            self._main = asyncio.ensure_future(self._autorun())

    def profile(self) -> Profile:
        return self._profile

    # -- run ------------------------------------------------------------------------------------------------

    async def _autorun(self) -> None:
        try:
            await self.run()
        except Exception as error:
            self.emit("error", error)

    async def run(self) -> None:
        """Work until closed."""
        if self._processing is None:
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
                    await self._work()
        finally:
            self.running = False
            self._stopped.set()

    async def _work(self) -> None:
        """Work until paused or closed; a server that is away is waited for."""
        assert self._processing is not None
        registry = Registry()
        registry.add(ANY_NAME, self._processing.handle)
        reconnect, tries = Reconnect(), 0
        while not (self.closing or self.paused):
            self._engine = Engine(
                self.name,
                connections(self.connection.url, self.name, self.prefix, self._profile, self._tell),
                registry,
                profile=self._profile,
                delays=reconnect.delay,
                policy=policy(self._processing.backoff),
                concurrency=self.opts["concurrency"],
                listener=self._processing.listen,
            )
            try:
                await self._engine.start()
            except RedisError as fault:
                if tries == 0:
                    self.emit("error", fault)
                await self._wait(reconnect.delay(tries))
                tries += 1
                continue
            if self.closing or self.paused:
                # asked to end while it started
                self._end(AS_LONG_AS_IT_TAKES_S)
            self.emit("ready")
            await self._engine.run()
            return

    async def _wait(self, seconds: float) -> None:
        self._resumed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._resumed.wait(), seconds)

    def _tell(self, event: str, *args: Any) -> None:
        """Emit on the worker's own loop, from whichever thread."""
        emit = self._tell_of_lost_locks if event == "lockRenewalFailed" else self.emit
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(emit, event, *args)

    def _tell_of_lost_locks(self, event: str, ids: list[str]) -> None:
        # one that has ended meanwhile has no lock any more, and lost none
        running = self._processing
        lost = [job_id for job_id in ids if running is not None and running.is_running(job_id)]
        if lost:
            self.emit(event, lost)
        for job_id in lost:
            self.emit("error", Exception(f"could not renew lock for job {job_id}"))

    # -- one by one -----------------------------------------------------------------------------------------

    async def getNextJob(self, token: str, opts: Mapping[str, Any] | None = None) -> Job | None:
        """The next job, held under `token` until it is moved or its lock runs out; None where there is none.

        After a call that brought none, the next waits for a job up to `drainDelay` s; `{"block": False}`: it
        does not.
        """
        if self.paused or self.closing:
            return None
        if self._manual is None:
            self._manual = self.broker()
        block = bool((opts or {}).get("block", True))
        if self._rest is not None and block:
            await self._manual.wait(self._rest)
        claim, rest = await self.claim(self._manual, token)
        self._rest = rest if claim is None else None
        self.drained = claim is None
        if claim is None:
            if rest.why is Why.DRAINED:
                self.emit("drained")
            return None
        job = Job.held(self, claim)
        self.emit("active", job, "waiting")
        return job

    async def rateLimit(self, expireTimeMs: int) -> None:
        """No worker that has a limit begins a job for so long; then raise `RateLimitError`."""
        await self.operator.hold(expireTimeMs)

    # -- asked to end ---------------------------------------------------------------------------------------

    def cancelJob(self, job_id: str, reason: str | None = None) -> bool:
        """Abort the signal of a job this worker runs; False where it has none (the processor takes two
        arguments) or is not run here."""
        return self._processing is not None and self._processing.abort(job_id, reason)

    def cancelAllJobs(self, reason: str | None = None) -> None:
        """Abort the signals of all jobs this worker runs."""
        if self._processing is not None:
            self._processing.abort(None, reason)

    async def pause(self, do_not_wait_active: bool = False) -> None:
        """Begin no job until `resume`; returns when those that run have ended, unless told not to wait."""
        if not self.paused:
            self.paused = True
            self._resumed.set()
            ending = self._end(AS_LONG_AS_IT_TAKES_S)
            if ending is not None and not do_not_wait_active:
                await asyncio.shield(ending)
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
        """Begin no job any more, and return when those that run have ended.

        With `force` they are told (signals are aborted), cancelled, and given back to the queue.
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
        ending = self._end(AS_LONG_AS_IT_TAKES_S)
        if ending is not None:
            await ending
        await self._stopped.wait()
        try:
            if self._manual is not None:
                await self._manual.close()
            await super().close()
        except RedisError as fault:
            self.emit("error", fault)
        self.closed = True
        self.emit("closed")

    def _end(self, grace: float) -> "asyncio.Task[None] | None":
        """Stop the engine, if there is one; the task that does."""
        engine = self._engine
        if engine is None:
            return None
        if self._ending is None or self._ending.done():
            self._ending = asyncio.ensure_future(engine.stop(grace))
        return self._ending


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
    """ValueError, in 5.62.0's words, where a worker cannot have these options."""
    rules = (
        ("concurrency", 1, "concurrency must be a finite number greater than 0"),
        ("maxStalledCount", 0, "maxStalledCount must be greater or equal than 0"),
        ("stalledInterval", 1, "stalledInterval must be greater than 0"),
        ("drainDelay", 0.001, "drainDelay must be greater than 0"),
        ("lockDuration", 100, "lockDuration must be greater or equal than 100"),
    )
    for name, least, words in rules:
        value = opts[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value < float("inf"):
            raise ValueError(words)
    if opts.get("maxStartedAttempts") is not None and opts["maxStartedAttempts"] < 0:
        raise ValueError("maxStartedAttempts must be greater or equal than 0")
