"""The numbers the contract's scripts refuse with; errors carry theirs as `code`."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from corral.bullmq.custom_errors import UnrecoverableError
from corral.errors import (
    CorralError,
    FailedChildren,
    JobBelongsToScheduler,
    JobMissing,
    LockMissing,
    LockStolen,
    NotActive,
    ParentMissing,
    ParentTaken,
    PendingChildren,
    SchedulerBusy,
    WrongState,
)


class ErrorCode(Enum):
    """Why a call was refused."""

    JobNotExist = -1
    JobLockNotExist = -2
    JobNotInState = -3
    JobPendingDependencies = -4
    ParentJobNotExist = -5
    JobLockMismatch = -6
    ParentJobCannotBeReplaced = -7
    JobBelongsToJobScheduler = -8
    JobHasFailedChildren = -9
    SchedulerJobIdCollision = -10
    SchedulerJobSlotsBusy = -11


_CODES: dict[type[CorralError], ErrorCode] = {
    JobMissing: ErrorCode.JobNotExist,
    LockMissing: ErrorCode.JobLockNotExist,
    NotActive: ErrorCode.JobNotInState,
    WrongState: ErrorCode.JobNotInState,
    PendingChildren: ErrorCode.JobPendingDependencies,
    ParentMissing: ErrorCode.ParentJobNotExist,
    LockStolen: ErrorCode.JobLockMismatch,
    ParentTaken: ErrorCode.ParentJobCannotBeReplaced,
    JobBelongsToScheduler: ErrorCode.JobBelongsToJobScheduler,
    FailedChildren: ErrorCode.JobHasFailedChildren,
    SchedulerBusy: ErrorCode.SchedulerJobIdCollision,
}

_WORDS: dict[ErrorCode, str] = {
    ErrorCode.JobNotExist: "Missing key for job {job}. {command}",
    ErrorCode.JobLockNotExist: "Missing lock for job {job}. {command}",
    ErrorCode.JobNotInState: "Job {job} is not in the {state} state. {command}",
    ErrorCode.JobPendingDependencies: "Job {job} has pending dependencies. {command}",
    ErrorCode.ParentJobNotExist: "Missing key for parent job {parent}. {command}",
    ErrorCode.JobLockMismatch: "Lock mismatch for job {job}. Cmd {command} from {state}",
    ErrorCode.ParentJobCannotBeReplaced: "The parent job {parent} cannot be replaced. {command}",
    ErrorCode.JobBelongsToJobScheduler: (
        "Job {job} belongs to a job scheduler and cannot be removed directly. {command}"
    ),
    ErrorCode.JobHasFailedChildren: (
        "Cannot complete job {job} because it has at least one failed child. {command}"
    ),
    ErrorCode.SchedulerJobIdCollision: (
        "Cannot create job scheduler iteration - job ID already exists. {command}"
    ),
    ErrorCode.SchedulerJobSlotsBusy: (
        "Cannot create job scheduler iteration - current and next time slots already have jobs. {command}"
    ),
}


def words(code: ErrorCode, command: str, *, job: str = "", parent: str = "", state: str = "active") -> str:
    """The sentence for a code.

    >>> words(ErrorCode.JobNotExist, "updateData", job="7")
    'Missing key for job 7. updateData'
    """
    return _WORDS[code].format(job=job, parent=parent, state=state, command=command)


def raised(
    code: ErrorCode, command: str, *, job: str = "", parent: str = "", state: str = "active"
) -> Exception:
    """The error for a code, of the type the official client raises."""
    kind = UnrecoverableError if code is ErrorCode.JobHasFailedChildren else TypeError
    error = kind(words(code, command, job=job, parent=parent, state=state))
    vars(error)["code"] = code.value
    return error


def code_of(error: BaseException) -> ErrorCode | None:
    """What the contract calls a refusal of ours; None for all else."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return None


@contextmanager
def told(command: str, *, job: str = "", parent: str = "", state: str = "active") -> Iterator[None]:
    """Inside, a protocol's refusal is raised in the official client's words."""
    try:
        yield
    except CorralError as error:
        code = code_of(error)
        if code is None:
            raise
        raise raised(code, command, job=job, parent=parent, state=state) from error
