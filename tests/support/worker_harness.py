"""Workers on a real BullMQ queue, for tests."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from corral.core.job import Job, JobOptions, JobState
from corral.core.ports import Profile
from corral.protocols.base import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.operator import BullmqOperator
from corral.protocols.bullmq.reporter import BullmqReporter
from corral.store.client import Reconnect, Store
from corral.telemetry.metrics import Metrics
from corral.worker import Connections, HandlerRegistry, Worker, WorkerEvent, WorkerEventKind
from tests.support.jobs import submit
from tests.support.polling import becomes_true

QUEUE = "work"
ONCE = JobOptions(attempts=1)
AT_ONCE = JobOptions(attempts=3, backoff=None)
"""Three attempts without a pause between them."""


class WorkerHarness:
    """One queue on one server: submit to it, look at it, and open workers on it."""

    def __init__(self, url: str, worker_url: str | None = None) -> None:
        self.store = Store(url)
        self.worker_url = worker_url or url
        self.offset_ms = 0
        """How far the workers' clock is ahead."""
        self.metrics = Metrics()
        self.events: list[WorkerEvent] = []
        self.handlers = HandlerRegistry()
        binding = Binding(self.store, QUEUE, "bull", self.clock)
        self.broker = BullmqBroker(binding)
        self.inspector = BullmqInspector(binding)
        self.operator = BullmqOperator(binding)

    def clock(self) -> int:
        return time.time_ns() // 1_000_000 + self.offset_ms

    def handle(self, name: str, **options: Any) -> Callable[[Any], Any]:
        """Register the decorated function as a handler."""

        def register(fn: Any) -> Any:
            self.handlers.add(name, fn, **options)
            return fn

        return register

    async def submit(self, name: str, *data: Any, options: JobOptions = ONCE) -> list[str]:
        """Ids of jobs, one for each of `data`."""
        now = self.clock()
        return await submit(
            self.broker,
            [Job(name=name, data=datum, queue=QUEUE, options=options, created_at=now) for datum in data],
        )

    async def job(self, job_id: str) -> Job:
        found = await self.inspector.job(job_id)
        assert found is not None
        return found

    async def ended(self, *job_ids: str, seconds: float = 10.0) -> list[Job]:
        """The jobs, once each has completed or died."""
        found: list[Job] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = [await self.job(job_id) for job_id in job_ids]
            if all(job.state in (JobState.COMPLETED, JobState.DEAD) for job in found):
                return found
            await becomes_true(lambda: False, 0.01)
        raise AssertionError(f"not ended in {seconds} s: {[(job.id, job.state) for job in found]}")

    def connections(self, profile: Profile) -> Callable[[], AbstractAsyncContextManager[Connections]]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Connections]:
            store = Store(self.worker_url, reply_timeout=2.0)
            binding = Binding(store, QUEUE, "bull", self.clock, profile)
            broker = BullmqBroker(binding)
            try:
                yield Connections(broker, BullmqReporter(binding))
            finally:
                try:
                    await broker.close()
                finally:
                    await store.close()

        return opened

    def new_worker(self, *, profile: Profile | None = None, **options: Any) -> Worker:
        """A worker that has not started; what it tells gathers in `events`."""
        profile = replace(profile or Profile(name="w"), name="w")
        options.setdefault("delays", Reconnect(first_ms=20, most_ms=200).delay)
        options.setdefault("concurrency", 10)
        return Worker(
            QUEUE,
            self.connections(profile),
            self.handlers,
            profile=profile,
            clock=self.clock,
            metrics=self.metrics.queue("bullmq", QUEUE),
            listener=self.events.append,
            **options,
        )

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Worker]:
        """A worker at work; gone at the end of the block."""
        worker = self.new_worker(**options)
        await worker.start()
        try:
            yield worker
        finally:
            worker.kill()
            await worker.stop(0)

    def told(self, kind: WorkerEventKind) -> list[WorkerEvent]:
        return [event for event in self.events if event.kind is kind]

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric for this queue; 0 where it was never counted."""
        value = self.metrics.registry.get_sample_value(name, {"protocol": "bullmq", "queue": QUEUE, **labels})
        return 0.0 if value is None else value

    async def close(self) -> None:
        await self.broker.close()
        await self.store.close()
