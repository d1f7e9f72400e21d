"""JobType: a handler and the options of its jobs."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import update_wrapper
from typing import Any

from corral.core.job import Job
from corral.errors import InvalidOptions
from corral.queue import NewJob, Queue


class JobType:
    """A handler and the jobs it runs: call it as the function it was, or add jobs for it."""

    def __init__(self, queue: Queue, name: str, fn: Callable[[Any], Any], options: Mapping[str, Any]) -> None:
        self.queue = queue
        self.name = name
        self._fn = fn
        self.options = dict(options)
        update_wrapper(self, fn)

    def __call__(self, job: Any) -> Any:
        return self._fn(job)

    def __repr__(self) -> str:
        return (
            f"JobType({self.name!r}, queue={self.queue.name!r}, protocol={self.queue.protocol.spec.name!r})"
        )

    async def add(self, data: Any = None, *, id: str | None = None, **options: Any) -> Job:
        """Add a job; return it with its id. These options override the decorator's.

        >>> await send_email.add({"to": "…"}, delay=1000, priority=5)   # doctest: +SKIP
        """
        return await self.queue.add(self.name, data, id=id, **{**self.options, **options})

    async def add_many(self, data: Iterable[Any], **options: Any) -> list[str]:
        """Add a job for each item of `data`; return their ids, in order, as `Queue.add_many` does."""
        jobs: Iterable[NewJob] = ((self.name, item) for item in data)
        if isinstance(data, Sized):
            jobs = list(jobs)
        return await self.queue.add_many(jobs, **{**self.options, **options})


def job_type_of(
    known: Sequence[JobType], name: str, queue: str | None, protocol: str | None
) -> JobType | None:
    """Return the job type of that name, in that queue and protocol where given; None where there is none."""
    matching = [
        job_type
        for job_type in known
        if job_type.name == name
        and queue in (None, job_type.queue.name)
        and protocol in (None, job_type.queue.protocol.spec.name)
    ]
    if len(matching) > 1:
        queues = ", ".join(repr(job_type.queue) for job_type in matching)
        raise InvalidOptions(f"there are handlers of {name!r} in {queues}; say which: queue=…, protocol=…")
    return matching[0] if matching else None
