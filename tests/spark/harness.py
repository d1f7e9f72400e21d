"""Jobs and events of a real protocol, for tests that have no event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from corral.core.event import JobEvent
from corral.core.job import Claim
from corral.core.outcome import Completed, Outcome, Settlement
from corral.spark.events import EventStreamReader
from corral.spark.options import EventReadOptions, QueueAddress
from corral.store.client import Store
from tests.support.harness import QueueHarness
from tests.support.jobs import submit
from tests.support.servers import Server

T = TypeVar("T")

EVENT_KEYS = {"bullmq": "bull:{queue}:events", "streams": "jobs:events", "bridgemq": "bridge:events"}


class SparkHarness(QueueHarness):
    """One protocol of one server: add jobs, work them off, read the events."""

    def __init__(self, server: Server, protocol: str) -> None:
        super().__init__(protocol, Store(server.url))
        self.server = server
        self.url = server.url
        self._runner = asyncio.Runner()

    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._runner.run(call())

    def add(self, count: int = 1, queue: str | None = None, **options: Any) -> list[str]:
        """Add so many jobs; return their ids."""

        async def go() -> list[str]:
            target = self.on(queue or self.queue)
            return await submit(target.broker(), [target.job({"n": n}, **options) for n in range(count)])

        return self.run(go)

    def work(
        self,
        queue: str | None = None,
        outcome: Callable[[Claim], Outcome] = lambda claim: Completed(b'{"ok":true}'),
        most: int = 1_000_000,
    ) -> int:
        """Claim and settle what can be claimed now; return how many jobs that were."""

        async def go() -> int:
            broker = self.protocol.bind(self.on(queue or self.queue).binding()).broker
            worked, settlements = 0, []
            while True:
                turn = await broker.turn(settlements, min(500, most - worked))
                assert all(verdict is None for verdict in turn.verdicts)
                if not turn.claims:
                    await broker.close()
                    return worked
                worked += len(turn.claims)
                settlements = [Settlement(claim, outcome(claim), self.now) for claim in turn.claims]

        return self.run(go)

    def address(self, queue: str | None = None) -> QueueAddress:
        """Return the queue as Spark's readers and writers name it."""
        return QueueAddress(self.url, self.protocol.spec.name, self.namespace, queue or self.queue)

    def read_events(self, queue: str | None = None) -> list[JobEvent]:
        """Return every event, as the port reads them."""

        async def go() -> list[JobEvent]:
            log = self.on(queue or self.queue).events
            events: list[JobEvent] = []
            while page := await log.range(events[-1].id if events else "-", 1000):
                events += page
            return events

        return self.run(go)

    def events_key(self, queue: str | None = None) -> str:
        return EVENT_KEYS[self.protocol.spec.name].format(queue=queue or self.queue)

    def trim(self, keep: int, queue: str | None = None) -> int:
        """Drop all but the last `keep` events; how many are gone."""
        with self.server.connect() as client:
            gone: int = client.xtrim(self.events_key(queue), maxlen=keep, approximate=False)
            return gone

    def reader(self, spark: Any, queue: str | None = None, **options: Any) -> Any:
        """`spark.read` for this protocol."""
        return self._with_options(spark.read, queue, options)

    def stream(self, spark: Any, queue: str | None = None, **options: Any) -> Any:
        """`spark.readStream` for this protocol, loaded."""
        return self._with_options(spark.readStream, queue, options).load()

    def _with_options(self, reader: Any, queue: str | None, options: dict[str, Any]) -> Any:
        reader = reader.format("corral").option("url", self.url).option("protocol", self.protocol.spec.name)
        reader = reader.option("queue", queue or self.queue)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.close())
        self._runner.run(self.store.close())
        self._runner.close()


def drain(stream: Any, folder: Any, sink: Callable[[Any, int], None] | None = None, **options: Any) -> Any:
    """Run a streaming DataFrame to the present end into Parquet (or `sink`, or a format); the query, done."""
    writer = stream.writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    format = options.pop("format", "parquet")
    writer = writer.foreachBatch(sink) if sink is not None else writer.format(format)
    if format == "parquet":
        writer = writer.option("path", f"{folder}/out")
    for name, value in options.items():
        writer = writer.option(name, str(value))
    query = writer.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def advance(
    harness: SparkHarness,
    start: dict[str, Any] | None = None,
    queue: str | None = None,
    **options: Any,
) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """Read a stream to the present end, as `availableNow` does: the rows of each batch, and the end."""
    reader = EventStreamReader(harness.address(queue), EventReadOptions(**options))
    reader.prepareForTriggerAvailableNow()
    offset, batches = start or reader.initialOffset(), []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        parts = [part for one in reader.partitions(offset, end) for part in reader.read(one)]
        batches.append([row for part in parts for row in part.to_pylist()])
        offset = end
    reader.stop()
    return batches, offset


def ids(rows: Sequence[Any]) -> list[str]:
    return [row["event_id"] for row in rows]
