"""A harness: jobs and events in a real protocol, for tests that have no event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from corral.core.event import JobEvent
from corral.core.job import Claim, Job, JobOptions
from corral.core.options import Capability
from corral.core.outcome import Completed, Outcome, Settlement
from corral.core.ports import Broker, EventLog, Inspector, Profile
from corral.protocols import protocol_named
from corral.protocols.binding import Binding
from corral.store.client import Store
from corral.worker.worker import wall_clock
from tests.support.servers import Server

T = TypeVar("T")

JOB_NAMES = {"streams": "embed"}
EVENT_KEYS = {"bullmq": "bull:{queue}:events", "streams": "jobs:events", "bridgemq": "bridge:events"}


class SparkHarness:
    """One protocol of one server: add jobs, work them off, and see what it says happened."""

    def __init__(self, server: Server, protocol: str) -> None:
        self.server = server
        self.protocol = protocol_named(protocol)
        self.url = server.url
        self.queue = self.protocol.default_queue
        self.job_name = JOB_NAMES.get(protocol, "work")
        self._runner = asyncio.Runner()
        self._store: Store | None = None

    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def go() -> T:
            if self._store is None:
                self._store = Store(self.url)
            return await call()

        return self._runner.run(go())

    def binding(self, queue: str | None = None, **profile: Any) -> Binding:
        assert self._store is not None
        who = Profile(name="hand", **profile)
        return Binding(self._store, queue or self.queue, self.protocol.default_namespace, wall_clock, who)

    def job(self, data: Any = None, *, queue: str | None = None, id: str = "", **options: Any) -> Job:
        if Capability.RETRY not in self.protocol.capabilities:
            options = {"attempts": 1, "backoff": None, **options}
        return Job(
            name=self.job_name,
            data={} if data is None else data,
            queue=queue or self.queue,
            id=id,
            options=JobOptions(**options),
            created_at=wall_clock(),
        )

    def add(self, count: int = 1, queue: str | None = None, **options: Any) -> list[str]:
        """Ids of so many new jobs."""

        async def go() -> list[str]:
            broker = self.protocol.broker(self.binding(queue))
            return await broker.submit([self.job({"n": n}, queue=queue, **options) for n in range(count)])

        return self.run(go)

    def work(
        self,
        queue: str | None = None,
        outcome: Callable[[Claim], Outcome] = lambda claim: Completed(b'{"ok":true}'),
        most: int = 1_000_000,
    ) -> int:
        """Claim and settle what can be claimed now; how many that were."""

        async def go() -> int:
            broker: Broker = self.protocol.broker(self.binding(queue))
            worked, settlements = 0, []
            while True:
                turn = await broker.turn(settlements, min(500, most - worked))
                assert all(verdict is None for verdict in turn.verdicts)
                if not turn.claims:
                    await broker.close()
                    return worked
                worked += len(turn.claims)
                settlements = [Settlement(claim, outcome(claim), wall_clock()) for claim in turn.claims]

        return self.run(go)

    def told(self, queue: str | None = None) -> list[JobEvent]:
        """Every event there is, as the port tells them."""

        async def go() -> list[JobEvent]:
            log: EventLog = self.protocol.events(self.binding(queue))
            events: list[JobEvent] = []
            while page := await log.range(events[-1].id if events else "-", 1000):
                events += page
            return events

        return self.run(go)

    @property
    def inspector(self) -> Inspector:
        return self.protocol.inspector(self.binding())

    def events_key(self, queue: str | None = None) -> str:
        return EVENT_KEYS[self.protocol.name].format(queue=queue or self.queue)

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
        reader = reader.format("corral").option("url", self.url).option("protocol", self.protocol.name)
        reader = reader.option("queue", queue or self.queue)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._runner.run(self._store.close())
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


def ids(rows: Sequence[Any]) -> list[str]:
    return [row["event_id"] for row in rows]
