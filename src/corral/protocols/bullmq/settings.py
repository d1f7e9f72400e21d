"""The settings a BullMQ queue keeps in its meta key, and the marks that hold it back."""

from corral.core.ports import Limit
from corral.protocols.bullmq.bound import Bound

UNTIL_LIFTED = 2**53 - 1
"""More claims than any limit allows: what a manual limit writes into the counter."""


class Settings(Bound):
    """Global concurrency and rate limit, the length of the event stream, deduplication marks."""

    async def set_concurrency(self, count: int | None) -> None:
        """At most `count` jobs active in the whole queue; None lifts it."""
        await self._set({"concurrency": count})

    async def set_limit(self, limit: Limit | None) -> None:
        """At most so many claims in a time, for the whole queue; None lifts it."""
        count, duration = (limit.count, limit.duration) if limit else (None, None)
        await self._set({"max": count, "duration": duration})

    async def hold(self, duration_ms: int) -> None:
        """No claims for so long, where a limit is set."""
        await self._store.call("SET", self._keys.part("limiter"), UNTIL_LIFTED, "PX", duration_ms)

    async def lift_hold(self) -> bool:
        """Forget what was claimed in the limit's time so far, or a hold; False where there was neither."""
        return bool(await self._store.call("DEL", self._keys.part("limiter")))

    async def keep_events(self, count: int) -> None:
        """Keep about the last `count` events."""
        await self._set({"opts.maxLenEvents": count})

    async def release_deduplication(self, text: str) -> bool:
        """Let a job be added under this deduplication id at once; False where none stood for it."""
        return bool(await self._store.call("DEL", self._keys.deduplication(text)))

    async def _set(self, settings: dict[str, int | None]) -> None:
        meta = self._keys.part("meta")
        for name, value in settings.items():
            if value is None:
                await self._store.call("HDEL", meta, name)
            else:
                await self._store.call("HSET", meta, name, value)
