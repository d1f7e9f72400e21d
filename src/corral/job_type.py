"""JobType: a handler, and what adds jobs for it."""

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
        """The job as it was added; options given here win over the decorator's.

        >>> await send_email.add({"to": "…"}, delay=1000, priority=5)   # doctest: +SKIP
        """
        return await self.queue.add(self.name, data, id=id, **{**self.options, **options})

    async def add_many(self, data: Iterable[Any], **options: Any) -> list[str]:
        """Ids of one job for each item of `data`, in order; refused as `Queue.add_many` refuses."""
        jobs: Iterable[NewJob] = ((self.name, item) for item in data)
        if isinstance(data, Sized):
            jobs = list(jobs)
        return await self.queue.add_many(jobs, **{**self.options, **options})


def job_type_of(
    known: Sequence[JobType], name: str, queue: str | None, protocol: str | None
) -> JobType | None:
    """The one of that name, in the queue and protocol that were given, if any; None: there is none."""
    found = [
        one
        for one in known
        if one.name == name
        and queue in (None, one.queue.name)
        and protocol in (None, one.queue.protocol.spec.name)
    ]
    if len(found) > 1:
        places = ", ".join(repr(one.queue) for one in found)
        raise InvalidOptions(f"there are handlers of {name!r} in {places}; say which: queue=…, protocol=…")
    return found[0] if found else None
