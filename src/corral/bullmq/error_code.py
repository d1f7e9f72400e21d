"""BullMQ's error codes, and the official client's error for each of Corral's refusals."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TypedDict, Unpack

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
    Refused,
    SchedulerBusy,
    WrongState,
)


class ErrorCode(Enum):
    """The numbers that BullMQ's scripts refuse a call with."""

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


_ERRORS: dict[ErrorCode, tuple[tuple[type[CorralError], ...], str]] = {
    ErrorCode.JobNotExist: ((JobMissing,), "Missing key for job {job}. {command}"),
    ErrorCode.JobLockNotExist: ((LockMissing,), "Missing lock for job {job}. {command}"),
    ErrorCode.JobNotInState: ((NotActive, WrongState), "Job {job} is not in the {state} state. {command}"),
    ErrorCode.JobPendingDependencies: ((PendingChildren,), "Job {job} has pending dependencies. {command}"),
    ErrorCode.ParentJobNotExist: ((ParentMissing,), "Missing key for parent job {parent}. {command}"),
    ErrorCode.JobLockMismatch: ((LockStolen,), "Lock mismatch for job {job}. Cmd {command} from {state}"),
    ErrorCode.ParentJobCannotBeReplaced: (
        (ParentTaken,), "The parent job {parent} cannot be replaced. {command}",
    ),
    ErrorCode.JobBelongsToJobScheduler: (
        (JobBelongsToScheduler,),
        "Job {job} belongs to a job scheduler and cannot be removed directly. {command}",
    ),
    ErrorCode.JobHasFailedChildren: (
        (FailedChildren,), "Cannot complete job {job} because it has at least one failed child. {command}",
    ),
    ErrorCode.SchedulerJobIdCollision: (
        (SchedulerBusy,), "Cannot create job scheduler iteration - job ID already exists. {command}",
    ),
    ErrorCode.SchedulerJobSlotsBusy: (
        (),
        "Cannot create job scheduler iteration - current and next time slots already have jobs. {command}",
    ),
}  # fmt: skip
"""Corral's errors for each code, and the official message."""


class ErrorSubject(TypedDict, total=False):
    """What a message names."""

    job: str
    parent: str
    state: str


def official_error(code: ErrorCode, command: str, **subject: Unpack[ErrorSubject]) -> Exception:
    """Return the error for a code, with the official client's type and message.

    >>> official_error(ErrorCode.JobNotExist, "updateData", job="7")
    TypeError('Missing key for job 7. updateData')
    """
    kind = UnrecoverableError if code is ErrorCode.JobHasFailedChildren else TypeError
    names = {"job": "", "parent": "", "state": "active", **subject}
    error = kind(_ERRORS[code][1].format(command=command, **names))
    vars(error)["code"] = code.value
    return error


def translate(error: BaseException, command: str, **subject: Unpack[ErrorSubject]) -> BaseException:
    """Return the official client's error for a refusal of Corral's; any other error as it is."""
    code = _code_of(error)
    return error if code is None else official_error(code, command, **subject)


def error_number(error: Refused) -> int:
    """Return the number of a refusal that a script answered with.

    >>> error_number(ParentMissing("no parent"))
    -5
    """
    code = _code_of(error)
    assert code is not None, error
    return int(code.value)


def _code_of(error: BaseException) -> ErrorCode | None:
    return next((code for code, (kinds, _) in _ERRORS.items() if isinstance(error, kinds)), None)


@contextmanager
def official_errors(command: str, **subject: Unpack[ErrorSubject]) -> Iterator[None]:
    """Raise Corral's refusals inside the block as the official client's errors."""
    try:
        yield
    except CorralError as error:
        official = translate(error, command, **subject)
        if official is error:
            raise
        raise official from error
