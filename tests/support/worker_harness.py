"""Workers on a real queue, for tests."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from corral.core.job import Job, JobOptions, JobState
from corral.core.options import Capability
from corral.core.ports import Profile
from corral.protocols.base import Binding
from corral.store.client import Reconnect, Store
from corral.telemetry.metrics import Metrics
from corral.worker import Connections, HandlerRegistry, WorkerConfig, WorkerEvent, WorkerEventKind
from corral.worker.worker import Worker
from tests.support.harness import QueueHarness
from tests.support.jobs import submit
from tests.support.polling import until

QUEUE = "work"
ONCE = JobOptions(attempts=1)
ENDED = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
AT_ONCE = JobOptions(attempts=3, backoff=None)
"""Three attempts without a pause between them."""


class WorkerHarness(QueueHarness):
    """A queue of any protocol: submit to it, read it, and run workers on it in this process."""

    worker_name = "w"

    def __init__(self, url: str, worker_url: str | None = None, protocol: str = "bullmq") -> None:
        super().__init__(protocol, Store(url), queue=QUEUE if protocol == "bullmq" else None)
        self.worker_url = worker_url or url
        self.metrics = Metrics()
        self.worker_events: list[WorkerEvent] = []
        self.handlers = HandlerRegistry()
        self.producer = self.broker("producer")

    def handle(self, name: str, **options: Any) -> Callable[[Any], Any]:
        """Register the decorated function as a handler."""

        def register(fn: Any) -> Any:
            self.handlers.add(name, fn, **options)
            return fn

        return register

    async def submit(self, name: str, *data: Any, options: JobOptions = ONCE) -> list[str]:
        """Submit a job for each of `data`; return their ids."""
        jobs = [replace(self.job(datum, name=name), options=options) for datum in data]
        return await submit(self.producer, jobs)

    async def read(self, job_id: str) -> Job:
        job = await self.inspector.job(job_id)
        assert job is not None
        return job

    async def ended(self, *job_ids: str, seconds: float = 10.0) -> list[Job]:
        """Wait until each of the jobs has ended; return them."""

        async def have_ended() -> bool:
            return all([(await self.read(job_id)).state in ENDED for job_id in job_ids])

        await until(have_ended, f"jobs {job_ids} have ended", seconds)
        return [await self.read(job_id) for job_id in job_ids]

    def connections(self, profile: Profile) -> Callable[[], AbstractAsyncContextManager[Connections]]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Connections]:
            store = Store(self.worker_url, reply_timeout=2.0)
            binding = Binding(store, self.queue, self.namespace, self.clock, profile)
            ports = self.protocol.bind(binding)
            broker = ports.broker
            try:
                yield Connections(broker, ports.reporter)
            finally:
                try:
                    await broker.close()
                finally:
                    await store.close()

        return opened

    def new_worker(self, *, profile: Profile | None = None, **options: Any) -> Worker:
        """A worker that has not started; its events go to `worker_events`."""
        profile = replace(profile or Profile(name="w"), name="w")
        options.setdefault("delays", Reconnect(first_ms=20, most_ms=200).delay)
        options.setdefault("concurrency", 10)
        config = WorkerConfig(
            queue=self.queue,
            handlers=self.handlers,
            open_connections=self.connections(profile),
            profile=profile,
            clock=self.clock,
            metrics=self.metrics.queue(self.protocol.spec.name, self.queue),
            listener=self.worker_events.append,
            has_delays=Capability.DELAY in self.protocol.spec.capabilities,
            **options,
        )
        return Worker(config)

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Worker]:
        """A running worker, killed at the end of the block."""
        worker = self.new_worker(**options)
        await worker.start()
        try:
            yield worker
        finally:
            worker.kill()
            await worker.stop(0)

    def reported(self, kind: WorkerEventKind) -> list[WorkerEvent]:
        """Return the workers' events of one kind."""
        return [event for event in self.worker_events if event.kind is kind]

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric for this queue; 0 where it was never counted."""
        own = {"protocol": self.protocol.spec.name, "queue": self.queue}
        value = self.metrics.registry.get_sample_value(name, {**own, **labels})
        return 0.0 if value is None else value

    async def close(self) -> None:
        await super().close()
        await self.store.close()
