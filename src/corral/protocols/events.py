"""What the event logs of all protocols share: a stream, and the events of one job in it."""

from abc import ABC, abstractmethod

from corral.core.event import Extent, JobEvent, Marks
from corral.core.job import Job
from corral.protocols.base import Binding, BoundPort
from corral.store import streams

PAGE, MOST_PAGES = 1000, 20
"""Events read for one job's, in one step and in how many."""
CLOCKS_APART_MS = 5000
"""How far a producer's clock may be from the server's, which makes the ids of events."""


class BaseEventLog(BoundPort, ABC):
    """The events in one stream."""

    def __init__(self, binding: Binding, stream: str) -> None:
        super().__init__(binding)
        self._stream = stream

    @abstractmethod
    async def range(self, after: str = "-", count: int = 1000) -> list[JobEvent]:
        """Return up to `count` events later than id `after`."""

    async def of_job(self, job: Job, after: str = "-") -> list[JobEvent]:
        if after == "-":
            after = f"{max(job.created_at - CLOCKS_APART_MS, 0)}-0"
        events: list[JobEvent] = []
        for _ in range(MOST_PAGES):
            page = await self.range(after, PAGE)
            events += [event for event in page if event.job_id == job.id]
            if len(page) < PAGE:
                break
            after = page[-1].id
        return events

    async def extent(self) -> Extent:
        return await streams.extent(self._store, self._stream)

    async def marks(self, after: str, until: str, first: int, step: int) -> Marks:
        return await streams.mark(self._store, self._stream, after, until, first, step)
