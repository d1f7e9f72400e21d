"""The Lua scripts of the bullmq protocol, and the errors of their return codes."""

from collections.abc import Sequence
from typing import Any

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
from corral.protocols.base import Binding, BoundPort
from corral.protocols.bullmq.keys import BullmqKeys
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols.bullmq")

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
"""Codes about a claimed job."""

REFUSALS: dict[int, tuple[type[Refused], str]] = {
    -5: (ParentMissing, "the parent {parent!r} does not exist; add it before its children, or in one flow"),
    -7: (ParentTaken, "job {job!r} has another parent already; choose one of them"),
    -8: (
        JobBelongsToScheduler,
        "job {job!r} is the next run of its scheduler; remove the scheduler instead",
    ),
    -10: (SchedulerBusy, "the next job of scheduler {job!r} exists already; try again when it has run"),
    -11: (
        SchedulerBusy,
        "the next two jobs of scheduler {job!r} exist already; try again when they have run",
    ),
}
"""Codes about what a producer or an operator requested."""


def refusal(code: int, job: str, parent: str = "") -> Refused:
    """Return the error for what a script refused to write.

    >>> refusal(-7, "7")
    ParentTaken("job '7' has another parent already; choose one of them")
    """
    kind, message = REFUSALS[code]
    return kind(message.format(job=job, parent=parent))


def existing(code: int, job_id: str) -> int:
    """Return the code, or raise `JobMissing` for the code of a job that does not exist."""
    if code == -1:
        raise JobMissing(job_id)
    return code


class BullmqPort(BoundPort):
    """A port of one BullMQ queue."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._keys = BullmqKeys(binding.namespace, binding.queue)

    async def _run(self, verb: str, *args: Any) -> Any:
        """Return the answer of a script that needs no keys but the queue's own."""
        return await self._store.run(SCRIPTS[verb], self._keys.fixed, args)

    async def _pipe(self, *commands: Sequence[Any]) -> list[Any]:
        return await self._store.pipe(commands)
