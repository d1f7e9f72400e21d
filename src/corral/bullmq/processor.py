"""ProcessorRunner: runs a processor's jobs on Corral's worker, whose events become the official ones."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import CoroutineType
from typing import Any

import orjson
from msgspec import Struct

from corral.bullmq.abort_controller import AbortController
from corral.bullmq.custom_errors import (
    RATE_LIMIT_ERROR,
    DelayedError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from corral.bullmq.error_code import translate
from corral.bullmq.job import Job, StrategyRule
from corral.bullmq.options import encode_data
from corral.bullmq.queue_base import QueueBase
from corral.core.job import Claim
from corral.core.job import Job as CoreJob
from corral.core.outcome import (
    Abandoned,
    AlreadyMoved,
    Cancelled,
    Completed,
    Dead,
    Outcome,
    Retry,
    Settlement,
    reason_of,
)
from corral.core.ports import Extension, Recovery, Turn
from corral.errors import FailedChildren, PendingChildren, Release, SettleError, Unrecoverable
from corral.protocols.base import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.codec import doomed_trace
from corral.protocols.bullmq.reporter import BullmqReporter
from corral.store.client import Store
from corral.worker import Connections, JobContext, OpenConnections, WorkerEvent, WorkerEventKind

Processor = Callable[..., Awaitable[Any]]
Emit = Callable[..., None]
"""(event, *arguments), called from any thread."""
_ALREADY_MOVED = AlreadyMoved()


class RunningJob(Struct, eq=False):
    """A claimed job and its processor's result."""

    claim: Claim
    job: Job
    controller: AbortController | None = None
    result: Any = None
    error: BaseException | None = None
    strategy_error: BaseException | None = None
    """Why the `backoffStrategy` gave no delay; the job is left unsettled then."""
    is_over: bool = False
    """Whether the processor has returned; its outcome may not be written yet."""


class ProcessorRunner:
    """Passes claims to a processor as jobs, and emits the official events for their outcomes."""

    def __init__(self, queue: QueueBase, processor: Processor) -> None:
        self._queue = queue
        self._processor = processor
        self._takes_signal = takes_signal(processor)
        self._runs: dict[int, RunningJob] = {}
        """By the claim's id: those that run, and those whose outcome is yet to be emitted."""
        self._failed: set[int] = set()
        """Of these, those that ended with an error."""
        self._max_starts = queue.opts.get("maxStartedAttempts")

    async def handle(self, context: JobContext) -> Any:
        """Run the processor for one claim."""
        claim, runs = context.claim, self._runs
        key = id(claim)
        if key in runs:
            run = runs[key]
        else:
            run = runs[key] = RunningJob(claim, Job.from_claim(self._queue, claim))
        job = run.job
        try:
            if self._max_starts and self._max_starts < job.attemptsStarted:
                raise UnrecoverableError("job started more than allowable limit")
            if self._takes_signal:
                run.result = await self._run_with_signal(run, context)
            else:
                result: Any = self._processor(job, job.token)
                if type(result) is CoroutineType or inspect.isawaitable(result):
                    result = await result
                run.result = result
            result = run.result
            if not (result is None or isinstance(result, str | bool)):
                result = orjson.Fragment(encode_data(result, "result"))
            if not self._queue.listens_to("completed"):
                del runs[key]
            return result
        except (DelayedError, WaitingError, WaitingChildrenError):
            del runs[key]
            return _ALREADY_MOVED
        except asyncio.CancelledError as error:
            run.error = error
            self._failed.add(key)
            raise
        except Exception as error:
            run.error = error
            self._failed.add(key)
            if str(error) == RATE_LIMIT_ERROR:
                raise Release(RATE_LIMIT_ERROR) from error
            if job.discarded:
                raise UnrecoverableError(reason_of(error)).with_traceback(error.__traceback__) from None
            raise
        finally:
            run.is_over = True

    async def _run_with_signal(self, run: RunningJob, context: JobContext) -> Any:
        """Run the processor with a signal as its third argument, aborted when the job is cancelled."""
        controller = run.controller = AbortController()

        async def abort_when_cancelled() -> None:
            await context.wait_cancelled()
            controller.abort("cancelled")

        cancellation = asyncio.create_task(abort_when_cancelled())
        try:
            return await _awaited(self._processor(run.job, run.job.token, controller.signal))
        finally:
            cancellation.cancel()

    def backoff(self, attempts_made: int, kind: str, error: BaseException, job: CoreJob) -> int:
        """Return the delay that the worker's `backoffStrategy` gives for the processor's job."""
        runs = (run for run in self._runs.values() if run.claim.job is job)
        run = next(runs, None) or self._run_of(Claim(job, None))
        rule = StrategyRule(run.job)
        try:
            return rule(attempts_made, kind, error, job)
        finally:
            run.strategy_error = rule.failure

    def abort(self, job_id: str | None, reason: str | None) -> bool:
        """Abort the signal of a job (None: of all); return whether there was one."""
        runs = [run for run in self._runs.values() if job_id in (None, run.job.id)]
        controllers = [run.controller for run in runs if run.controller is not None]
        for controller in controllers:
            controller.abort(reason)
        return bool(controllers)

    def is_running(self, job_id: str) -> bool:
        """Return whether the processor runs this job."""
        return any(run.job.id == job_id and not run.is_over for run in self._runs.values())

    def _run_of(self, claim: Claim) -> RunningJob:
        return RunningJob(claim, Job.from_claim(self._queue, claim))

    def listens_to(self, kind: WorkerEventKind) -> bool:
        """Return whether an event of each job is needed: no job is made for one that nobody listens to."""
        listens_to = self._queue.listens_to
        if listens_to("active") or kind is WorkerEventKind.ACTIVE:
            return listens_to("active")
        return bool(self._failed) or listens_to("completed") or listens_to("failed") or listens_to("error")

    def listen(self, event: WorkerEvent) -> None:
        """Emit the official event for one of Corral's worker."""
        emit, claim = self._queue.emit, event.claim
        if event.kind is WorkerEventKind.ACTIVE and claim is not None:
            run = self._runs[id(claim)] = self._run_of(claim)
            emit("active", run.job, "waiting")
        elif event.kind is WorkerEventKind.DRAINED:
            emit("drained")
        elif event.kind is WorkerEventKind.UNAVAILABLE:
            emit("error", event.error)
        elif claim is not None:
            ended = self._runs.pop(id(claim), None)
            self._failed.discard(id(claim))
            if event.error is not None:
                run = ended or self._run_of(claim)
                emit("error", translate(event.error, "moveToFinished", job=claim.job.id), run.job)
            elif event.outcome is not None and (ended or type(event.outcome) is not Completed):
                self._settled(ended or self._run_of(claim), event.outcome)

    def _settled(self, run: RunningJob, outcome: Outcome) -> None:
        job = run.job
        match outcome:
            case Completed():
                job.returnvalue, job.finishedOn = run.result, self._queue.connection.clock()
                job.attemptsMade += 1
                self._queue.emit("completed", job, run.result)
            case Retry() | Dead() | Cancelled():
                job.failedReason = outcome.reason
                job.attemptsMade += 1
                if not isinstance(outcome, Cancelled):
                    job.add_trace(outcome.trace or doomed_trace(job.deferredFailure))
                if isinstance(outcome, Retry):
                    job.delay = outcome.delay
                else:
                    job.finishedOn = self._queue.connection.clock()
                self._queue.emit("failed", job, run.error or UnrecoverableError(outcome.reason))
            case Abandoned():
                self._queue.emit("error", run.strategy_error or Exception(outcome.reason))


async def _awaited(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def takes_signal(processor: Callable[..., Any]) -> bool:
    """Return whether a processor takes a third argument.

    >>> async def process(job, token, signal): ...
    >>> takes_signal(process)
    True
    """
    try:
        inspect.signature(processor).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


# -- connections --------------------------------------------------------------------------------------------


class UnrecoverableChildren(FailedChildren, Unrecoverable):
    """A job that can never complete because a child has failed."""


class EmittingBroker(BullmqBroker):
    """A broker that emits stalled jobs and renewed locks, with verdicts in the official client's words."""

    def __init__(self, binding: Binding, emit: Emit) -> None:
        super().__init__(binding)
        self._emit = emit

    async def turn(self, settlements: Sequence[Settlement], want: int) -> Turn:
        turn = await super().turn(settlements, want)
        if not any(turn.verdicts):
            return turn
        return Turn([_official_verdict(verdict) for verdict in turn.verdicts], turn.claims, turn.rest)

    async def recover(self, owner: Any = None) -> Recovery:
        recovery = await super().recover(owner)
        for job_id in recovery.requeued:
            self._emit("stalled", job_id, "active")
        return recovery

    async def extend(self, claims: Sequence[Claim], receipts: Sequence[str] = ()) -> Extension:
        extension = await super().extend(claims, receipts)
        lost = [claim.job.id for claim in extension.lost]
        kept = [claim.job.id for claim in claims if claim.job.id not in lost]
        if lost:
            self._emit("lockRenewalFailed", lost)
        if kept:
            self._emit("locksRenewed", {"count": len(kept), "jobIds": kept})
        return extension


def _official_verdict(verdict: SettleError | None) -> SettleError | None:
    """Return the verdict with the official message where it becomes the reason of a failed attempt."""
    if isinstance(verdict, FailedChildren):
        verdict = UnrecoverableChildren(verdict.job_id)
    if isinstance(verdict, PendingChildren | FailedChildren):
        verdict.args = translate(verdict, "moveToFinished", job=verdict.job_id).args
    return verdict


def connections(queue: QueueBase, emit: Emit) -> OpenConnections:
    """Return what Corral's worker enters, once in its own event loop and once in the heartbeat's."""

    @asynccontextmanager
    async def open_connections() -> AsyncIterator[Connections]:
        store = Store(queue.connection.url)
        connection = queue.connection
        binding = replace(queue.binding(), store=store)
        broker = EmittingBroker(binding, emit)
        try:
            await store.check_connection()
            await connection.check_clock(store)
            yield Connections(
                broker, BullmqReporter(binding), check_clock=lambda: connection.check_clock(store)
            )
        finally:
            with suppress(ConnectionError):
                await broker.close()
            await store.close()

    return open_connections
