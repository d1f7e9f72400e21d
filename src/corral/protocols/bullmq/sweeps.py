"""What can be done to many jobs of a BullMQ queue at once, in calls that take a bounded time each."""

from typing import Any

from corral.errors import InvalidOptions, QueueInUse, short_repr
from corral.protocols.bullmq.bound import Bound, text

MOST = 1000
"""Jobs looked at in one call."""
ANY_SCORE = "+inf"

CLEANED = (
    "completed", "wait", "active", "paused", "prioritized", "delayed", "failed", "waiting-children",
)  # fmt: skip
"""The states that can be cleaned, as the wire calls them; `waiting` is another word for `wait`."""


class Sweeps(Bound):
    """Drain, clean, obliterate, retry, promote, trim."""

    async def drain(self, delayed: bool = False) -> None:
        """Delete all jobs that wait, with `delayed` those too; what schedulers wait for stays.

        Jobs that are active or have ended are left alone.
        """
        for place in ("wait", "paused", *(("delayed",) if delayed else ()), "prioritized"):
            left_alone, looked_at = 0, MOST
            while looked_at == MOST:
                looked_at, kept = await self._run("drain", place, MOST, left_alone)
                left_alone += kept

    async def clean_state(self, grace: int, limit: int = 0, state: str = "completed") -> list[str]:
        """Delete jobs of a state that are older than `grace` ms, looking at `limit` of them at most (0: at
        all); the ids of those deleted. What is held, and what schedulers wait for, stays."""
        state = "wait" if state == "waiting" else state
        if state not in CLEANED:
            raise InvalidOptions(
                f"state {short_repr(state)} cannot be cleaned; use one of {', '.join(CLEANED)}"
            )
        moment = self._binding.clock() - grace
        gone: list[str] = []
        seen = 0
        while True:
            most = min(MOST, limit - seen) if limit else MOST
            is_last = limit and seen + most >= limit
            looked_at, ids = await self._run(
                "clean", state, moment, most, seen - len(gone), len(gone), 1 if is_last else 0
            )
            gone += map(text, ids)
            seen += looked_at
            if is_last or looked_at < most:
                return gone

    async def obliterate(self, force: bool = False, count: int = MOST) -> None:
        """Delete the queue and all that is in it, `count` jobs a call; it is paused first.

        `QueueInUse` where it has active jobs, unless `force`; it stays paused then.
        """
        await self._run("pause", "paused")
        code = 1
        while code == 1:
            code = await self._run("obliterate", count, 1 if force else 0)
        if code == -1:
            raise QueueInUse(f"queue {self._binding.queue!r} was resumed meanwhile; the rest is still there")
        if code == -2:
            raise QueueInUse(
                f"queue {self._binding.queue!r} has active jobs; wait until they end, or use force=True"
            )

    async def retry_all(self, state: str = "failed", count: int = MOST, timestamp: int | None = None) -> None:
        """Put all jobs that completed or failed until `timestamp` (now) back in the queue, `count` a call.

        As 5.62.0 does: their priority and their parents are not looked at.
        """
        if state not in ("completed", "failed"):
            raise InvalidOptions(f"state {short_repr(state)} cannot be retried; use 'completed' or 'failed'")
        await self._move(state, count, self._binding.clock() if timestamp is None else timestamp)

    async def promote_all(self, count: int = MOST) -> None:
        """Make all delayed jobs claimable now, `count` a call; as 5.62.0 does, whatever their priority."""
        await self._move("delayed", count, ANY_SCORE)

    async def _move(self, state: str, count: int, highest: Any) -> None:
        if count < 1:
            raise InvalidOptions(f"count is {short_repr(count)}; use how many to move in one call, from 1")
        moved = count
        while moved == count:
            moved = await self._run("move_jobs", state, count, highest)

    async def trim_events(self, count: int) -> int:
        """Keep about the last `count` events; how many were dropped."""
        dropped: int = await self._store.call("XTRIM", self._keys.part("events"), "MAXLEN", "~", count)
        return dropped
