"""The BridgeMQ protocol's EventLog: one queue's share of the namespace's event stream."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from corral.core.event import Extent, JobEvent
from corral.core.job import Job
from corral.core.pages import EventPage, Marks, columns_of
from corral.protocols.base import Binding, events_of
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.keys import Keys
from corral.store import streams


class BridgemqEventLog:
    """What our own parts did to the jobs of one queue; strangers do not write here."""

    def __init__(self, binding: Binding) -> None:
        self._store = binding.store
        self._queue = binding.queue
        self._stream = Keys(binding.namespace, binding.queue).part("events")

    async def range(self, after: str = "-", count: int = 1000) -> list[JobEvent]:
        found: list[JobEvent] = []
        while len(found) < count:
            # a page of others' events is no end: it goes on until there are enough, or no more
            entries = await streams.read_range(self._store, self._stream, after, count)
            found += [event for event in map(_decode, entries) if event.queue == self._queue]
            if len(entries) < count:
                break
            after = entries[-1][0].decode()
        return found[:count]

    async def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        async for entries in streams.follow(self._store, self._stream, after):
            for entry in entries:
                event = _decode(entry)
                if event.queue == self._queue:
                    yield event

    async def of_job(self, job: Job, after: str = "-") -> list[JobEvent]:
        return await events_of(self, job, after)

    async def extent(self) -> Extent:
        """How far the stream reaches, with the events of every queue in it."""
        return await streams.extent(self._store, self._stream)

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        extent, _, entries = await streams.read_page(self._store, self._stream, after, until, count)
        ours = [event for event in map(_decode, entries) if event.queue == self._queue]
        return streams.page_of(columns_of(ours), extent, entries)

    async def marks(self, after: str, until: str, first: int, step: int) -> Marks:
        """Marks among the events of every queue: only the server could tell them apart, by reading each."""
        return await streams.mark(self._store, self._stream, after, until, first, step)


def _decode(entry: Sequence[Any]) -> JobEvent:
    return codec.decode_event(entry[0], entry[1])
