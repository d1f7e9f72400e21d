"""Where the feed of all queues looks things up."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from corral.app import Corral
from corral.core.event import JobEvent
from corral.core.http_api import TailBatch, TailEvent
from corral.gateway.answers import encode, event_document
from corral.gateway.headers import BEGINNING, order
from corral.protocols import protocol_named
from corral.queue import Queue


class FeedSource:
    """Where the feed's tails look things up: the event logs of queues, asked now and then."""

    def __init__(self, corral: Corral) -> None:
        self._corral = corral

    async def read(self, wanted: Sequence[tuple[str, str]], count: int) -> list[TailBatch]:
        return list(await asyncio.gather(*(self._read(key, after, count) for key, after in wanted)))

    async def _read(self, key: str, after: str, count: int) -> TailBatch:
        protocol, _, name = key.partition("/")
        log = Queue(self._corral, protocol_named(protocol), name, is_read=True).events
        events = await log.range("-" if after == BEGINNING else after, count)
        is_behind = len(events) >= count
        extent = await log.extent() if is_behind else None
        first = None if extent is None else extent.first
        return TailBatch(
            events=[_told(event) for event in events],
            position=events[-1].id if events else after,
            exists=True,
            is_over=False,
            # a tail that falls behind may be overtaken by the trimming of the log
            is_cut=first is not None and after != BEGINNING and order(first) > order(after),
            has_more=is_behind,
        )

    async def changed(self, wanted: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        """All of them: a read costs no more than a look."""
        return [key for key, _ in wanted]

    async def hints(self) -> AsyncGenerator[Sequence[str]]:
        """None: looking often is enough, and needs no connection for each queue."""
        await asyncio.Event().wait()
        yield ()


def _told(event: JobEvent) -> TailEvent:
    feed_id = f"{event.id}@{event.protocol}/{event.queue}"
    return TailEvent(feed_id, event.kind, encode(event_document(event)), False)
