"""The limits of job types: how many jobs of a name begin in a time, the same in every protocol."""

from corral.core.ports import Limit
from corral.protocols.base import Binding, BoundPort
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols")


class QueueStartLimiter(BoundPort):
    """Counts what begins in the Corral workers of one queue.

    One key for each name that has a limit, which expires with its window; no other client reads it.
    """

    def __init__(self, binding: Binding, protocol: str) -> None:
        super().__init__(binding)
        # namespace and queue have the hash tag, where there is one
        self._prefix = f"corral:{protocol}:{binding.namespace}:{binding.queue}:limit:"

    async def take(self, name: str, limit: Limit, want: int) -> tuple[int, int]:
        granted, wait_ms = await self._store.run(
            SCRIPTS["take"], (self._prefix + name,), (limit.count, limit.duration, want)
        )
        return granted, max(wait_ms, 1)
