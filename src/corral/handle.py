"""JobHandle: a job that was added, and what became of it."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec.structs import replace

from corral.core.conversion import Conversion
from corral.core.event import EventKind, JobEvent
from corral.core.job import Job, JobState
from corral.core.options import seconds
from corral.core.outcome import error_class_of
from corral.core.ports import JobEnd
from corral.errors import JobFailed
from corral.results import BLOCK_S, moment

if TYPE_CHECKING:
    from corral.queue import Queue

R = TypeVar("R")

ENDS = (EventKind.COMPLETED, EventKind.DEAD, EventKind.CANCELLED, "removed")
"""The kinds of events with which a job ends."""


class JobHandle(Generic[R]):
    """A job that was added; `R` is the type of its result.

    >>> handle = await charge.add(Order(17, 9.5))                                       # doctest: +SKIP
    >>> handle.id, await handle.state()                                                 # doctest: +SKIP
    ('1', <JobState.WAITING: 'waiting'>)
    """

    __slots__ = ("_conversion", "_job", "existed", "id", "queue")

    def __init__(
        self,
        queue: "Queue",
        job: Job,
        job_id: str,
        existed: bool = False,
        conversion: Conversion | None = None,
    ) -> None:
        self.queue = queue
        self.id = job_id
        self.existed = existed
        """Whether its id, deduplication or idempotency key was there already: then nothing was added."""
        self._job = job
        self._conversion = conversion

    def __repr__(self) -> str:
        existed = ", existed=True" if self.existed else ""
        return f"JobHandle({self._job.name!r}, id={self.id!r}{existed})"

    @property
    def job(self) -> Job:
        """The job as it was added; where it existed, as it was stored at that moment."""
        return self._job if self._job.id == self.id else replace(self._job, id=self.id)

    @property
    def data(self) -> Any:
        """The job's data; where it existed, the stored ones."""
        return self._job.data

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """Return the handler's result, when the job has completed.

        `JobFailed` where it ended otherwise, `ResultGone` where it was removed and no event tells how it
        ended, `TimeoutError` after so many seconds (or a timedelta); the job goes on then.

        >>> receipt = await handle.result(timeout=10)                                   # doctest: +SKIP
        """
        end = await self._end(timeout)
        if end.state is not JobState.COMPLETED:
            trace = end.trace[-1] if end.trace else ""
            reason = end.reason or end.state.value
            raise JobFailed(self.id, reason, error_class_of(trace), trace, end.attempts_made)
        if self._conversion is None:
            return cast(R, end.result)
        return cast(R, self._conversion.decode(end.result))

    async def wait(self, timeout: float | timedelta | None = None) -> JobState:
        """Return the state in which the job ended, when it has; `ResultGone` and `TimeoutError` as above."""
        return (await self._end(timeout)).state

    async def _end(self, timeout: float | timedelta | None) -> JobEnd:
        limit = seconds(timeout)
        try:
            async with asyncio.timeout(limit) as deadline:
                return await self.queue.results.end_of(self.id, self._job.created_at)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise TimeoutError(
                f"job {self.id!r} of queue {self.queue.name!r} has not ended within {limit:g} s; it goes on"
            ) from None

    async def events(self) -> AsyncGenerator[JobEvent]:
        """Yield the job's events: those that are kept, then each as it comes, until the job has ended.

        >>> async for event in handle.events(): ...                                     # doctest: +SKIP
        """
        log, job = self.queue.events, self.job
        has_own_log = self.queue.protocol.spec.has_job_events
        waiter, after = log.waiter(), "-"
        try:
            while True:
                position = await log.position()
                for event in await log.of_job(job, after):
                    after = event.id
                    yield event
                    if event.kind in ENDS:
                        return
                if not has_own_log:
                    # what follows is later than both; a log of all jobs is not read twice
                    after = max(after, position, key=moment)
                await waiter.wait(position, BLOCK_S)
        finally:
            await waiter.close()

    async def state(self) -> JobState | None:
        """Return the job's state now; None where it does not exist any more."""
        job = await self.queue.job(self.id)
        return None if job is None else job.state

    async def progress(self) -> Any:
        """Return what the handler reported last; None where it has reported nothing."""
        job = await self.queue.job(self.id)
        return None if job is None else job.progress

    async def logs(self, start: int = 0, count: int = 1000) -> list[str]:
        """Return lines of the job's log."""
        return await self.queue.logs(self.id, start, count)

    async def cancel(self) -> bool:
        """End the job, or ask its worker to end it; return whether that was possible."""
        return bool(await self.queue.cancel([self.id]))

    async def retry(self) -> bool:
        """Put the ended job back in the queue with the attempts it has made; return whether it was."""
        return bool(await self.queue.retry([self.id]))


async def with_stored(handles: list[JobHandle[R]]) -> list[JobHandle[R]]:
    """Give the handles of jobs that existed the stored job, as far as it is there; return all."""
    for handle in handles:
        if handle.existed:
            handle._job = await handle.queue.job(handle.id) or handle._job
    return handles
