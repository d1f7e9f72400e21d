"""BullMQ's return codes, and the error each becomes."""

from corral.errors import (
    FailedChildren,
    JobBelongsToScheduler,
    JobMissing,
    LockMissing,
    LockStolen,
    NoPendingChildren,
    NotActive,
    ParentMissing,
    ParentTaken,
    PendingChildren,
    Refused,
    SchedulerBusy,
    SettleError,
    SettlementFailed,
)

ERRORS: dict[int, type[SettleError]] = {
    1: NoPendingChildren,
    -1: JobMissing,
    -2: LockMissing,
    -3: NotActive,
    -4: PendingChildren,
    -6: LockStolen,
    -9: FailedChildren,
    -99: SettlementFailed,
}
"""Of a claimed job."""

REFUSALS: dict[int, tuple[type[Refused], str]] = {
    -5: (ParentMissing, "the parent {parent!r} is not there; add it before its children, or in one flow"),
    -7: (ParentTaken, "job {job!r} has another parent, and that is there; give it to one of them"),
    -8: (JobBelongsToScheduler, "job {job!r} is the next of its scheduler; remove the scheduler instead"),
    -10: (SchedulerBusy, "the next job of scheduler {job!r} is there already; try again when it has run"),
    -11: (SchedulerBusy, "the next two jobs of scheduler {job!r} are there already; try again when they ran"),
}
"""Of what was asked by a producer or an operator."""


def refusal(code: int, job: str, parent: str = "") -> Refused:
    """The error for what a script refused to write.

    >>> refusal(-7, "7")
    ParentTaken("job '7' has another parent, and that is there; give it to one of them")
    """
    kind, words = REFUSALS[code]
    return kind(words.format(job=job, parent=parent))
