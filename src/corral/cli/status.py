"""QueueStatus: counts, pause, workers and events of one queue at one moment."""

import asyncio
from typing import Any, NamedTuple

from corral.core.job import JobState
from corral.core.ports import WorkerInfo
from corral.errors import RedisWrongTypeError
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
    error: str = ""
    """Why it cannot be read; it then has no counts."""

    @property
    def is_used(self) -> bool:
        """Whether it has any trace of use; the only queue of a protocol is listed even without."""
        is_listed = self.events or self.workers or self.is_paused or any(self.counts.values())
        return bool(is_listed or self.error)

    @property
    def document(self) -> dict[str, Any]:
        """The status as JSON."""
        return {
            **identity(self.queue),
            "counts": {state.value: count for state, count in self.counts.items()},
            "paused": self.is_paused,
            "workers": [worker.name for worker in self.workers],
            **({"error": self.error} if self.error else {}),
        }


async def status_of(queue: Queue) -> QueueStatus:
    """Read the status of a queue; where a key of it has another type, only that."""
    try:
        counts, is_paused, workers, extent = await asyncio.gather(
            queue.counts(), queue.is_paused(), queue.workers(), queue.events.extent()
        )
    except RedisWrongTypeError as error:
        return QueueStatus(queue, {}, False, [], 0, f"{full_name(queue)} cannot be read: {error}")
    return QueueStatus(queue, counts, is_paused, workers, extent.length)


async def in_use(queues: list[Queue]) -> list[QueueStatus]:
    """Read the status of queues; return those that are in use."""
    return [status for status in await asyncio.gather(*map(status_of, queues)) if status.is_used]
