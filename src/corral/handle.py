"""JobHandle: a job that was added, and what became of it."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec.structs import replace

from corral.core.conversion import Conversion
from corral.core.job import Job, JobState

if TYPE_CHECKING:
    from corral.queue import Queue

R = TypeVar("R")


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
