"""How an attempt ended, and the one function that decides it."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from corral.core.backoff import BackoffRule as BackoffRule
from corral.core.backoff import delay_before
from corral.core.failure import Verdict, classify, spoken
from corral.core.job import Claim, Job
from corral.errors import JobCancelled, Postpone, Release, WaitForChildren


class Completed(Struct, frozen=True, tag=True):
    """The handler returned; `result` is its value as JSON bytes."""

    result: bytes = b"null"


class Retry(Struct, frozen=True, tag=True):
    """The attempt failed; the job has another after `delay` ms."""

    delay: int
    reason: str
    trace: str = ""


class Dead(Struct, frozen=True, tag=True):
    """The attempt failed and was the last."""

    reason: str
    trace: str = ""


class Cancelled(Struct, frozen=True, tag=True):
    """The job was cancelled while it ran."""

    reason: str = "cancelled"


class Released(Struct, frozen=True, tag=True):
    """Given back to the head of the queue, no attempt spent."""


class Postponed(Struct, frozen=True, tag=True):
    """Put off for `delay` ms, no attempt spent."""

    delay: int


class WaitingChildren(Struct, frozen=True, tag=True):
    """Set aside until its children have ended, no attempt spent."""


class AlreadyMoved(Struct, frozen=True, tag=True):
    """The handler has moved the job itself: nothing is left to settle."""


Outcome = Completed | Retry | Dead | Cancelled | Released | Postponed | WaitingChildren | AlreadyMoved


class Settlement(Struct, frozen=True):
    """What a worker asks a protocol to write down: this claim ended like this, at this time."""

    claim: Claim
    outcome: Outcome
    at: int


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How a worker turns failures into outcomes; the same for every protocol.

    `classify` None retries everything but `Unrecoverable`, as BullMQ does. What a handler says
    (`Unrecoverable`, `Transient`) holds under every policy. `cap` is for delays that grow.
    """

    classify: Callable[[BaseException], Verdict] | None = classify
    backoff_rule: BackoffRule | None = None
    cap: int | None = 3_600_000
    random: Callable[[], float] = lambda: 1.0


def decide(job: Job, error: BaseException, trace: str, policy: RetryPolicy) -> Outcome:
    """What becomes of a job whose attempt raised `error`.

    Always an outcome: a rule of the user's own that fails itself ends the job, and the trace says so.
    """
    error = _alone(error)
    reason = reason_of(error)
    try:
        return _decide(job, error, reason, trace, policy)
    except Exception as fault:
        why = f"{type(fault).__name__}: {reason_of(fault)}"
        return Dead(reason, f"{trace}\nno other attempt, for it could not be decided: {why}".lstrip())


def _decide(job: Job, error: BaseException, reason: str, trace: str, policy: RetryPolicy) -> Outcome:
    match error:
        case Postpone(delay=delay):
            return Postponed(max(int(delay), 0))
        case Release():
            return Released()
        case WaitForChildren():
            return WaitingChildren()
        case JobCancelled():
            return Cancelled()
    spent = job.attempt + 1
    if spent >= job.options.attempts or not _may_retry(error, policy):
        return Dead(reason, trace)
    delay = delay_before(job, spent, error, policy.backoff_rule, policy.cap, policy.random)
    return Dead(reason, trace) if delay < 0 else Retry(delay, reason, trace)


def reason_of(error: BaseException) -> str:
    """The error's message, or its type where it has none; always text that can be written down."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return text.encode("utf-8", "backslashreplace").decode() or type(error).__name__


def _alone(error: BaseException) -> BaseException:
    """The one error inside a group of one: what a lone child of a TaskGroup raised speaks for the handler."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _may_retry(error: BaseException, policy: RetryPolicy) -> bool:
    verdict = spoken(error)
    if verdict is None:
        verdict = Verdict.TRANSIENT if policy.classify is None else policy.classify(error)
    return verdict == Verdict.TRANSIENT


def is_final(outcome: Any) -> bool:
    """Does the job end with this outcome?"""
    return isinstance(outcome, Completed | Dead | Cancelled)
