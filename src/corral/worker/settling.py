"""Settling: what a handler returned or raised becomes a settlement."""

from collections.abc import Callable
from logging import DEBUG, ERROR, WARNING
from traceback import format_exception
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from corral.core.job import Job
from corral.core.known_errors import FailureKind
from corral.core.outcome import (
    Abandoned,
    AlreadyMoved,
    Cancelled,
    Completed,
    Dead,
    Outcome,
    Released,
    Retry,
    RetryPolicy,
    Settlement,
    decide,
    error_class_of,
    unwrap_group,
)
from corral.core.payload import encode
from corral.core.retry import ErrorRules
from corral.errors import JobCancelled, JobTimeout
from corral.telemetry.logs import logger
from corral.worker.attempt import EndedAttempt, RefusedAttempt, RunningAttempt
from corral.worker.config import WorkerConfig
from corral.worker.processes.errors import RemoteError, rebuild

NO_RESULT = Completed()
MOST_TRACE = 16_384
MOST_LOGGED_REASON = 500
_FAILED = (Retry, Dead)


def completed(job: Job, value: Any) -> Outcome:
    """Return the outcome of a handler that returned `value`."""
    if value is None:
        return NO_RESULT
    try:
        return Completed(encode(value, "result"))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(value, AlreadyMoved):
            return value  # the handler has settled the job itself
        return Dead(f"the result of {job.name!r} cannot be written as JSON: {error}")


def size_of(outcome: Outcome) -> int:
    """Return about how many bytes an outcome adds to its trip."""
    match outcome:
        case Completed(result=result):
            return len(result)
        case Dead(reason=reason, trace=trace) | Retry(reason=reason, trace=trace):
            return len(reason) + len(trace)
    return 0


def trace_of(error: BaseException) -> str:
    """Return the traceback as text, from the handler on; of a very long one, the end."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_internal(frames):
        frames = frames.tb_next
    text = "".join(format_exception(type(error), error, frames))
    return text if len(text) <= MOST_TRACE else "…" + text[-MOST_TRACE:]


def _is_internal(frames: TracebackType) -> bool:
    name: str = frames.tb_frame.f_globals.get("__name__", "")
    return name.startswith(("corral.worker.", "corral.core.", "corral.bullmq.", "asyncio."))


def _cut(reason: str) -> str:
    """Return a reason for a log line: of a very long one the beginning and the end, which may have a note."""
    if len(reason) <= MOST_LOGGED_REASON:
        return reason
    return f"{reason[: MOST_LOGGED_REASON // 2]} … {reason[-MOST_LOGGED_REASON // 2 :]}"


class Settler:
    """Gives each attempt its settlement, once, passes it to `ended`, and logs failures."""

    def __init__(self, config: WorkerConfig, ended: Callable[[EndedAttempt], None]) -> None:
        self._policy = config.policy
        self._clock = config.clock
        self._logs_payloads = config.logs_payloads
        self._ended = ended
        self._log = logger("executor", queue=config.queue)
        self._logs_completed = self._log.is_enabled(DEBUG)

    def end(
        self, attempt: RunningAttempt, outcome: Outcome, seconds: float | None, at: int | None = None
    ) -> None:
        """End the attempt with this outcome, now or `at` this time; dropped if it has ended before."""
        if not attempt.is_ended:
            attempt.is_ended = True
            settlement = Settlement(attempt.claim, outcome, self._clock() if at is None else at)
            self._ended(EndedAttempt(attempt, settlement, seconds))
            if type(outcome) is Completed:  # the usual case first: this runs once for every job
                if self._logs_completed:
                    job = attempt.claim.job
                    self._log.debug("completed", job=job.id, name=job.name, seconds=round(seconds or 0, 6))
            elif isinstance(outcome, _FAILED):
                self._log_failure(attempt.claim.job, outcome)
            elif isinstance(outcome, Abandoned):
                job = attempt.claim.job
                self._log.error("an attempt is left unsettled", job=job.id, name=job.name, why=outcome.reason)

    def refuse(self, attempt: RefusedAttempt) -> None:
        """End an attempt at a job that does not run here."""
        outcome = attempt.outcome
        self._ended(EndedAttempt(attempt, Settlement(attempt.claim, outcome, self._clock()), None))
        if isinstance(outcome, Dead):
            self._log_failure(attempt.claim.job, outcome)

    def fail(self, attempt: RunningAttempt, error: BaseException, seconds: float) -> None:
        """End the attempt with this error, by the retry policy."""
        policy = attempt.handler.policy or self._policy
        self._fail(attempt, error, trace_of(error), policy, seconds)

    def fail_remotely(self, attempt: RunningAttempt, error: RemoteError, seconds: float) -> None:
        """End the attempt with an error of another process."""
        policy = attempt.handler.policy or self._policy
        rebuilt, rules = rebuild(error), policy.classify
        is_ruled = isinstance(rules, ErrorRules) and rules.own(rebuilt) is not None
        if rules is not None and not is_ruled and error.kind is not None:
            # the child had the whole error, classified by the same table
            kind = FailureKind(error.kind)
            policy = replace(policy, classify=lambda _: kind)
        self._fail(attempt, rebuilt, error.trace, policy, seconds)

    def _fail(
        self, attempt: RunningAttempt, error: BaseException, trace: str, policy: RetryPolicy, seconds: float
    ) -> None:
        if attempt.context.stopping and self.is_unrequested_cancel(attempt, error):
            self.release(attempt, seconds)
        else:
            self.end(attempt, decide(attempt.claim.job, error, trace, policy), seconds)

    @staticmethod
    def is_unrequested_cancel(attempt: RunningAttempt, error: BaseException) -> bool:
        """Return whether a handler ended as cancelled although nobody cancelled its job."""
        return isinstance(unwrap_group(error), JobCancelled) and not attempt.context.cancel_requested

    def expire(self, attempt: RunningAttempt, seconds: float) -> None:
        """End an attempt that took longer than its handler's timeout."""
        handler = attempt.handler
        self.fail(attempt, JobTimeout(f"{handler.name!r} took longer than {handler.timeout} s"), seconds)

    def release(self, attempt: RunningAttempt, seconds: float | None = None) -> None:
        """Put the job back in the queue, unless somebody cancelled it."""
        self.end(attempt, Cancelled() if attempt.context.cancel_requested else Released(), seconds)

    def _log_failure(self, job: Job, outcome: Retry | Dead) -> None:
        fields = {"data": job.data} if self._logs_payloads else {}
        self._log.failure(
            ERROR if isinstance(outcome, Dead) else WARNING,
            "an attempt failed",
            outcome.trace,
            job=job.id,
            name=job.name,
            attempt=job.attempts_made + 1,
            outcome=type(outcome).__name__.lower(),
            error=error_class_of(outcome.trace),
            reason=_cut(outcome.reason),
            **fields,
        )
