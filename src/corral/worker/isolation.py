"""Isolation: jobs that have stalled run one at a time, apart from all others."""

import asyncio
from collections.abc import Callable, Container, Sequence
from enum import Enum
from threading import Lock
from typing import NamedTuple

from corral.core.job import Claim
from corral.core.outcome import Postponed, Released
from corral.worker.attempt import Attempt

ALONE_S = 30.0
"""How long claiming waits at most: for what runs to end, and then for a job that runs alone."""


class Phase(Enum):
    OPEN = "any number of jobs may be claimed"
    DRAINING = "nothing is claimed until what runs has ended"
    PICKING = "one job is claimed"
    ALONE = "nothing is claimed until that job has ended"


class Admission(NamedTuple):
    """Which claims start, with which outcome others are given back, and which one starts later."""

    start: Sequence[Claim]
    apart: Sequence[Claim] = ()
    outcome: Released | Postponed = Released()
    kept: Claim | None = None


class SuspectPlace:
    """The place of the one job in this process that has stalled and runs again, of whichever queue."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holder: Isolation | None = None
        self._taken_at = 0.0
        self._waiting: set[Isolation] = set()

    def take(self, isolation: "Isolation") -> bool:
        """Return whether the place was free; where it was not, wake this one when it is."""
        with self._lock:
            if self._holder is not None and not self._holder.loop.is_closed():
                self._waiting.add(isolation)
                return False
            self._holder, self._taken_at = isolation, isolation.loop.time()
            return True

    def free(self, isolation: "Isolation") -> None:
        """Leave the place, and forget that it was waited for."""
        with self._lock:
            self._waiting.discard(isolation)
            if self._holder is not isolation:
                return
            self._holder, waiting = None, self._waiting
            self._waiting = set()
        for other in waiting:
            if not other.loop.is_closed():
                other.loop.call_soon_threadsafe(other.wake)

    @property
    def is_free(self) -> bool:
        return self._holder is None or self._holder.loop.is_closed()

    def has_been_taken(self, isolation: "Isolation", seconds: float) -> bool:
        """Return whether it has been taken for so long."""
        return not self.is_free and isolation.loop.time() - self._taken_at >= seconds


PLACE = SuspectPlace()


class Isolation:
    """Decides what may be claimed and started while there are jobs that have stalled.

    A job that ends its worker's process makes all jobs stall that ran beside it. If they were run together
    again, they would stall together again, and all end dead. So a worker that claims such jobs gives them
    back, lets end what runs, and then claims one job at a time until it meets one that has not stalled.
    Neither wait is longer than ALONE_S, so that jobs that take hours do not keep the others out.

    Without delays, a job that is given back goes behind all others: in a queue that is never empty it would
    be met beside others each time. There one of them is kept until what runs has ended.

    However long it runs, a job that has stalled has no other such job beside it in its process. So the one
    that ends its process can make another job stall once, and never a second time.
    """

    def __init__(self, held: Container[Attempt], wake: Callable[[], None], has_delays: bool) -> None:
        self.phase = Phase.OPEN
        self.loop = asyncio.get_running_loop()
        self.wake = wake
        self._held = held
        self._has_delays = has_delays
        self._suspect: Attempt | None = None
        """The attempt that holds the process's place, from its start on."""
        self._is_keeping = False
        """Whether a claim is kept that starts when what runs has ended."""
        self._passed: set[str] = set()
        """Jobs that were given back since claiming last waited."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is nothing to advance."""
        return self.phase is Phase.OPEN and self._suspect is None

    def limit(self, want: int, is_answered: bool) -> int:
        """Return how many of `want` jobs may be claimed; `is_answered`: the last claims have not started."""
        if self.phase is Phase.OPEN:
            return want
        return min(want, 1) if self.phase is Phase.PICKING and not is_answered else 0

    def admit(self, claims: Sequence[Claim], is_idle: bool) -> Admission:
        """Return the claims to start, and those to give back; `is_idle`: nothing else is held."""
        suspects = [claim for claim in claims if claim.job.stalls and not claim.job.doomed]
        if not suspects:
            self.reopen()
            return Admission(claims)
        if len(claims) == 1 and (is_idle or self.phase is Phase.PICKING) and PLACE.take(self):
            self._close(Phase.ALONE)
            return Admission(claims)
        others = [claim for claim in claims if not claim.job.stalls or claim.job.doomed]
        if PLACE.has_been_taken(self, ALONE_S):
            return self._pass(others, suspects)
        if self.phase is not Phase.DRAINING:
            self._close(Phase.DRAINING)
        if self._has_delays or self._is_keeping:
            return Admission(others, suspects)
        self._is_keeping = True
        return Admission(others, suspects[1:], kept=suspects[0])

    def _pass(self, others: Sequence[Claim], suspects: Sequence[Claim]) -> Admission:
        """Let others run beside a job that has stalled and runs for long; the suspects come again later."""
        ids = {claim.job.id for claim in suspects}
        if others:
            self.reopen()
        if self._has_delays:
            return Admission(others, suspects, Postponed(int(ALONE_S * 1000)))
        if not others and ids <= self._passed:
            self._close(Phase.DRAINING)  # released jobs are all there is
        self._passed |= ids
        return Admission(others, suspects)

    def reopen(self) -> None:
        """Claim any number again: the one job that was claimed has not stalled, or there was none."""
        if self.phase is Phase.PICKING:
            self.phase = Phase.OPEN

    def started(self, attempts: Sequence[Attempt]) -> None:
        """Note the attempt that runs alone."""
        if self.phase is Phase.ALONE and self._suspect is None:
            [self._suspect] = attempts

    def _close(self, phase: Phase) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.phase = phase
        self._passed.clear()
        self._deadline = self.loop.time() + ALONE_S
        self._timer = self.loop.call_at(self._deadline, self.wake)

    def advance(self, is_idle: bool) -> bool:
        """Return whether a job may be claimed again, or the kept one started, since now.

        `is_idle`: nothing is held but that one.
        """
        if self._suspect is not None and self._suspect not in self._held:
            self._suspect = None
            PLACE.free(self)
        if self.phase is Phase.OPEN or self.phase is Phase.PICKING:
            return False
        is_over = is_idle and PLACE.is_free if self.phase is Phase.DRAINING else self._suspect is None
        if not is_over and self.loop.time() < self._deadline:
            return False
        if self._timer is not None:
            self._timer.cancel()
        self.phase, self._is_keeping = Phase.PICKING, False
        return True

    def stop(self) -> None:
        """Leave the place to others: nothing runs any more."""
        PLACE.free(self)
