"""Executor: one attempt becomes one outcome, on the event loop, in a thread, or in a spawned process."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from corral.core.job import Claim
from corral.core.outcome import Dead
from corral.core.ports import Reporter, StartLimiter
from corral.worker.async_runner import AsyncAttempt, AsyncRunner
from corral.worker.attempt import (
    BEGIN_SHARE,
    Attempt,
    EndedAttempt,
    LockAge,
    Moment,
    RefusedAttempt,
    RunningAttempt,
    moment,
)
from corral.worker.batches import BatchRunner
from corral.worker.config import WorkerConfig
from corral.worker.context import JobContext, SyncJobContext, WorkerScope
from corral.worker.handlers import HandlerKind
from corral.worker.processes.pool import ProcessJobContext, ProcessPool
from corral.worker.settling import Settler
from corral.worker.start_rules import StartRules
from corral.worker.thread_runner import ProcessAttempt, ThreadAttempt, ThreadRunner
from corral.worker.unhandled import UnhandledNames


class Executor:
    """Runs claimed jobs and passes each to `ended` once, with its settlement.

    `is_held` says that an attempt is not settled yet; `late(attempts)` is called with those whose locks must
    be renewed before they begin, `freed()` when a thread ended whose job was settled before, `crashed(error)`
    when the executor itself has failed.
    """

    def __init__(
        self,
        config: WorkerConfig,
        reporter: Reporter,
        *,
        is_held: Callable[[Attempt], bool],
        late: Callable[[Sequence[RunningAttempt]], None],
        ended: Callable[[EndedAttempt], None],
        freed: Callable[[], None],
        crashed: Callable[[BaseException], None],
        resources: Any = None,
        limiter: StartLimiter | None = None,
    ) -> None:
        self._handlers = config.handlers
        self.unhandled = UnhandledNames(config)
        self._reporter = reporter
        self._scope = WorkerScope(resources, asyncio.get_running_loop())
        self._settler = Settler(config, ended)
        self._late = late
        self._lock_age = lock_age = LockAge(config.clock, config.profile.lock_ms * BEGIN_SHARE)
        self._async = AsyncRunner(self._settler, lock_age, is_held=is_held, late=late, crashed=crashed)
        processes = config.processes or ProcessPool()
        heavy = [handler for handler in config.handlers.all if handler.kind is HandlerKind.PROCESS]
        processes.enter({handler.fn.__module__ for handler in heavy}, config.concurrency)
        self._threads = ThreadRunner(self._settler, reporter, config.concurrency, freed, processes)
        self._batches = BatchRunner(self._settler, self._threads, freed)
        self.rules: StartRules | None = None
        """What decides when jobs begin; None: at once, because no handler has rules for it."""
        if any(handler.is_ruled for handler in config.handlers.all):
            self.rules = StartRules(
                config,
                self._settler,
                lock_age,
                limiter,
                is_held=is_held,
                begin=self._begin,
                begin_batch=self._batches.start,
                late=late,
                wake=freed,
            )

    @property
    def overdue(self) -> int:
        """Slots that are taken although their jobs are settled."""
        return self._threads.overdue

    def prepare(self, claims: Iterable[Claim], locked_at: Moment) -> list[Attempt]:
        """Return an attempt for each claim, with its handler."""
        find, scope, reporter = self._handlers.find, self._scope, self._reporter
        attempts: list[Attempt] = []
        add = attempts.append
        name, handler = "", find("")
        for claim in claims:
            job = claim.job
            if job.name != name:  # most of a batch are alike
                name = job.name
                handler = find(name)
            if job.doomed is not None:
                add(RefusedAttempt(claim, locked_at, Dead(job.doomed)))
            elif handler is None:
                add(RefusedAttempt(claim, locked_at, self.unhandled.outcome(name)))
            elif handler.kind is HandlerKind.ASYNC:
                add(AsyncAttempt(claim, locked_at, handler, JobContext(claim, scope, reporter)))
            elif handler.kind is HandlerKind.SYNC:
                blocking = SyncJobContext(claim, scope, self._threads.reporter(claim))
                add(ThreadAttempt(claim, locked_at, handler, blocking))
            else:
                add(ProcessAttempt(claim, locked_at, handler, ProcessJobContext(claim, scope)))
        return attempts

    def start(self, attempts: Sequence[Attempt], locked_at: Moment) -> None:
        """Run these, locked no earlier than `locked_at`; each is passed to `ended` later."""
        if self.rules is None:
            self._begin(attempts, locked_at)
        else:
            self.rules.admit(attempts)

    def _begin(self, attempts: Sequence[Attempt], locked_at: Moment) -> None:
        now = moment(self._lock_age.clock)
        is_late = now.since(locked_at) >= self._lock_age.limit_ms
        if is_late:
            self._late([attempt for attempt in attempts if isinstance(attempt, RunningAttempt)])
            attempts = [attempt for attempt in attempts if isinstance(attempt, RefusedAttempt)]
        else:
            self._async.expect(locked_at, now)
        on_loop = [attempt for attempt in attempts if type(attempt) is AsyncAttempt]
        if on_loop:
            self._async.start(on_loop)
            if len(on_loop) == len(attempts):
                return
        for attempt in attempts:
            if isinstance(attempt, ThreadAttempt | ProcessAttempt):
                self._threads.start(attempt)
            elif isinstance(attempt, RefusedAttempt):
                self._settler.refuse(attempt)

    def check_locks(self) -> None:
        """Begin none of the attempts that have lost their locks."""
        self._async.check_soon()

    def begin_stop(self) -> None:
        """Tell the handlers that the worker stops, and release what has not started."""
        self._scope.set(asyncio.get_running_loop())
        self._threads.begin_stop()
        self._async.release_ready()
        if self.rules is not None:
            self.rules.begin_stop()

    def stop(self, attempts: Sequence[Attempt]) -> None:
        """End what can be ended and release it; a thread is told to end, and its job released."""
        for attempt in attempts:
            if not isinstance(attempt, RunningAttempt) or attempt.is_ended or attempt.is_leaving:
                continue
            attempt.is_leaving = True
            if (batch := self._batches.batch_of(attempt)) is not None:
                self._batches.stop(attempt, batch)
            elif isinstance(attempt, AsyncAttempt):
                self._async.stop(attempt)
            elif isinstance(attempt, ThreadAttempt | ProcessAttempt):
                self._threads.stop(attempt)

    def release(self, attempts: Sequence[Attempt]) -> None:
        """Release even what goes on after it was told to end, and what has not begun."""
        for attempt in attempts:
            if isinstance(attempt, RunningAttempt):
                self._settler.release(attempt, attempt.seconds() if attempt.started else None)

    def close(self) -> None:
        """End threads and processes."""
        self._threads.close()
