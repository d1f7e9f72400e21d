"""The BullMQ protocol's EventLog, over the queue's event stream."""

from collections.abc import AsyncGenerator

from corral.core.event import Extent, JobEvent
from corral.core.job import Job
from corral.core.pages import EventPage, Marks
from corral.protocols.base import Binding, events_of
from corral.protocols.bullmq import codec
from corral.protocols.bullmq.columns import decode_columns
from corral.protocols.bullmq.keys import NAME, Keys
from corral.store import streams


class BullmqEventLog:
    """What happened in one queue."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._stream = Keys(binding.namespace, binding.queue).part("events")

    async def range(self, after: str = "-", count: int = 1000) -> list[JobEvent]:
        store = self._binding.store
        entries = await streams.read_range(store, self._stream, after, count)
        if not entries:
            return []
        before = await streams.entry_before(store, self._stream, entries[0][0])
        return codec.decode_events(entries, NAME, self._binding.queue, before)

    async def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        before: list[bytes] = []
        async for entries in streams.follow(self._binding.store, self._stream, after):
            for event in codec.decode_events(entries, NAME, self._binding.queue, before):
                yield event
            before = entries[-1][1]

    async def of_job(self, job: Job, after: str = "-") -> list[JobEvent]:
        return await events_of(self, job, after)

    async def extent(self) -> Extent:
        return await streams.extent(self._binding.store, self._stream)

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        extent, before, entries = await streams.read_page(
            self._binding.store, self._stream, after, until, count
        )
        return streams.page_of(decode_columns(entries, before), extent, entries)

    async def marks(self, after: str, until: str, first: int, step: int) -> Marks:
        return await streams.mark(self._binding.store, self._stream, after, until, first, step)
