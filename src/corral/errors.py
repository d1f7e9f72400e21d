"""The error tree; each class says what it means.

CorralError
├── Refused (a ValueError)
│   ├── InvalidName
│   ├── InvalidOptions
│   ├── InvalidPayload
│   │   ├── PayloadTooLarge
│   │   └── InvalidArguments (an Unrecoverable)
│   ├── IdempotencyConflict
│   │   └── IdempotencyPending
│   ├── ParentMissing  ParentTaken  JobBelongsToScheduler  SchedulerBusy
│   ├── WrongState  QueueInUse
│   └── Unsupported  UnknownProtocol  GenerationMismatch
├── SettleError
│   ├── JobMissing  LockMissing  LockStolen  NotActive
│   ├── PendingChildren  FailedChildren  NoPendingChildren
│   └── SettlementFailed
├── RedisError
│   ├── RedisConnectionError (a ConnectionError)
│   ├── RedisLoadingError  RedisReadOnlyError  RedisOutOfMemoryError  RedisPersistenceError
│   ├── RedisUnblockedError  RedisBusyError  RedisClusterError
│   ├── RedisResponseError
│   │   └── RedisWrongTypeError
│   └── AddInterrupted
├── JobFailed  ResultGone  NotDurable
├── EmbeddedServerError (a RuntimeError)
└── HandlerError
    ├── Unrecoverable  Transient
    ├── Postpone  Release  WaitForChildren
    └── JobTimeout  JobCancelled  ProcessDied

CorralWarning (a UserWarning)
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from reprlib import Repr
from typing import Any, Self


class CorralError(Exception):
    """Base class of the errors Corral raises."""


class Refused(CorralError, ValueError):
    """A request that cannot be carried out; nothing was written."""

    position: int | None = None
    """The index of the job it is about, where several were given."""


class InvalidName(Refused):
    """A queue name or job id outside the grammar."""


class InvalidOptions(Refused):
    """An option outside its limits."""


class InvalidPayload(Refused):
    """Data that JSON cannot represent."""


class PayloadTooLarge(InvalidPayload):
    """Data and options over the size limit of a job."""


class IdempotencyConflict(Refused):
    """The idempotency key belongs to another request."""


class IdempotencyPending(IdempotencyConflict):
    """The request with this idempotency key is still in progress."""


class ParentMissing(Refused):
    """The parent of a child job does not exist."""


class ParentTaken(Refused):
    """The job already has another parent."""


class JobBelongsToScheduler(Refused):
    """The job is the next run of a job scheduler and cannot be removed by itself."""


class SchedulerBusy(Refused):
    """The scheduler's next job already exists and cannot be replaced."""


class WrongState(Refused):
    """The job's state does not allow the operation."""


class QueueInUse(Refused):
    """The queue has active jobs, or is not paused."""


class Unsupported(Refused):
    """The protocol has no such feature."""


class UnknownProtocol(Refused):
    """No protocol of that name."""


class GenerationMismatch(Refused):
    """A queue of another generation of its protocol than the one that was given."""


class SettleError(CorralError):
    """One settlement was not applied; the others of its batch were."""

    def __init__(self, job_id: str, detail: str = "") -> None:
        self.job_id = job_id
        self.detail = detail
        summary = (self.__doc__ or "").rstrip(".")
        super().__init__(f"job {job_id}: {detail or summary}")


class JobMissing(SettleError):
    """The job does not exist any more."""


class LockMissing(SettleError):
    """The lock has expired."""


class LockStolen(SettleError):
    """Another attempt holds the lock."""


class NotActive(SettleError):
    """The job is not active any more."""


class PendingChildren(SettleError):
    """Children have not finished."""


class FailedChildren(SettleError):
    """Children have failed."""


class NoPendingChildren(SettleError):
    """No child is left to wait for, so the job can continue."""


class SettlementFailed(SettleError):
    """The server reported an error for this settlement alone."""


class RedisError(CorralError):
    """Redis cannot serve a command at the moment; a worker waits and tries again."""


class RedisConnectionError(RedisError, ConnectionError):
    """No connection, or it was lost before the reply; the command may have run."""


class RedisLoadingError(RedisError):
    """LOADING: the data set is being read from disk."""


class RedisReadOnlyError(RedisError):
    """READONLY: a replica, while a failover is under way."""


class RedisOutOfMemoryError(RedisError):
    """OOM: maxmemory is reached."""


class RedisPersistenceError(RedisError):
    """MISCONF, NOREPLICAS: writes cannot be persisted or replicated."""


class RedisUnblockedError(RedisError):
    """UNBLOCKED: a blocking command was ended by the server."""


class RedisBusyError(RedisError):
    """BUSY: a script is running."""


class RedisClusterError(RedisError):
    """TRYAGAIN, CLUSTERDOWN: a slot is moving or not served."""


class RedisResponseError(RedisError):
    """Any other error reply (access, wrong type, a bad script); the same command would fail again."""


class RedisWrongTypeError(RedisResponseError):
    """WRONGTYPE: a key of Corral's names has a value of another type, which another program wrote."""


class AddInterrupted(RedisError):
    """A list of jobs was added in part, because Redis became unavailable.

    Jobs are named by their index in the list. Those `in_doubt` were sent, and the reply is missing: add them
    again only if they have ids of their own.
    """

    def __init__(
        self, reason: RedisError, added: Mapping[int, str], in_doubt: Sequence[int], not_added: Sequence[int]
    ) -> None:
        self.reason = reason
        self.added = added
        """The ids of the jobs that were added."""
        self.in_doubt = in_doubt
        self.not_added = not_added
        super().__init__(
            f"{len(added)} jobs were added, {len(in_doubt)} are in doubt, {len(not_added)} were not added: "
            f"{reason}"
        )

    def after(self, ids: Sequence[str]) -> Self:
        """Return the same error for a list that begins with the jobs of these ids."""
        start = len(ids)
        return type(self)(
            self.reason,
            {**dict(enumerate(ids)), **{start + index: job_id for index, job_id in self.added.items()}},
            [start + index for index in self.in_doubt],
            [start + index for index in self.not_added],
        )


class JobFailed(CorralError):
    """A job whose result is awaited ended without one: it is dead, or was cancelled."""

    def __init__(self, job_id: str, reason: str, error_class: str | None, trace: str, attempts: int) -> None:
        self.job_id = job_id
        self.reason = reason
        self.error_class = error_class
        """The name of the exception's class, where the job's traceback has it."""
        self.trace = trace
        """The traceback of the last attempt; empty where it has none."""
        self.attempts = attempts
        """Attempts that were made."""
        super().__init__(f"job {job_id}: {reason}")


class ResultGone(CorralError):
    """A job whose result is awaited was removed, and the event of its end is not kept any more."""


class NotDurable(CorralError):
    """Jobs were added, and the server did not say in time that they are where `durability` asks for.

    They are there and will run; a crash or a failover at this moment could lose them.
    """

    def __init__(self, handles: Sequence[Any], durability: str, timeout_s: float) -> None:
        self.handles = handles
        """The handles of the jobs in doubt, in order."""
        self.durability = durability
        which = f"job {handles[0].id!r} is" if len(handles) == 1 else f"{len(handles)} jobs are"
        super().__init__(
            f"{which} added, and the server has not confirmed durability={durability!r} "
            f"within {timeout_s:g} s"
        )

    @property
    def handle(self) -> Any:
        """The handle of the job, or of the first."""
        return self.handles[0]


class EmbeddedServerError(CorralError, RuntimeError):
    """The embedded server cannot be started or used."""


class HandlerError(CorralError):
    """Raised by handlers to say how the attempt ended."""


class Unrecoverable(HandlerError):
    """Fail without another attempt."""


class Transient(HandlerError):
    """Retry, whatever the classification says."""


class Postpone(HandlerError):
    """Run again after `delay` milliseconds (or a timedelta); no attempt spent."""

    def __init__(self, delay: int | timedelta) -> None:
        self.delay = delay // timedelta(milliseconds=1) if isinstance(delay, timedelta) else delay
        super().__init__(f"postponed by {self.delay} ms")


class Release(HandlerError):
    """Back to the queue for any worker; no attempt spent."""


class WaitForChildren(HandlerError):
    """Run again when the job's children have finished; no attempt spent."""


class JobTimeout(HandlerError):
    """The attempt took longer than the handler's timeout."""


class JobCancelled(HandlerError):
    """The job was cancelled while it ran."""


class ProcessDied(HandlerError):
    """The process that ran the handler ended unexpectedly."""


class InvalidArguments(InvalidPayload, Unrecoverable):
    """Data that does not fit the parameters of its handler; no other attempt could change that."""


class CorralWarning(UserWarning):
    """Allowed, but likely to cause trouble."""


_short = Repr()
_short.maxlevel = 2
_short.maxstring = _short.maxother = 60
_short.maxlong = 100


def short_repr(value: Any) -> str:
    """Return the value's repr for an error message: short, on one line, and never an error itself.

    >>> short_repr(-1), short_repr("x" * 1000), short_repr(10**5000)
    ('-1', "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'", 'an integer of 16610 bits')
    """
    if isinstance(value, int) and value.bit_length() > 300:
        # thousands of digits are slow to print, and past some Python refuses to
        return f"an integer of {value.bit_length()} bits"
    try:
        return _short.repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
