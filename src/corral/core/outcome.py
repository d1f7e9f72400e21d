"""Outcomes: how an attempt ended, and the function that decides it."""

import re
from collections.abc import Callable
from typing import Generic

from msgspec import Struct
from msgspec.structs import replace

from corral.core.job import Backoff, Claim, Job, R
from corral.core.known_errors import FailureKind
from corral.core.retry import (
    BACKOFF_CAP_MS,
    BackoffRule,
    ErrorRules,
    Errors,
    UnknownBackoff,
    classify,
    delay_before,
    kind_by_handler,
)
from corral.errors import JobCancelled, Postpone, Release, WaitForChildren


class Completed(Struct, frozen=True, tag=True):
    """The handler returned; `result` is its value as JSON bytes."""

    result: bytes = b"null"


class Retry(Struct, frozen=True, tag=True):
    """The attempt failed; the job has another after `delay` ms."""

    delay: int
    reason: str
    trace: str = ""
    error: str = ""
    """The class of the error."""


class Dead(Struct, frozen=True, tag=True):
    """The attempt failed and was the last."""

    reason: str
    trace: str = ""
    error: str = ""
    """The class of the error; empty where the job did not run."""


class Cancelled(Struct, frozen=True, tag=True):
    """The job was cancelled while it ran."""

    reason: str = "cancelled"


class Released(Struct, frozen=True, tag=True):
    """Back to the head of the queue; no attempt spent."""


class Postponed(Struct, frozen=True, tag=True):
    """Run again after `delay` ms; no attempt spent."""

    delay: int


class WaitingChildren(Struct, frozen=True, tag=True):
    """Run again when its children have finished; no attempt spent."""


class Unhandled(Struct, frozen=True, tag=True):
    """No handler for it in this worker: left to others, and no attempt spent.

    It ends dead with this reason when no worker has had a handler for it for `after` ms.
    """

    reason: str
    after: int


class AlreadyMoved(Struct, frozen=True, tag=True):
    """The handler has settled the job itself."""


class Abandoned(Struct, frozen=True, tag=True):
    """Not settled: the job is recovered when its lock has expired, and may be another worker's then."""

    reason: str


Outcome = (
    Completed
    | Retry
    | Dead
    | Cancelled
    | Released
    | Postponed
    | WaitingChildren
    | Unhandled
    | AlreadyMoved
    | Abandoned
)
_ERROR_LINE = re.compile(r"^([A-Za-z_][\w.<>]*)(?::|$)")
UNWRITTEN: frozenset[type[Outcome]] = frozenset({AlreadyMoved, Abandoned})
"""The outcomes of which a protocol writes nothing."""


class Settlement(Struct, Generic[R], frozen=True):
    """The outcome of a claim and when it ended (ms), for a protocol to write."""

    claim: Claim[R]
    outcome: Outcome
    at: int


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How a worker turns failures into outcomes; the same for every protocol.

    `classify` None retries everything but `Unrecoverable`, as BullMQ does. `Unrecoverable` and
    `Transient` hold under every policy. `cap` bounds delays that grow.
    """

    classify: Callable[[BaseException], FailureKind] | None = classify
    backoff_rule: BackoffRule | None = None
    cap: int | None = BACKOFF_CAP_MS
    default_attempts: int = 1
    """Of jobs that were added without a number of attempts."""
    default_backoff: Backoff | None = None
    """Of jobs that were added without one; None: they are retried at once."""
    random: Callable[[], float] = lambda: 1.0

    def before(self, retry_on: Errors, give_up_on: Errors) -> "RetryPolicy | None":
        """Return this policy with rules that come first; None where there are none."""
        if not isinstance(self.classify, ErrorRules):
            return None
        rules = self.classify.before(retry_on, give_up_on)
        return None if rules is self.classify else replace(self, classify=rules)


def decide(job: Job, error: BaseException, trace: str, policy: RetryPolicy) -> Outcome:
    """Return the outcome of an attempt that raised `error`.

    A rule of the user's own that raises ends the job, and the trace says so. Where a job has a kind of
    backoff that only other workers know, it is left to them.
    """
    error = unwrap_group(error)
    reason = reason_of(error)
    try:
        return _decide(job, error, reason, trace, policy)
    except UnknownBackoff as failure:
        return Abandoned(f"{failure}; the attempt failed: {reason}")
    except Exception as failure:
        why = f"{type(failure).__name__}: {reason_of(failure)}"
        trace = f"{trace}\nno other attempt, because the retry policy failed: {why}".lstrip()
        return Dead(reason, trace, type(error).__name__)


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
    spent, name = job.attempts_made + 1, type(error).__name__
    left = (job.options.attempts or policy.default_attempts) - spent
    if left <= 0:
        return Dead(reason, trace, name)
    if not _may_retry(error, policy):
        return Dead(f"{reason}{_hint(error, left, policy)}", trace, name)
    if job.options.backoff is None and policy.default_backoff is not None:
        job = replace(job, options=replace(job.options, backoff=policy.default_backoff))
    delay = delay_before(job, spent, error, policy.backoff_rule, policy.cap, policy.random)
    return Dead(reason, trace, name) if delay < 0 else Retry(delay, reason, trace, name)


def reason_of(error: BaseException) -> str:
    """Return the error's message, or its type where it has none; always valid text.

    >>> reason_of(KeyError("milk"))
    "KeyError: 'milk'"
    """
    try:
        text = str(error)
    except Exception:
        text = ""
    if text and isinstance(error, KeyError):
        text = f"{type(error).__name__}: {text}"  # its message is nothing but the key
    return text.encode("utf-8", "backslashreplace").decode() or type(error).__name__


def error_class_of(trace: str) -> str | None:
    """Return the name of the class of the exception that a traceback ends with; Node's begins with it.

    >>> error_class_of("Traceback (most recent call last):\\n  File …\\nshop.GatewayDown: busy")
    'shop.GatewayDown'
    """
    lines = trace.splitlines()
    is_python = any(line.startswith("Traceback ") for line in lines)
    for line in reversed(lines) if is_python else lines[:1]:
        if match := _ERROR_LINE.match(line):
            return match[1]
    return None


def unwrap_group(error: BaseException) -> BaseException:
    """Return the only error inside a group of one, such as a TaskGroup with a single failed child."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _hint(error: BaseException, left: int, policy: RetryPolicy) -> str:
    """Return why a job ended although it has attempts left, where no rule says so."""
    rules = policy.classify
    if not isinstance(rules, ErrorRules) or rules.known(error) is not None:
        return ""
    name = type(error).__name__
    attempts = "1 attempt" if left == 1 else f"{left} attempts"
    return (
        f" [not retried, with {attempts} left: no rule says that {name} may go away; "
        f"retry_on=[{name}] on the job or the app retries it, give_up_on=[{name}] ends this note]"
    )


def _may_retry(error: BaseException, policy: RetryPolicy) -> bool:
    kind = kind_by_handler(error)
    if kind is None:
        kind = FailureKind.TRANSIENT if policy.classify is None else policy.classify(error)
    return kind == FailureKind.TRANSIENT
