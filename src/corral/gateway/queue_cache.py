"""QueueCache: the queues of every protocol, read from Redis when they are listed or one is not known."""

import asyncio
from time import monotonic

from corral.app import Corral
from corral.errors import RedisResponseError
from corral.gateway.problems import Problem
from corral.protocols import protocol_named, protocol_names
from corral.queue import Queue

MANY_KEYS = 20_000
FRESH_SHARE = 20
"""A listing of many keys, all of which are scanned, is used again for so many times as long as it took."""


class QueueCache:
    """The queues of one server."""

    def __init__(self, corral: Corral) -> None:
        self._corral = corral
        self._queues: dict[tuple[str, str], Queue] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._fresh_until = 0.0

    async def queues(self, protocol: str | None = None, name: str | None = None) -> list[Queue]:
        """Return all queues, or those of one protocol or of one name, in order."""
        if protocol is not None:
            protocol_named(protocol)
        if monotonic() >= self._fresh_until:
            await self._refresh()
        keys = sorted(self._queues)
        return [self._queues[key] for key in keys if protocol in (None, key[0]) and name in (None, key[1])]

    async def queue(self, protocol: str, name: str) -> Queue:
        """Return one queue; 404 where it does not exist."""
        protocol_named(protocol)
        if (protocol, name) not in self._queues:
            await self._refresh()
        queue = self._queues.get((protocol, name))
        if queue is None:
            detail = f"protocol {protocol!r} has no queue {name[:80]!a}; see /v1/queues"
            raise Problem("queue-not-found", detail)
        return queue

    async def _refresh(self) -> None:
        """List the queues, once for all requests that wait for it."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._list())
        await asyncio.shield(self._refreshing)

    async def _list(self) -> None:
        began = monotonic()
        listed = await asyncio.gather(*(self._corral.queues(protocol) for protocol in protocol_names()))
        self._queues = {
            (queue.protocol.spec.name, queue.name): queue for queues in listed for queue in queues
        }
        took = monotonic() - began
        self._fresh_until = monotonic() + took * FRESH_SHARE if await self._has_many_keys() else 0.0

    async def _has_many_keys(self) -> bool:
        try:
            return int(await self._corral.store().call("DBSIZE")) > MANY_KEYS
        except RedisResponseError:
            return True  # this user may not ask
