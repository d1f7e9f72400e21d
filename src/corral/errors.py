"""The error tree.

CorralError
├── Refused                     what was asked cannot be done; nothing was written
│   ├── InvalidName             a queue name or job id outside the grammar
│   ├── InvalidOptions          an option outside its limits
│   ├── InvalidPayload          data that JSON cannot carry
│   │   └── PayloadTooLarge     more of it than a job may carry
│   ├── IdempotencyConflict     the idempotency key stands for another request already
│   │   └── IdempotencyPending  … or for one whose job is not there yet
│   ├── ParentMissing           a child was given a parent that is not there
│   ├── ParentTaken             the job has another parent, and that is there
│   ├── SchedulerJob            the job is its scheduler's next, and goes with it only
│   ├── SchedulerBusy           the scheduler's next job is there already, and cannot be replaced
│   ├── WrongState              the job is not in the state this needs
│   ├── QueueInUse              the queue has active jobs, or is not paused
│   ├── Unsupported             this protocol cannot do what was asked
│   └── UnknownProtocol             no such protocol
├── SettleError                 one settlement was not applied; its neighbours were
│   ├── JobMissing              the job is gone
│   ├── LockMissing             the lock has expired
│   ├── LockStolen              another attempt holds the lock
│   ├── NotActive               the job is not active any more
│   ├── PendingChildren         children have not finished
│   ├── FailedChildren          children have failed
│   ├── NoPendingChildren       there is no child to wait for: the job can go on
│   └── SettleFault             the server refused this one settlement
├── StoreFault                  the server cannot serve just now; a worker waits and goes on
│   ├── Away                    no connection, or it broke before the answer came
│   ├── Loading  ReadOnly  OutOfMemory  Misconfigured  Unblocked  Busy  ClusterMoving
│   └── StoreRefused            the server says no, and will again (access, wrong type, bad script)
├── NoServer                    the embedded server cannot be had here
└── HandlerError                raised in handlers to say how the attempt ended
    ├── Unrecoverable           do not try again
    ├── Transient               try again, whatever the table says
    ├── Postpone                not now: again after a delay, no attempt spent
    ├── GiveBack                not me: back to the queue, no attempt spent
    ├── WaitForChildren         not yet: again when the job's children have ended, no attempt spent
    ├── JobTimeout              the attempt took longer than its handler allows
    ├── JobCancelled            the job was cancelled while it ran
    └── ProcessDied             the process that ran the handler is gone

CorralWarning (a UserWarning)   allowed, but likely to hurt
"""


class CorralError(Exception):
    """Anything Corral raises on purpose."""


class Refused(CorralError, ValueError):
    """What was asked cannot be done; nothing was written."""

    position: int | None = None
    """Which of many jobs it is about, counted from 0."""


class InvalidName(Refused):
    """A queue name or job id outside the grammar."""


class InvalidOptions(Refused):
    """An option outside its limits."""


class InvalidPayload(Refused):
    """Data that JSON cannot carry."""


class PayloadTooLarge(InvalidPayload):
    """More of it than a job may carry."""


class IdempotencyConflict(Refused):
    """The idempotency key stands for another request already."""


class IdempotencyPending(IdempotencyConflict):
    """The idempotency key stands for a request whose job is not there yet."""


class ParentMissing(Refused):
    """A child was given a parent that is not there."""


class ParentTaken(Refused):
    """The job has another parent, and that is there."""


class SchedulerJob(Refused):
    """The job is its scheduler's next, and goes with it only."""


class SchedulerBusy(Refused):
    """The scheduler's next job is there already, and cannot be replaced."""


class WrongState(Refused):
    """The job is not in the state this needs."""


class QueueInUse(Refused):
    """The queue has active jobs, or is not paused."""


class Unsupported(Refused):
    """This protocol cannot do what was asked."""


class UnknownProtocol(Refused):
    """No such protocol."""


class SettleError(CorralError):
    """One settlement was not applied; its neighbours were."""

    def __init__(self, job_id: str, detail: str = "") -> None:
        self.job_id = job_id
        self.detail = detail
        what = (self.__doc__ or "").rstrip(".")
        super().__init__(f"job {job_id}: {detail or what}")


class JobMissing(SettleError):
    """The job is gone."""


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
    """There is no child to wait for: the job can go on."""


class SettleFault(SettleError):
    """The server refused this one settlement."""


class StoreFault(CorralError):
    """The server cannot serve just now; a worker waits and goes on."""


class Away(StoreFault, ConnectionError):
    """No connection, or it broke before the answer came."""


class Loading(StoreFault):
    """The server is loading its data set."""


class ReadOnly(StoreFault):
    """The server is a replica: a failover is under way."""


class OutOfMemory(StoreFault):
    """The server's memory limit is reached."""


class Misconfigured(StoreFault):
    """The server cannot persist and refuses writes."""


class Unblocked(StoreFault):
    """The server ended a blocking call."""


class Busy(StoreFault):
    """The server is busy running a script."""


class ClusterMoving(StoreFault):
    """A cluster slot is on its way to another node."""


class StoreRefused(StoreFault):
    """The server says no, and will again: access rules, a key of the wrong type, a broken script."""


class NoServer(CorralError, RuntimeError):
    """The embedded server cannot be had here."""


class HandlerError(CorralError):
    """Raised in handlers to say how the attempt ended."""


class Unrecoverable(HandlerError):
    """Do not try again."""


class Transient(HandlerError):
    """Try again, whatever the table says."""


class Postpone(HandlerError):
    """Not now: again after `delay` milliseconds, no attempt spent."""

    def __init__(self, delay: int) -> None:
        self.delay = delay
        super().__init__(f"postponed by {delay} ms")


class GiveBack(HandlerError):
    """Not me: back to the queue, no attempt spent."""


class WaitForChildren(HandlerError):
    """Not yet: again when the job's children have ended, no attempt spent."""


class JobTimeout(HandlerError):
    """The attempt took longer than its handler allows."""


class JobCancelled(HandlerError):
    """The job was cancelled while it ran."""


class ProcessDied(HandlerError):
    """The process that ran the handler is gone."""


class CorralWarning(UserWarning):
    """Allowed, but likely to hurt."""
