"""The numbers the contract's scripts refuse with; errors carry theirs as `code`."""

from enum import Enum


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
