"""A processor's jobs: each is handed over, watched, and told of when it has ended."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

from corral.bullmq.abort_controller import AbortController
from corral.bullmq.custom_errors import (
    RATE_LIMIT_ERROR,
    DelayedError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from corral.bullmq.error_code import ErrorCode, code_of, raised, words
from corral.bullmq.event_emitter import EventEmitter
from corral.bullmq.job import Job
from corral.bullmq.options import encode_data
from corral.bullmq.queue_base import QueueBase
from corral.core.job import Claim
from corral.core.job import Job as CoreJob
from corral.core.outcome import (
    AlreadyMoved,
    Cancelled,
    Completed,
    Dead,
    Outcome,
    Retry,
    Settlement,
    reason_of,
)
from corral.core.ports import Extension, Profile, Recovery, Turn
from corral.errors import (
    FailedChildren,
    InvalidPayload,
    PendingChildren,
    Release,
    SettleError,
    Unrecoverable,
)
from corral.protocols.binding import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.reporter import BullmqReporter
from corral.store.client import Store, first_contact
from corral.worker import Connections, Happening, JobContext, OpenConnections, WorkerEvent
from corral.worker.worker import wall_clock

Processor = Callable[..., Awaitable[Any]]
MOVED = AlreadyMoved()
_MOVED_BY_HAND = (DelayedError, WaitingError, WaitingChildrenError)


class Run:
    """One job in the processor's hands."""

    __slots__ = ("claim", "controller", "error", "is_over", "job", "result")

    def __init__(self, claim: Claim, job: Job) -> None:
        self.claim = claim
        self.job = job
        self.controller: AbortController | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        """Has the processor let go of it? Its end may still be on its way to the server."""


class Processing:
    """Between the engine and a processor: claims become jobs, and outcomes the worker's events."""

    def __init__(self, queue: QueueBase, processor: Processor, tell: EventEmitter) -> None:
        self._queue = queue
        self._processor = processor
        self._wants_signal = accepts_signal(processor)
        self._emit = tell.emit
        self._runs: dict[int, Run] = {}
        self._strategy = (queue.opts.get("settings") or {}).get("backoffStrategy")
        self._most_starts = queue.opts.get("maxStartedAttempts")

    # -- one attempt ----------------------------------------------------------------------------------------

    async def handle(self, context: JobContext) -> Any:
        """Run the processor for one claim."""
        run = self._runs[id(context.claim)]
        job = run.job
        try:
            if self._most_starts and self._most_starts < job.attemptsStarted:
                raise UnrecoverableError("job started more than allowable limit")
            if self._wants_signal:
                run.result = await self._with_signal(run, context)
            else:
                run.result = await _awaited(self._processor(job, job.token))
            return _written(run.result)
        except _MOVED_BY_HAND:
            return MOVED
        except asyncio.CancelledError as error:
            run.error = error
            raise
        except Exception as error:
            run.error = error
            if str(error) == RATE_LIMIT_ERROR:
                raise Release(RATE_LIMIT_ERROR) from error
            if job.discarded:
                raise UnrecoverableError(reason_of(error)).with_traceback(error.__traceback__) from None
            raise
        finally:
            run.is_over = True

    async def _with_signal(self, run: Run, context: JobContext) -> Any:
        """The same with a third argument; who cancels the job from elsewhere is heard too."""
        controller = run.controller = AbortController()
        watching = asyncio.create_task(context.wait_cancelled())

        def cancelled(watching: "asyncio.Task[None]") -> None:
            if not watching.cancelled():
                controller.abort("cancelled")

        watching.add_done_callback(cancelled)
        try:
            return await _awaited(self._processor(run.job, run.job.token, controller.signal))
        finally:
            watching.cancel()

    def backoff(self, made: int, kind: str, error: BaseException, job: CoreJob) -> int:
        """The worker's own strategy, asked with the job the processor had."""
        if self._strategy is None:
            raise LookupError(
                f"Unknown backoff strategy {kind}. "
                f"If a custom backoff strategy is used, specify it when the queue is created."
            )
        run = next((run for run in self._runs.values() if run.claim.job is job), None)
        return int(self._strategy(made, kind, error, job if run is None else run.job))

    # -- asked to end ---------------------------------------------------------------------------------------

    def abort(self, job_id: str | None, reason: str | None) -> bool:
        """Abort the signal of a job (None: of all); was there one?"""
        found = [
            run.controller
            for run in self._runs.values()
            if run.controller is not None and job_id in (None, run.job.id)
        ]
        for controller in found:
            controller.abort(reason)
        return bool(found)

    def is_running(self, job_id: str) -> bool:
        """Is this job in the processor's hands?"""
        return any(run.job.id == job_id and not run.is_over for run in self._runs.values())

    # -- told by the engine ---------------------------------------------------------------------------------

    def listen(self, event: WorkerEvent) -> None:
        """What the engine did becomes what a worker tells."""
        claim = event.claim
        if event.kind is Happening.ACTIVE and claim is not None:
            job = Job.held(self._queue, claim)
            self._runs[id(claim)] = Run(claim, job)
            self._emit("active", job, "waiting")
        elif event.kind is Happening.DRAINED:
            self._emit("drained")
        elif event.kind is Happening.AWAY:
            self._emit("error", event.error)
        elif claim is not None:
            run = self._runs.pop(id(claim), None)
            if run is None:
                return
            if event.kind is Happening.SETTLED and event.outcome is not None:
                self._ended(run, event.outcome)
            elif event.error is not None:
                self._emit("error", _in_words(event.error, claim.job.id), run.job)

    def _ended(self, run: Run, outcome: Outcome) -> None:
        job = run.job
        match outcome:
            case Completed():
                job.returnvalue, job.finishedOn = run.result, wall_clock()
                job.attemptsMade += 1
                self._emit("completed", job, run.result)
            case Retry(reason=reason, trace=trace) | Dead(reason=reason, trace=trace):
                job.failedReason = reason
                job.attemptsMade += 1
                job.remember(trace)
                if isinstance(outcome, Dead):
                    job.finishedOn = wall_clock()
                else:
                    job.delay = outcome.delay
                self._emit("failed", job, run.error or UnrecoverableError(reason))
            case Cancelled(reason=reason):
                job.failedReason, job.finishedOn = reason, wall_clock()
                job.attemptsMade += 1
                self._emit("failed", job, run.error or UnrecoverableError(reason))


def _in_words(error: BaseException, job_id: str) -> BaseException:
    code = code_of(error)
    return error if code is None else raised(code, "moveToFinished", job=job_id)


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _written(result: Any) -> Any:
    """The result, in a form the engine can write; TypeError or ValueError where JSON cannot carry it."""
    if result is None or isinstance(result, str | bool):
        return result
    try:
        return orjson.Fragment(encode_data(result, "result"))
    except InvalidPayload as error:
        raise TypeError(str(error)) from None


def accepts_signal(processor: Callable[..., Any]) -> bool:
    """Does the processor take a third argument?

    >>> async def process(job, token, signal): ...
    >>> accepts_signal(process)
    True
    """
    try:
        parameters = inspect.signature(processor).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters) >= 3


Tell = Callable[..., None]
"""(event, *arguments): from whichever thread."""


class _ChildrenPending(PendingChildren):
    """A job that cannot be completed yet, in the contract's words; it fails, and may be tried again."""

    def __init__(self, job_id: str) -> None:
        Exception.__init__(self, words(ErrorCode.JobPendingDependencies, "moveToFinished", job=job_id))
        self.job_id, self.detail = job_id, ""


class _ChildFailed(FailedChildren, Unrecoverable):
    """A job that can never be completed, in the contract's words; it fails for good."""

    def __init__(self, job_id: str) -> None:
        Exception.__init__(self, words(ErrorCode.JobHasFailedChildren, "moveToFinished", job=job_id))
        self.job_id, self.detail = job_id, ""


class TellingBroker(BullmqBroker):
    """A broker that says what it finds."""

    def __init__(self, binding: Binding, tell: Tell) -> None:
        super().__init__(binding)
        self._tell = tell

    async def turn(self, settlements: Sequence[Settlement], want: int) -> Turn:
        turn = await super().turn(settlements, want)
        if not any(turn.verdicts):
            return turn
        return Turn([_with_official_message(verdict) for verdict in turn.verdicts], turn.claims, turn.rest)

    async def recover(self, owner: Any = None) -> Recovery:
        recovery = await super().recover(owner)
        for job_id in recovery.requeued:
            self._tell("stalled", job_id, "active")
        return recovery

    async def extend(self, claims: Sequence[Claim]) -> Extension:
        extension = await super().extend(claims)
        lost = [claim.job.id for claim in extension.lost]
        kept = [claim.job.id for claim in claims if claim.job.id not in lost]
        if lost:
            self._tell("lockRenewalFailed", lost)
        if kept:
            self._tell("locksRenewed", {"count": len(kept), "jobIds": kept})
        return extension


def _with_official_message(verdict: SettleError | None) -> SettleError | None:
    match verdict:
        case PendingChildren():
            return _ChildrenPending(verdict.job_id)
        case FailedChildren():
            return _ChildFailed(verdict.job_id)
    return verdict


def connections(url: str, queue: str, prefix: str, profile: Profile, tell: Tell) -> OpenConnections:
    """What the engine enters, once in its own event loop and once in the heartbeat's."""

    @asynccontextmanager
    async def open_connections() -> AsyncIterator[Connections]:
        store = Store(url)
        binding = Binding(store, queue, prefix, wall_clock, profile)
        broker = TellingBroker(binding, tell)
        try:
            await first_contact(store)
            yield Connections(broker, BullmqReporter(binding))
        finally:
            with suppress(ConnectionError):
                await broker.close()
            await store.close()

    return open_connections
