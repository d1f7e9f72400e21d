"""Factory: queues, workers and listeners of the drop-in for tests, and a recorder of their events."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from corral.bullmq import FlowProducer, Queue, QueueEvents, QueueEventsProducer, Worker
from tests.support.polling import until

QUEUE = "mail"
T = TypeVar("T")
Processor = Callable[..., Awaitable[Any]]


async def nothing(job: Any, token: str) -> None:
    """A processor that does nothing."""


async def until_workers(queue: Queue, count: int) -> None:
    """Wait until so many workers are connected to the queue's server."""

    async def are_connected() -> bool:
        return await queue.getWorkersCount() == count

    await until(are_connected, f"{count} workers of {queue.name!r}")


class Factory:
    """Creates objects of the drop-in on one server, and closes them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[Any] = []

    def _keep(self, opened: T) -> T:
        self._opened.append(opened)
        return opened

    def queue(self, name: str = QUEUE, **opts: Any) -> Queue:
        return self._keep(Queue(name, {"connection": self.url, **opts}))

    def worker(self, processor: Processor | None = nothing, name: str = QUEUE, **opts: Any) -> Worker:
        """Return a worker; its own option `name` is passed as `called`."""
        if "called" in opts:
            opts["name"] = opts.pop("called")
        return self._keep(Worker(name, processor, {"connection": self.url, **opts}))

    async def events(self, name: str = QUEUE, **opts: Any) -> QueueEvents:
        """Return a listener that misses no later event."""
        events = self._keep(QueueEvents(name, {"connection": self.url, **opts}))
        await events.waitUntilReady()
        return events

    def producer(self, name: str = QUEUE, **opts: Any) -> QueueEventsProducer:
        return self._keep(QueueEventsProducer(name, {"connection": self.url, **opts}))

    def flows(self, **opts: Any) -> FlowProducer:
        return self._keep(FlowProducer({"connection": self.url, **opts}))

    async def close(self) -> None:
        for opened in reversed(self._opened):
            if isinstance(opened, Worker):
                await opened.close(True)
            else:
                await opened.close()


class EventRecorder:
    """Records the events that an object emits."""

    def __init__(self, source: Any, *events: str) -> None:
        self.events: list[tuple[Any, ...]] = []
        for event in events:
            source.on(event, lambda *args, event=event: self.events.append((event, *args)))

    def names(self) -> list[str]:
        return [event for event, *_ in self.events]

    def of(self, event: str) -> list[tuple[Any, ...]]:
        """Return the arguments of each such event."""
        return [tuple(args) for name, *args in self.events if name == event]

    async def wait_for(self, event: str) -> None:
        """Wait until there is such an event."""

        async def is_recorded() -> bool:
            return event in self.names()

        await until(is_recorded, event)

    async def wait_for_count(self, count: int) -> None:
        """Wait until there are so many events."""

        async def are_recorded() -> bool:
            return len(self.events) >= count

        await until(are_recorded, f"{count} events")
