"""The next job of a scheduler, which is made before the claimed one runs."""

from collections.abc import Sequence
from typing import Any

from corral.core.job import Claim
from corral.errors import RedisResponseError, Refused
from corral.protocols.base import Binding
from corral.protocols.bullmq.schedulers.legacy import is_legacy, legacy_iteration
from corral.protocols.bullmq.schedulers.repeat import iteration, local_zone
from corral.protocols.bullmq.scripts import BullmqPort
from corral.protocols.wire import fields_of, pack
from corral.telemetry.logs import logger

FIRST_MS = 1000
LONGEST_MS = 300_000


class Iterations(BullmqPort):
    """Makes the next jobs of schedulers as their jobs are claimed.

    Each is made once however often this is repeated: the script checks that the claimed job is still its
    scheduler's current one. So a lost answer is harmless.
    """

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._log = logger("schedules", queue=binding.queue)

    async def make_next(
        self, claims: Sequence[Claim[str]], rows: Sequence[Sequence[Any]]
    ) -> list[Claim[str]]:
        """Make the jobs that follow these; return the claims for which that failed, which must not run yet.

        `rows` are what the claims were read from: (id, fields).
        """
        current: list[tuple[Claim[str], Any]] = []
        legacy: list[tuple[Claim[str], Any]] = []
        failed: list[Claim[str]] = []
        now, zone = self._binding.clock(), local_zone()
        for claim, row in zip(claims, rows, strict=True):
            fields = fields_of(row[1])
            try:
                if is_legacy(fields.get(b"rjk")):
                    legacy.append((claim, legacy_iteration(fields, now, zone)))
                else:
                    following = iteration(claim.job.id, fields, now, zone)
                    current.append((claim, following and following.row))
            except (Refused, ValueError, TypeError, ArithmeticError) as error:
                failed += self._failed([claim], error)
        failed += await self._make("iterate", current, now)
        failed += await self._make("iterate_legacy", legacy)
        return failed

    async def _make(
        self, verb: str, planned: Sequence[tuple[Claim[str], Any]], *args: Any
    ) -> list[Claim[str]]:
        due = [(claim, row) for claim, row in planned if row is not None]
        if due:
            try:
                await self._run(verb, *args, pack([row for _, row in due]))
            except RedisResponseError as error:
                return self._failed([claim for claim, _ in due], error)
        return []

    def _failed(self, claims: list[Claim[str]], error: Exception) -> list[Claim[str]]:
        for claim in claims:
            self._log.error(
                f"the job after {claim.job.id!r} could not be made, so it is postponed: {error}",
                job=claim.job.id,
            )
        return claims


def is_scheduled(claim: Claim[str]) -> bool:
    """Return whether a scheduler made this job."""
    job = claim.job
    return "rjk" in job.extra or "repeat" in job.options.extra


def postponement_ms(claim: Claim[str]) -> int:
    """Return how long a job waits whose next could not be made: longer each time, as in 5.62.0."""
    return min(FIRST_MS << min(claim.job.starts, 20), LONGEST_MS)
