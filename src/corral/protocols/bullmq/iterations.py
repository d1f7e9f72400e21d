"""The next job of a scheduler is made before the one that was claimed runs."""

from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from corral.core.job import Claim
from corral.errors import RedisResponseError, Refused
from corral.protocols.base import Binding
from corral.protocols.bullmq.bound import Bound
from corral.protocols.bullmq.legacy_repeats import is_legacy, legacy_iteration
from corral.protocols.bullmq.repeats import iteration
from corral.protocols.bullmq.zone import local_zone
from corral.telemetry.logs import logger

FIRST_MS = 1000
LONGEST_MS = 300_000


class Iterations(Bound):
    """Carries on schedules as their jobs are claimed.

    Each step is done once however often it is asked for: the script looks whether the claimed job is still
    its scheduler's current one. So a lost answer is harmless.
    """

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._log = logger("schedules", queue=binding.queue)

    async def carry_on(self, claims: Sequence[Claim], rows: Sequence[Sequence[Any]]) -> list[Claim]:
        """Make the jobs that follow these; the claims for which that failed, which must not run yet.

        `rows` are what the claims were read from: (id, fields).
        """
        young: list[tuple[Claim, Any]] = []
        old: list[tuple[Claim, Any]] = []
        failed: list[Claim] = []
        now, zone = self._binding.clock(), local_zone()
        for claim, row in zip(claims, rows, strict=True):
            fields = dict(zip(row[1][::2], row[1][1::2], strict=True))
            try:
                if is_legacy(fields.get(b"rjk")):
                    old.append((claim, legacy_iteration(fields, now, zone)))
                else:
                    following = iteration(claim.job.id, fields, now, zone)
                    young.append((claim, following and following.row))
            except (Refused, ValueError, TypeError, ArithmeticError) as error:
                self._say(claim, error)
                failed.append(claim)
        failed += await self._make(young, lambda rows: ("iterate", now, rows))
        failed += await self._make(old, lambda rows: ("repeat_jobs", rows))
        return failed

    async def _make(
        self, planned: Sequence[tuple[Claim, Any]], call: Callable[[bytes], tuple[Any, ...]]
    ) -> list[Claim]:
        due = [(claim, row) for claim, row in planned if row is not None]
        if not due:
            return []
        try:
            await self._run(*call(msgpack.packb([row for _, row in due], use_bin_type=False)))
        except RedisResponseError as error:
            for claim, _ in due:
                self._say(claim, error)
            return [claim for claim, _ in due]
        return []

    def _say(self, claim: Claim, error: Exception) -> None:
        self._log.error(
            f"the job after {claim.job.id!r} could not be made, so it is put off: {error}", job=claim.job.id
        )


def is_scheduled(claim: Claim) -> bool:
    """Did a scheduler make this job?"""
    job = claim.job
    return "rjk" in job.extra or "repeat" in job.options.extra


def put_off_ms(claim: Claim) -> int:
    """How long a job waits whose next could not be made: longer each time, as 5.62.0 does."""
    return min(FIRST_MS << min(claim.job.starts, 20), LONGEST_MS)
