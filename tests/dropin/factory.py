"""Objects of the drop-in, for tests."""

from collections.abc import Awaitable, Callable
from typing import Any

from corral.bullmq import FlowProducer, Queue, QueueEvents, QueueEventsProducer, Worker

QUEUE = "mail"
Processor = Callable[..., Awaitable[Any]]


async def nothing(job: Any, token: str) -> None:
    """A processor that has nothing to do."""


class Factory:
    """Makes them on one server, and closes them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: list[Any] = []

    def _keep(self, made: Any) -> Any:
        self._made.append(made)
        return made

    def queue(self, name: str = QUEUE, **opts: Any) -> Queue:
        made: Queue = self._keep(Queue(name, {"connection": self.url, **opts}))
        return made

    def worker(self, processor: Processor | None = nothing, name: str = QUEUE, **opts: Any) -> Worker:
        """A worker; its own option `name` is given as `called`."""
        if "called" in opts:
            opts["name"] = opts.pop("called")
        made: Worker = self._keep(Worker(name, processor, {"connection": self.url, **opts}))
        return made

    async def events(self, name: str = QUEUE, **opts: Any) -> QueueEvents:
        """Listeners that miss nothing from here on."""
        made: QueueEvents = self._keep(QueueEvents(name, {"connection": self.url, **opts}))
        await made.waitUntilReady()
        return made

    def producer(self, name: str = QUEUE, **opts: Any) -> QueueEventsProducer:
        made: QueueEventsProducer = self._keep(QueueEventsProducer(name, {"connection": self.url, **opts}))
        return made

    def flows(self, **opts: Any) -> FlowProducer:
        made: FlowProducer = self._keep(FlowProducer({"connection": self.url, **opts}))
        return made

    async def close(self) -> None:
        for made in reversed(self._made):
            if isinstance(made, Worker):
                await made.close(True)
            else:
                await made.close()


class EventRecorder:
    """What an object told, by event."""

    def __init__(self, source: Any, *events: str) -> None:
        self.events: list[tuple[Any, ...]] = []
        for event in events:
            source.on(event, self._note(event))

    def _note(self, event: str) -> Callable[..., None]:
        return lambda *args: self.events.append((event, *args))

    def names(self) -> list[str]:
        return [event for event, *_ in self.events]

    def of(self, event: str) -> list[tuple[Any, ...]]:
        return [tuple(args) for name, *args in self.events if name == event]
