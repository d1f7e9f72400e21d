"""A queue at one moment, and which jobs of it are meant."""

import asyncio
from typing import Any, NamedTuple

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.ports import WorkerInfo
from corral.queue import Queue

PAGE = 500


def name_of(queue: Queue) -> str:
    """The queue as a sentence names it."""
    return f"queue {queue.name!a} of protocol {queue.protocol.spec.name!r}"


class Look(NamedTuple):
    """A queue at one moment."""

    queue: Queue
    counts: dict[JobState, int]
    is_paused: bool
    workers: list[WorkerInfo]
    events: int

    @property
    def is_used(self) -> bool:
        """Is there anything? A protocol with one queue by contract has it even where nobody came yet."""
        return bool(self.events or self.workers or self.is_paused or any(self.counts.values()))

    @property
    def document(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "protocol": self.queue.protocol.spec.name,
            "queue": self.queue.name,
            "counts": {state.value: count for state, count in self.counts.items()},
            "paused": self.is_paused,
            "workers": [worker.name for worker in self.workers],
        }


async def look(queue: Queue) -> Look:
    """How much is in a queue now, and who works on it."""
    counts, is_paused, workers, extent = await asyncio.gather(
        queue.counts(), queue.is_paused(), queue.workers(), queue.events.extent()
    )
    return Look(queue, counts, is_paused, workers, extent.length)


def dead_jobs(
    name: str | None = None, reason: str | None = None, data: str | None = None, limit: int | None = None
) -> JobFilter:
    """Return the filter of dead jobs that these options mean."""
    return job_filter(JobState.DEAD, name, reason, data, limit)


def job_filter(
    state: JobState, name: str | None, reason: str | None, data: str | None, limit: int | None
) -> JobFilter:
    """Return the filter that these options mean."""
    names = None if name is None else frozenset({name})
    return JobFilter(states=frozenset({state}), names=names, reason=reason, data=data, limit=limit)


def words_of(jobs: JobFilter) -> str:
    """Return the filter as a sentence goes on with it."""
    [name] = jobs.names or [None]
    parts = ((name, "called"), (jobs.reason, "with a reason that has"), (jobs.data, "with data that have"))
    return "".join(f" {word} {value!a}" for value, word in parts if value is not None)
