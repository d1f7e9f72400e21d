"""What becomes of settlements: applied, refused, or nobody can say."""

from collections.abc import Callable, Sequence

from corral.core.outcome import Outcome, Released, RetryPolicy, Settlement, decide
from corral.core.ports import Broker
from corral.errors import (
    FailedChildren,
    JobMissing,
    LockMissing,
    LockStolen,
    NoPendingChildren,
    NotActive,
    PendingChildren,
    SettleError,
)
from corral.worker.attempt import Attempt, Moment, moment
from corral.worker.reports import Reports

SURE = 0.9
"""The part of a lock's life in which it surely still holds, whatever the clocks drift."""
STATE = (PendingChildren, FailedChildren, NoPendingChildren)
"""What a protocol answers when the job's children stand against this settlement."""
GONE = (JobMissing, LockMissing, LockStolen, NotActive)
"""What a protocol answers when this settlement, or another attempt's, was applied before."""


class Verdicts:
    """Takes what is not ours any more out of `held` and says so; `ended` gets what is settled anew."""

    def __init__(
        self,
        held: dict[Attempt, None],
        *,
        broker: Broker,
        lock_ms: int,
        policy: RetryPolicy,
        clock: Callable[[], int],
        reports: Reports,
        ended: Callable[[Attempt], None],
    ) -> None:
        self._held = held
        self._broker = broker
        self._lock_ms = lock_ms
        self._policy = policy
        self._clock = clock
        self._reports = reports
        self._ended = ended

    def applied(self, batch: Sequence[Attempt], verdicts: Sequence[SettleError | None]) -> Sequence[Attempt]:
        """What was applied; the rest is reported, or gets another settlement."""
        if not any(verdicts):
            return batch
        applied = []
        now = moment(self._clock)
        for attempt, verdict in zip(batch, verdicts, strict=True):
            if verdict is None:
                applied.append(attempt)
            elif isinstance(verdict, STATE) and not attempt.mended:
                self._mend(attempt, verdict)
            elif attempt.sends > 1 and isinstance(verdict, GONE):
                if now.since(attempt.sure) < self._lock_ms * SURE:
                    applied.append(attempt)  # nobody else can have had it: the unanswered trip did it
                else:
                    self.unknown(attempt, verdict)
            else:
                self._lost(attempt, verdict)
        return applied

    async def still_ours(self, batch: list[Attempt], now: Moment) -> list[Attempt]:
        """Without those whose lock was found gone after a gap longer than it lives.

        A stopped process or a sleeping machine cannot know what happened to its locks meanwhile.
        """
        wall, steady = now.wall - self._lock_ms, now.steady - self._lock_ms
        suspects = [one for one in batch if one.sure.wall <= wall or one.sure.steady <= steady]
        if not suspects:
            return batch
        extension = await self._broker.extend([attempt.claim for attempt in suspects])
        gone = set(map(id, extension.lost))
        for attempt in suspects:
            if id(attempt.claim) not in gone:
                attempt.sure = now
            elif attempt.sends:
                self.unknown(attempt, LockMissing(attempt.claim.job.id))
            else:
                self._lost(attempt, LockMissing(attempt.claim.job.id))
        return [attempt for attempt in batch if id(attempt.claim) not in gone]

    def unknown(self, attempt: Attempt, why: BaseException) -> None:
        """Nobody can say whether it was applied."""
        del self._held[attempt]
        self._reports.unknown(attempt, why)

    def _lost(self, attempt: Attempt, why: BaseException) -> None:
        del self._held[attempt]
        self._reports.lost(attempt, why)

    def _mend(self, attempt: Attempt, verdict: SettleError) -> None:
        """The state of the job refuses this outcome, not its lock: another is put in its place.

        A job that has no child to wait for runs again at once, as if the last had just ended; one whose
        children are in the way of its end fails with that as the reason.
        """
        attempt.mended = True
        attempt.sends = 0
        outcome: Outcome = Released()
        if not isinstance(verdict, NoPendingChildren):
            outcome = decide(attempt.claim.job, verdict, "", self._policy)
        attempt.settlement = Settlement(attempt.claim, outcome, self._clock())
        self._ended(attempt)
