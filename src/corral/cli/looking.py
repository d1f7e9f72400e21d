"""A queue at one moment, and which jobs of it are meant."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from corral.core.job import Job, JobState
from corral.core.ports import WorkerInfo
from corral.queue import Queue

PAGE = 500


def name_of(queue: Queue) -> str:
    """The queue as a sentence names it."""
    return f"queue {queue.name!a} of protocol {queue.protocol.name!r}"


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
            "protocol": self.queue.protocol.name,
            "queue": self.queue.name,
            "counts": {state.value: count for state, count in self.counts.items()},
            "paused": self.is_paused,
            "workers": [worker.name for worker in self.workers],
        }


async def look(queue: Queue) -> Look:
    """How much is in a queue now, and who works on it."""
    inspector = queue.inspector
    counts, is_paused, workers, extent = await asyncio.gather(
        inspector.counts(), inspector.is_paused(), inspector.workers(), queue.events.extent()
    )
    return Look(queue, counts, is_paused, workers, extent.length)


@dataclass(frozen=True)
class Choice:
    """Which jobs are meant: by name, by a part of the reason they failed for, by a part of their data.

    >>> Choice(data="ada@").has(Job(name="send", data={"to": "ada@x.org"}, queue="mail"))
    True
    """

    name: str | None = None
    reason: str | None = None
    data: str | None = None

    def has(self, job: Job) -> bool:
        """Is this one of them?"""
        return (
            (self.name is None or job.name == self.name)
            and (self.reason is None or self.reason in (job.reason or ""))
            and (self.data is None or self.data in json.dumps(job.data, default=str, ensure_ascii=False))
        )

    @property
    def words(self) -> str:
        """The choice as a sentence goes on with it."""
        parts = (
            (self.name, "called"),
            (self.reason, "with a reason that has"),
            (self.data, "with data that have"),
        )
        return "".join(f" {word} {value!a}" for value, word in parts if value is not None)


async def chosen(queue: Queue, state: JobState, choice: Choice, most: int) -> list[Job]:
    """Up to `most` jobs in a state that are meant: the next to run first, the last to end first."""
    found: list[Job] = []
    async for job in _all(queue, state):
        if choice.has(job):
            found.append(job)
            if len(found) >= most:
                break
    return found


async def _all(queue: Queue, state: JobState) -> AsyncIterator[Job]:
    inspector = queue.inspector
    start = 0
    while page := await inspector.jobs(state, start, PAGE):
        for job in page:
            yield job
        start += len(page)
        if len(page) < PAGE:
            return
