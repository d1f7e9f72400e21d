"""Errors that a processor raises to decide what happens to its job."""

from corral.errors import Unrecoverable


class UnrecoverableError(Unrecoverable):
    """The job fails without another attempt, whatever its options say."""


class DelayedError(Exception):
    """The processor has moved its job to delayed; the worker must not settle it."""


class WaitingError(Exception):
    """The processor has moved its job back to wait; the worker must not settle it."""


class WaitingChildrenError(Exception):
    """The processor has moved its job to waiting-children; the worker must not settle it."""


RATE_LIMIT_ERROR = "bullmq:rateLimitExceeded"


class RateLimitError(Exception):
    """The job goes back to wait until the queue's rate limit allows it; no attempt is spent."""

    def __init__(self, message: str = RATE_LIMIT_ERROR) -> None:
        super().__init__(message)
