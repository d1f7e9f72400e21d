"""One protocol on one server: jobs in, workers here or in processes, and proof that each job ended once."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import redis

from corral import Corral, JobContext, JobState, RedisError
from corral.store.client import Reconnect
from corral.worker import WorkerEvent, WorkerEventKind
from corral.worker.worker import Worker
from tests.support import job_records
from tests.support.job_records import JobRecord
from tests.support.worker_process_main import JOB

Handler = Callable[[JobContext], Awaitable[Any]]

TROUBLE = (WorkerEventKind.LOST, WorkerEventKind.UNKNOWN)
OPTIONS: dict[str, dict[str, Any]] = {"bridgemq": {"attempts": 1_000_000, "backoff": "custom"}}
"""Where being found abandoned spends an attempt, jobs have as many as it takes."""


class Served(Protocol):
    """Whatever serves."""

    url: str

    def connect(self) -> redis.Redis: ...


class FaultHarness:
    """Submits numbered jobs, watches them end, and reads the protocol's own records at the end."""

    def __init__(self, server: Served, protocol: str) -> None:
        self.server = server
        self.protocol = protocol
        self.app = Corral(server.url, protocol=protocol)
        self.queue = self.app.queue()
        self.numbers: dict[str, int] = {}
        """Job id -> the number its result must be."""
        self.runs: Counter[int] = Counter()
        """How often a handler in this process has begun the job of that number."""
        self.events: list[WorkerEvent] = []
        """The events of the workers in this process."""
        with server.connect() as client:
            job_records.keep_every_event(client, protocol)

    async def close(self) -> None:
        await self.app.close()

    # -- jobs in ----------------------------------------------------------------------------------------

    async def add(self, count: int, options: dict[str, Any] | None = None, **data: Any) -> list[str]:
        """Add so many jobs that are numbered on from the last."""
        first = len(self.numbers)
        numbers = range(first, first + count)
        ids = await self.queue.add_many(
            ((JOB, {"number": number, **data}) for number in numbers),
            **{**OPTIONS.get(self.protocol, {}), **(options or {})},
        )
        self.numbers.update(zip(ids, numbers, strict=True))
        assert len(self.numbers) == first + count, "two jobs have one id"
        return ids

    async def left(self) -> int:
        """How many jobs have not ended."""
        counts = await self.queue.counts()
        return sum(counts.get(state, 0) for state in (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE))

    async def falls_to(self, left: int, seconds: float) -> bool:
        """Are only so many jobs left, within that time?"""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(RedisError):
                if await self.left() <= left:
                    return True
            await asyncio.sleep(0.02)
        return False

    # -- workers in this process ------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(
        self, handler: Handler, url: str | None = None, *, concurrency: int = 10, **options: Any
    ) -> AsyncIterator[Worker]:
        """A worker at work in this process, on this server or through `url`; gone at the end of the block."""
        app = Corral(url or self.server.url, protocol=self.protocol, backoff=lambda *_: 0)

        async def counted(job: JobContext) -> Any:
            self.runs[job.data["number"]] += 1
            return await handler(job)

        app.job(JOB)(counted)
        [worker] = app.workers(
            concurrency=concurrency,
            listener=self.events.append,
            reconnect=Reconnect(first_ms=5, most_ms=100),
            **options,
        )
        await worker.start()
        try:
            yield worker
        finally:
            worker.kill()
            await worker.stop(0)

    def reported(self, *kinds: WorkerEventKind) -> list[WorkerEvent]:
        return [event for event in self.events if event.kind in kinds]

    # -- the proof --------------------------------------------------------------------------------------

    def records(self) -> dict[str, JobRecord]:
        """What the protocol wrote down about every job."""
        with self.server.connect() as client:
            return job_records.read(client, self.protocol, self.numbers)

    def assert_each_completed_once(self) -> dict[str, JobRecord]:
        """None lost, no two accepted completions, each start with one ending, each result its own job's."""
        records = self.records()
        assert records.keys() == self.numbers.keys(), "the events speak of jobs that were never added"
        wrong = {job_id: record for job_id, record in records.items() if not self._is_whole(job_id, record)}
        assert not wrong, f"{len(wrong)} of {len(records)} jobs: {dict(list(wrong.items())[:5])}"
        with self.server.connect() as client:
            assert job_records.leftovers(client, self.protocol) == {}
        return records

    def _is_whole(self, job_id: str, record: JobRecord) -> bool:
        return (
            record.state == "completed"
            and (record.completions, record.deaths) == (1, 0)
            and record.starts == record.endings
            and record.result == self.numbers[job_id]
        )

    def assert_attempts(self, expected: Callable[[int], int] = lambda number: 1) -> None:
        """Each job ran, and spent, exactly the attempts it should; none was found abandoned or in doubt."""
        for job_id, record in self.assert_each_completed_once().items():
            number = self.numbers[job_id]
            ran = (self.runs[number], record.starts, record.attempts, record.recoveries)
            assert ran == (expected(number),) * 3 + (0,), (job_id, ran, record)
        assert self.reported(*TROUBLE) == []
