"""One claim on its way through the worker."""

from asyncio import TimerHandle
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from corral.core.job import Claim
from corral.core.outcome import Settlement
from corral.worker.context import JobView
from corral.worker.registry import Handler


class Moment(NamedTuple):
    """A point in time by two clocks: one does not see a sleeping machine, the other may be set."""

    wall: float
    steady: float

    def since(self, earlier: "Moment") -> float:
        """Milliseconds from `earlier` to here, by the clock that saw more of them."""
        return max(self.wall - earlier.wall, self.steady - earlier.steady)


def moment(clock: Callable[[], int]) -> Moment:
    """Now."""
    return Moment(clock(), monotonic() * 1000)


class Attempt:
    """A claim, what runs it, and how far it has come. The event loop's thread writes it, unless said so."""

    __slots__ = (
        "began",
        "claim",
        "context",
        "expired",
        "handler",
        "is_overdue",
        "leaving",
        "mended",
        "seconds",
        "sends",
        "settled",
        "settlement",
        "stopper",
        "sure",
        "timer",
    )

    def __init__(self, claim: Claim, sure: Moment) -> None:
        self.claim = claim
        self.sure = sure
        """When the lock was last asked for and given; the heartbeat's thread writes this."""
        self.handler: Handler | None = None
        self.context: JobView | None = None
        """What the handler holds; None until it starts."""
        self.began = 0.0
        self.seconds = 0.0
        self.stopper: Callable[[], Any] | None = None
        """Ends the handler where it can be ended; None while it cannot or need not be."""
        self.timer: TimerHandle | None = None
        self.expired = False
        """Has its time run out?"""
        self.leaving = False
        """Is it being ended because the worker ends?"""
        self.is_overdue = False
        """Is it settled although its thread still runs?"""
        self.settlement: Settlement | None = None
        self.settled = False
        self.sends = 0
        """How often the settlement was sent."""
        self.mended = False
        """Was the first settlement refused by the job's state, and another put in its place?"""

    def cancel(self) -> None:
        """Tell the handler that it should end."""
        if self.context is not None:
            self.context.cancel()
