"""FeedSource: the events of all queues."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from corral.app import Corral
from corral.core.event import JobEvent
from corral.core.http_api import TailBatch, TailEvent
from corral.gateway.requests import BEGINNING, id_order
from corral.gateway.responses import encode
from corral.protocols import protocol_named
from corral.queue import Queue


def key_of(queue: Queue) -> str:
    """Return the feed's key of a queue."""
    return f"{queue.protocol.spec.name}/{queue.name}"


class FeedSource:
    """The event logs of all queues; a key is `protocol/queue`."""

    def __init__(self, corral: Corral) -> None:
        self._corral = corral

    async def read(self, positions: Sequence[tuple[str, str]], count: int, max_bytes: int) -> list[TailBatch]:
        """Return up to `count` later events of at most `max_bytes` for each (key, position)."""
        reads = (self._read(key, after, count, max_bytes) for key, after in positions)
        return list(await asyncio.gather(*reads))

    async def _read(self, key: str, after: str, count: int, max_bytes: int) -> TailBatch:
        protocol, _, name = key.partition("/")
        log = Queue(self._corral, protocol_named(protocol), name, is_read=True).events
        events = await log.range("-" if after == BEGINNING else after, count, max_bytes)
        # fewer where they have many bytes; the next read shows whether there are more
        has_more = len(events) > 1
        first = (await log.extent()).first if has_more else None
        return TailBatch(
            events=[_tail_event(event) for event in events],
            position=events[-1].id if events else after,
            exists=True,
            is_over=False,
            # a tail that falls behind may be overtaken by the trimming of the log
            is_cut=first is not None and after != BEGINNING and id_order(first) > id_order(after),
            has_more=has_more,
        )

    async def changed(self, positions: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        """Return all keys: a read costs no more than a check."""
        return [key for key, _ in positions]

    async def hints(self) -> AsyncGenerator[Sequence[str]]:
        """Yield none: frequent reads are enough, and need no connection for each queue."""
        await asyncio.Event().wait()
        yield ()


def _tail_event(event: JobEvent) -> TailEvent:
    feed_id = f"{event.id}@{event.protocol}/{event.queue}"
    return TailEvent(feed_id, event.kind, encode(msgspec.to_builtins(event)), False)
