"""Attempts: a claim on its way through the worker, one class for each state."""

from asyncio import TimerHandle
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import NamedTuple

from msgspec import Struct

from corral.core.job import Claim
from corral.core.outcome import Outcome, Settlement
from corral.worker.context import BaseJobContext
from corral.worker.handlers import Handler

BEGIN_SHARE = 0.5
"""The share of a lock's life in which a handler may begin: there is time for two renewals left."""


class Moment(NamedTuple):
    """A time (ms) by two clocks: one stops while the machine sleeps, the other may be set."""

    wall: float
    steady: float

    def since(self, earlier: "Moment") -> float:
        """Return the milliseconds since `earlier`, by the clock that counted more."""
        return max(self.wall - earlier.wall, self.steady - earlier.steady)


def moment(clock: Callable[[], int]) -> Moment:
    """Return the current time."""
    return Moment(clock(), monotonic() * 1000)


class LockAge(NamedTuple):
    """How old the lock of a claim may be when its handler begins: an older one is renewed first."""

    clock: Callable[[], int]
    limit_ms: float


# eq=False: attempts are compared and hashed by identity; msgspec makes them faster than __init__ would


class Attempt(Struct, eq=False):
    """A claim this worker holds until its settlement is written."""

    claim: Claim
    locked_at: Moment
    """When the lock was last requested and granted; the heartbeat's thread writes it too."""


class RefusedAttempt(Attempt, eq=False):
    """A job that does not run here, and its outcome."""

    outcome: Outcome


class RunningAttempt(Attempt, eq=False):
    """An attempt with its handler: next to run, or running. Written by the event loop's thread."""

    handler: Handler
    context: BaseJobContext
    started: float = 0.0
    """By `perf_counter`; 0 until it starts."""
    timer: TimerHandle | None = None
    """Ends it when its timeout is over."""
    is_ended: bool = False
    """Whether it has its settlement; a later result is dropped."""
    is_leaving: bool = False
    """Whether it is being ended because the worker stops."""

    def seconds(self) -> float:
        """Return how long it has been running."""
        return perf_counter() - self.started


class EndedAttempt(Struct, eq=False):
    """An attempt with its settlement, to be written."""

    attempt: Attempt
    settlement: Settlement
    seconds: float | None
    """How long the handler ran; None if it did not start."""
    is_replacement: bool = False
    """Whether it replaces a settlement that the job's state did not allow."""
