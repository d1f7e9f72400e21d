"""Verdicts: what a broker replied to settlements, and what becomes of those it did not apply."""

from collections.abc import Callable, Sequence

from corral import errors
from corral.core.outcome import Outcome, Released, Settlement, decide
from corral.core.ports import Broker
from corral.errors import LockMissing, NoPendingChildren, SettleError
from corral.worker.attempt import Attempt, EndedAttempt, Moment, moment
from corral.worker.config import WorkerConfig
from corral.worker.events import Monitor, WorkerEventKind

LOCK_SHARE = 0.9
"""The share of a lock's life in which it surely holds, however the clocks drift."""
STATE_ERRORS = (errors.PendingChildren, errors.FailedChildren, NoPendingChildren)
"""The job's children do not allow the settlement."""
GONE_ERRORS = (errors.JobMissing, LockMissing, errors.LockStolen, errors.NotActive)
"""The settlement, or that of another attempt, was applied before."""


class Verdicts:
    """Removes from `held` what this worker has lost, reports it, and replaces settlements by `ended`."""

    def __init__(
        self,
        config: WorkerConfig,
        broker: Broker,
        monitor: Monitor,
        held: dict[Attempt, None],
        ended: Callable[[EndedAttempt], None],
    ) -> None:
        self._lock_ms = config.profile.lock_ms
        self._policy = config.policy
        self._clock = config.clock
        self._broker = broker
        self._monitor = monitor
        self._held = held
        self._ended = ended

    def applied(
        self, batch: Sequence[EndedAttempt], sends: int, verdicts: Sequence[SettleError | None]
    ) -> Sequence[EndedAttempt]:
        """Return what was applied in the `sends`-th sending; the rest is reported or settled anew."""
        if not any(verdicts):
            return batch
        applied = []
        now = moment(self._clock)
        for ended, verdict in zip(batch, verdicts, strict=True):
            if verdict is None:
                applied.append(ended)
            elif isinstance(verdict, STATE_ERRORS) and not ended.is_replacement:
                self._replace(ended, verdict)
            elif sends > 1 and isinstance(verdict, GONE_ERRORS):
                if now.since(ended.attempt.locked_at) < self._lock_ms * LOCK_SHARE:
                    applied.append(ended)  # no other attempt can have had it: the lost reply was to this one
                else:
                    self.unknown(ended.attempt, ended.settlement.outcome, verdict)
            else:
                self._lost(ended, verdict)
        return applied

    async def still_held(self, batch: list[EndedAttempt], sends: int, now: Moment) -> list[EndedAttempt]:
        """Return the batch without those whose lock was lost in a gap longer than its life.

        A stopped process or a sleeping machine cannot know what happened to its locks meanwhile.
        """
        wall, steady = now.wall - self._lock_ms, now.steady - self._lock_ms
        suspects = [
            ended
            for ended in batch
            if ended.attempt.locked_at.wall <= wall or ended.attempt.locked_at.steady <= steady
        ]
        if not suspects:
            return batch
        extension = await self._broker.extend([ended.attempt.claim for ended in suspects])
        gone = set(map(id, extension.lost))
        for ended in suspects:
            attempt = ended.attempt
            if id(attempt.claim) not in gone:
                attempt.locked_at = now
            elif sends:
                self.unknown(attempt, ended.settlement.outcome, LockMissing(attempt.claim.job.id))
            else:
                self._lost(ended, LockMissing(attempt.claim.job.id))
        return [ended for ended in batch if id(ended.attempt.claim) not in gone]

    def unknown(self, attempt: Attempt, outcome: Outcome | None, error: BaseException) -> None:
        """Give up an attempt whose outcome may have been written or not."""
        del self._held[attempt]
        self._monitor.report(WorkerEventKind.UNKNOWN, attempt.claim, outcome, error)

    def _lost(self, ended: EndedAttempt, error: BaseException) -> None:
        del self._held[ended.attempt]
        claim, outcome = ended.settlement.claim, ended.settlement.outcome
        self._monitor.report(WorkerEventKind.LOST, claim, outcome, error)

    def _replace(self, ended: EndedAttempt, verdict: SettleError) -> None:
        """Settle anew what the state of the job, not its lock, did not allow.

        A job that has no child to wait for runs again at once, as if the last had just finished; one whose
        children do not let it end fails with that as the reason.
        """
        claim = ended.attempt.claim
        outcome: Outcome = Released()
        if not isinstance(verdict, NoPendingChildren):
            outcome = decide(claim.job, verdict, "", self._policy)
        settlement = Settlement(claim, outcome, self._clock())
        self._ended(EndedAttempt(ended.attempt, settlement, ended.seconds, is_replacement=True))
