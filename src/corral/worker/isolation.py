"""Isolation: jobs that have stalled run one at a time, apart from all others."""

import asyncio
from collections.abc import Callable, Container, Sequence
from enum import Enum

from corral.core.job import Claim
from corral.worker.attempt import Attempt

ALONE_S = 30.0
"""How long claiming waits at most: for what runs to end, and then for a job that runs alone."""


class Phase(Enum):
    OPEN = "any number of jobs may be claimed"
    DRAINING = "nothing is claimed until what runs has ended"
    PICKING = "one job is claimed"
    ALONE = "nothing is claimed until that job has ended"


class Isolation:
    """Decides what may be claimed and started while there are jobs that have stalled.

    A job that ends its worker's process makes all jobs stall that ran beside it. If they were run together
    again, they would stall together again, and all end dead. So a worker that claims such jobs gives them
    back, lets end what runs, and then claims one job at a time until it meets one that has not stalled.
    Neither wait is longer than ALONE_S, so that jobs that take hours do not keep the others out.
    """

    def __init__(self, held: Container[Attempt], wake: Callable[[], None]) -> None:
        self.phase = Phase.OPEN
        self._held = held
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._alone: Attempt | None = None
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, want: int, is_answered: bool) -> int:
        """Return how many of `want` jobs may be claimed; `is_answered`: the last claims have not started."""
        if self.phase is Phase.OPEN:
            return want
        return min(want, 1) if self.phase is Phase.PICKING and not is_answered else 0

    def admit(self, claims: Sequence[Claim], is_idle: bool) -> tuple[Sequence[Claim], Sequence[Claim]]:
        """Return the claims to start, and those to release; `is_idle`: nothing else is held."""
        suspects = [claim for claim in claims if claim.job.stalls and not claim.job.doomed]
        if not suspects:
            self.reopen()
            return claims, ()
        if len(claims) == 1 and (is_idle or self.phase is Phase.PICKING):
            self._close(Phase.ALONE)
            return claims, ()
        if self.phase is not Phase.DRAINING:
            self._close(Phase.DRAINING)
        return [claim for claim in claims if not claim.job.stalls or claim.job.doomed], suspects

    def reopen(self) -> None:
        """Claim any number again: the one job that was claimed has not stalled, or there was none."""
        if self.phase is Phase.PICKING:
            self.phase = Phase.OPEN

    def started(self, attempts: Sequence[Attempt]) -> None:
        """Note the attempt that runs alone."""
        if self.phase is Phase.ALONE and self._alone is None:
            [self._alone] = attempts

    def _close(self, phase: Phase) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.phase, self._alone = phase, None
        self._deadline = self._loop.time() + ALONE_S
        self._timer = self._loop.call_at(self._deadline, self._wake)

    def advance(self, is_idle: bool) -> bool:
        """Return whether a job may be claimed again since now; `is_idle`: nothing is held."""
        if self.phase is Phase.OPEN or self.phase is Phase.PICKING:
            return False
        is_over = is_idle if self.phase is Phase.DRAINING else self._alone not in self._held
        if not is_over and self._loop.time() < self._deadline:
            return False
        if self._timer is not None:
            self._timer.cancel()
        self.phase = Phase.PICKING
        return True
