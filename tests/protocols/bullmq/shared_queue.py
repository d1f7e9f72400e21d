"""One queue that Node programs and Corral programs share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from corral import Corral
from corral.core.job import Job, JobState
from corral.worker.worker import Worker
from tests.support.keyspace import Keyspace, look
from tests.support.node import Node
from tests.support.polling import TIMEOUT_S, until
from tests.support.servers import Server

QUEUE = "mail"


class SharedQueue:
    """The queue `bull:mail` on one server: a Corral app, and Node objects by their handles."""

    def __init__(self, node: Node, server: Server) -> None:
        self.node, self.server = node, server
        self.app = Corral(server.url)
        self.queue = self.app.queue(QUEUE)
        self.inspector = self.queue.ports.inspector
        self.operator = self.queue.ports.operator
        self._where = {"name": QUEUE, "prefix": "bull", "url": server.url}

    async def open(self) -> "SharedQueue":
        await self.node("openQueue", handle="queue", **self._where, opts={"skipMetasUpdate": False})
        await self.node("settled", handle="queue", field="version")
        return self

    async def close(self) -> None:
        await self.app.close()

    # -- Node's side ----------------------------------------------------------------------------------------

    async def node_adds(self, name: str = "send", data: Any = None, **opts: Any) -> str:
        job = await self.node("add", queue="queue", name=name, data={} if data is None else data, opts=opts)
        return str(job["id"])

    @asynccontextmanager
    async def node_works(
        self, script: dict[str, Any] | None = None, handle: str = "worker", **opts: Any
    ) -> AsyncIterator[str]:
        """A real BullMQ worker for a while; the script says what it does with a job."""
        await self.node("runWorker", handle=handle, **self._where, script=script or {}, opts=opts)
        yield handle
        await self.node("close", handle=handle)

    @asynccontextmanager
    async def node_listens(self) -> AsyncIterator[Callable[[], Awaitable[list[Any]]]]:
        """Real QueueEvents for a while; the yielded function returns [name, fields] of every event."""
        # from the beginning: nothing of what happens before the first read is missed
        await self.node("openEvents", handle="events", **self._where, opts={"lastEventId": "0-0"})

        async def received() -> list[Any]:
            return [[name, fields] for name, fields, _ in await self.node("heard", handle="events")]

        yield received
        await self.node("close", handle="events")

    async def node_queue(self, method: str, *args: Any) -> Any:
        return await self.node("queue", handle="queue", method=method, args=list(args))

    async def node_job(self, job_id: str) -> dict[str, Any]:
        """A job as Node's Job.fromId shows it."""
        found: dict[str, Any] | None = await self.node("fromId", queue="queue", id=job_id)
        assert found is not None, f"Node finds no job {job_id}"
        return found

    async def node_state(self, job_id: str) -> str:
        return str(await self.node("job", queue="queue", id=job_id, method="getState"))

    # -- our side -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def corral_works(
        self, concurrency: int = 1, name: str = "anna", **profile: Any
    ) -> AsyncIterator[Worker]:
        """A real Corral worker for a while, with the app's handlers; a crash of it fails the test."""
        [worker] = self.app.workers(concurrency=concurrency, name=name, **profile)
        await worker.start()
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            await worker.stop(grace=5)
            await running

    async def job(self, job_id: str) -> Job:
        found = await self.inspector.job(job_id)
        assert found is not None, f"we find no job {job_id}"
        return found

    # -- both -----------------------------------------------------------------------------------------------

    async def ended(self, count: int, seconds: float = TIMEOUT_S) -> None:
        """Return when so many jobs have ended, well or badly."""

        async def reached() -> bool:
            counts = await self.inspector.counts()
            return counts[JobState.COMPLETED] + counts[JobState.DEAD] >= count

        await until(reached, f"{count} jobs have ended", seconds)

    async def is_in(self, job_id: str, state: JobState, seconds: float = TIMEOUT_S) -> Job:
        """The job, once it is in that state."""

        async def there() -> Job | None:
            found = await self.inspector.job(job_id)
            return found if found is not None and found.state is state else None

        job: Job = await until(there, f"job {job_id} is {state}", seconds)
        return job

    async def idle(self, workers: int = 1) -> None:
        """Return when so many workers wait for the marker, having nothing to do."""

        async def waiting() -> bool:
            with self.server.connect() as client:
                busy_with = [each["cmd"] for each in client.client_list()]
            return busy_with.count("bzpopmin") == workers

        await until(waiting, f"{workers} workers are idle")

    def keyspace(self) -> Keyspace:
        with self.server.connect() as client:
            return look(client, f"bull:{QUEUE}:")[0]
