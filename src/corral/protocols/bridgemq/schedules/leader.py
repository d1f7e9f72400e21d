"""The leader among the workers of a namespace, which fires due schedules and corrects counters."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

from corral.errors import RedisError
from corral.protocols.base import Binding
from corral.protocols.bridgemq.operator import BridgemqOperator
from corral.protocols.bridgemq.schedules.firing import firing_row
from corral.protocols.bridgemq.scripts import SCRIPTS, BridgemqPort
from corral.protocols.wire import pack

LEASE_MS = 30_000
"""A schedule that was taken and not fired is taken by another leader after so long."""
MOST_SCHEDULES = 50
"""Schedules taken in one go."""
MOST_ROUNDS = 20
"""A long downtime is made up for in several goes, so that nothing else waits for it."""
AUDIT_EVERY_MS = 60_000
DEAD_AFTER_MS = 3000
"""A leader that has not beaten for so long, or for three of its beats, is dead."""


class Taken(NamedTuple):
    """Due schedules leased to the leader."""

    fence: int
    """The number of its leadership."""
    rows: Sequence[Any]
    is_led: bool
    """Whether there was a leader until now: then what is missed was no downtime."""


class ScheduleLeader(BridgemqPort):
    """One candidate for the leadership of a namespace; only the leader fires."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self.id = f"{self._settings.identity.server}:{uuid4().hex}"
        """Our value in the leader's lock."""
        self.is_leader: bool | None = None
        """Whether it led when it was last asked to fire; None: not asked yet."""
        self._audited_at: int | None = None

    async def fire_due(self) -> int | None:
        """Fire due schedules; return how many jobs were added, None where another leads."""
        fired = 0
        for _ in range(MOST_ROUNDS):
            taken = await self.take()
            if taken is None:
                return None
            if not taken.rows:
                return fired
            added = await self.fire(taken)
            if added is None:
                return None
            fired += added
        return fired

    async def take(self) -> Taken | None:
        """Beat, and lease due schedules; None where another leads."""
        dead_after = max(DEAD_AFTER_MS, 3 * (self._binding.profile.promote_ms or 0))
        fence, rows, is_led = await self._run_leader("acquire_leader", LEASE_MS, MOST_SCHEDULES, dead_after)
        self.is_leader = bool(fence)
        return Taken(fence, rows, bool(is_led)) if fence else None

    async def fire(self, taken: Taken) -> int | None:
        """Fire what `take` returned; return how many jobs were added, None where we do not lead any more."""
        fired = 0
        for row in taken.rows:
            firing = pack([firing_row(row, self._binding.clock(), taken.is_led)])
            added: int = await self._run_leader("fire", taken.fence, firing)
            if added < 0:
                return None
            fired += added
        return fired

    async def _run_leader(self, verb: str, *args: Any) -> Any:
        keys = [*self._keys.fixed, *self._keys.scheduler]
        return await self._store.run(SCRIPTS[verb], keys, (*self._head(), self.id, *args))

    async def audit_if_due(self) -> list[tuple[str, int, int]]:
        """Correct the concurrent counters, at intervals; return those that were wrong."""
        now = self._binding.clock()
        if self._audited_at is not None and abs(now - self._audited_at) < AUDIT_EVERY_MS:
            return []
        self._audited_at = now
        return await BridgemqOperator(self._binding).audit()

    async def release(self) -> None:
        """Give the leadership up, so that another need not wait for it."""
        if not self.is_leader:
            return
        self.is_leader = False
        with suppress(RedisError):  # then the lock expires
            await self._store.run(SCRIPTS["release_leader"], [self._keys.leader_lock], (self.id,))
