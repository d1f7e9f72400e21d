"""What the event logs of all protocols share: a stream, and the events of one job in it."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from corral.core.event import EventKind, Extent, JobEvent, Marks
from corral.core.job import Job, JobState
from corral.core.ports import JobEnd
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
    async def range(
        self, after: str = "-", count: int = 1000, max_bytes: int | None = None
    ) -> list[JobEvent]:
        """Return up to `count` events later than id `after`, of at most `max_bytes`."""

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

    async def position(self) -> str:
        return await streams.last_id(self._store, self._stream)

    def waiter(self) -> streams.StreamWaiter:
        return streams.StreamWaiter(self._store, self._stream)

    async def ends_of(self, ids: Collection[str], after: str) -> dict[str, JobEnd]:
        ends: dict[str, JobEnd] = {}
        for _ in range(MOST_PAGES):
            page = await self.range(after, PAGE)
            for event in page:
                job_id = event.job_id
                if job_id is not None and job_id in ids and (end := self._end_of(event)) is not None:
                    ends[job_id] = end
            if len(page) < PAGE:
                break
            after = page[-1].id
        return ends

    def _end_of(self, event: JobEvent) -> JobEnd | None:
        """Return how a job ended by one of its events; None where it did not end with that."""
        data = event.data if isinstance(event.data, dict) else {}
        match event.kind:
            case EventKind.COMPLETED:
                return JobEnd(state=JobState.COMPLETED, result=self._result_of(data))
            case EventKind.DEAD:
                return JobEnd(state=JobState.DEAD, reason=self._reason_of(data))
            case EventKind.CANCELLED:
                return JobEnd(state=JobState.CANCELLED, reason="cancelled")
        return None

    @abstractmethod
    def _result_of(self, data: Mapping[str, Any]) -> Any:
        """Return the result that the event of a completed job carries."""

    @abstractmethod
    def _reason_of(self, data: Mapping[str, Any]) -> str | None:
        """Return the reason that the event of a dead job carries."""

    async def extent(self) -> Extent:
        return await streams.extent(self._store, self._stream)

    async def marks(self, after: str, until: str, first: int, step: int) -> Marks:
        return await streams.mark(self._store, self._stream, after, until, first, step)
