"""What a processor raises to say how its job goes on."""

from corral.errors import Unrecoverable


class UnrecoverableError(Unrecoverable):
    """The job has failed for good: no other attempt, whatever its options say."""


class DelayedError(Exception):
    """The processor has moved its job to delayed; the worker must not settle it."""


class WaitingError(Exception):
    """The processor has moved its job back to wait; the worker must not settle it."""


class WaitingChildrenError(Exception):
    """The processor has moved its job to waiting-children; the worker must not settle it."""


RATE_LIMIT_ERROR = "bullmq:rateLimitExceeded"


class RateLimitError(Exception):
    """Not now: the job goes back to wait, no attempt spent, until the queue's limit lets go."""

    def __init__(self, message: str = RATE_LIMIT_ERROR) -> None:
        super().__init__(message)
