"""The streams protocol's EventLog: the shared stream of our own parts, and each job's own."""

from collections.abc import AsyncGenerator

from corral.core.event import Extent, JobEvent
from corral.core.job import Job
from corral.core.pages import EventPage, Marks
from corral.protocols.base import Binding
from corral.protocols.streams import codec
from corral.protocols.streams.columns import decode_columns
from corral.protocols.streams.keys import Keys
from corral.store import streams


class StreamsEventLog:
    """What happened, as `jobs:events` tells it; foreign workers write only to a job's own stream."""

    def __init__(self, binding: Binding) -> None:
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)

    async def range(self, after: str = "-", count: int = 1000) -> list[JobEvent]:
        entries = await streams.read_range(self._store, self._keys.events, after, count)
        return [codec.decode_event(entry_id, fields) for entry_id, fields in entries]

    async def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        async for entries in streams.follow(self._store, self._keys.events, after):
            for entry_id, fields in entries:
                yield codec.decode_event(entry_id, fields)

    async def extent(self) -> Extent:
        return await streams.extent(self._store, self._keys.events)

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        extent, _, entries = await streams.read_page(self._store, self._keys.events, after, until, count)
        return streams.page_of(decode_columns(entries), extent, entries)

    async def marks(self, after: str, until: str, first: int, step: int) -> Marks:
        return await streams.mark(self._store, self._keys.events, after, until, first, step)

    async def of_job(self, job: Job, after: str = "-") -> list[JobEvent]:
        """Return up to 1000 events of a job's own stream, which foreign workers write to as well."""
        entries = await streams.read_range(self._store, self._keys.job_events(job.id), after, 1000)
        return [codec.decode_event(entry_id, fields, job.id) for entry_id, fields in entries]
