"""QueueStatus: counts, pause, workers and events of one queue at one moment."""

import asyncio
from typing import Any, NamedTuple

from corral.core.job import JobState
from corral.core.ports import WorkerInfo
from corral.queue import Queue


def full_name(queue: Queue) -> str:
    """Return the queue's name with its protocol, as messages write it."""
    return f"queue {queue.name!a} of protocol {queue.protocol.spec.name!r}"


def identity(queue: Queue) -> dict[str, Any]:
    """Return the fields that name a queue in JSON documents."""
    return {"protocol": queue.protocol.spec.name, "queue": queue.name}


class QueueStatus(NamedTuple):
    """A queue at one moment."""

    queue: Queue
    counts: dict[JobState, int]
    is_paused: bool
    workers: list[WorkerInfo]
    events: int

    @property
    def is_used(self) -> bool:
        """Whether it has any trace of use; the only queue of a protocol is listed even without."""
        return bool(self.events or self.workers or self.is_paused or any(self.counts.values()))

    @property
    def document(self) -> dict[str, Any]:
        """The status as JSON."""
        return {
            **identity(self.queue),
            "counts": {state.value: count for state, count in self.counts.items()},
            "paused": self.is_paused,
            "workers": [worker.name for worker in self.workers],
        }


async def status_of(queue: Queue) -> QueueStatus:
    """Read the status of a queue."""
    counts, is_paused, workers, extent = await asyncio.gather(
        queue.counts(), queue.is_paused(), queue.workers(), queue.events.extent()
    )
    return QueueStatus(queue, counts, is_paused, workers, extent.length)


async def in_use(queues: list[Queue]) -> list[QueueStatus]:
    """Read the status of queues; return those that are in use."""
    return [status for status in await asyncio.gather(*map(status_of, queues)) if status.is_used]
