"""The Lua scripts of the bullmq protocol, and the errors of their return codes."""

from collections.abc import Sequence
from typing import Any

from corral.errors import (
    FailedChildren,
    GenerationMismatch,
    JobBelongsToScheduler,
    JobMissing,
    LockMissing,
    LockStolen,
    NoPendingChildren,
    NotActive,
    ParentMissing,
    ParentTaken,
    PendingChildren,
    RedisResponseError,
    Refused,
    SchedulerBusy,
    SettleError,
    SettlementFailed,
)
from corral.protocols.base import Binding, BoundPort
from corral.protocols.bullmq.keys import GENERATIONS, BullmqKeys, noted_generation
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols.bullmq", "local GIVEN = false\n")
STRICT_SCRIPTS = {
    generation: Scripts("corral.protocols.bullmq", f"local GIVEN = {generation}\n")
    for generation in GENERATIONS
}
"""The same where the app was given a generation: they refuse a queue of another."""
MISMATCH = "GENERATION "
"""How the server's error begins where they do; the version in the queue's meta follows."""

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


def check_mismatch(error: RedisResponseError, queue: str) -> None:
    """Raise `GenerationMismatch` where a script refused a queue of another generation."""
    words = str(error)
    if MISMATCH not in words:
        return
    version = words.partition(MISMATCH)[2].split()[0]
    generation = noted_generation(version)
    raise GenerationMismatch(
        f"queue {queue!r} is of BullMQ {generation} ({version} in its meta), not of the one that was given; "
        f"use Corral(bullmq={generation}), or give none, and each queue's own is used. To upgrade a queue, "
        f"stop its clients of BullMQ {GENERATIONS[0]} and open it with Node's BullMQ {GENERATIONS[-1]}, "
        f"which writes its version there"
    ) from error


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
        self._scripts = SCRIPTS if binding.generation is None else STRICT_SCRIPTS[binding.generation]

    async def _run(self, verb: str, *args: Any) -> Any:
        """Return the answer of a script that needs no keys but the queue's own."""
        return await self._run_with(verb, self._keys.fixed, args)

    async def _run_with(self, verb: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Return the answer of a script; `GenerationMismatch` where another generation was given."""
        try:
            return await self._store.run(self._scripts[verb], keys, args)
        except RedisResponseError as error:
            check_mismatch(error, self._keys.queue)
            raise

    async def _pipe(self, *commands: Sequence[Any]) -> list[Any]:
        return await self._store.pipe(commands)
