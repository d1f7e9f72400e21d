"""Node's side of a queue that the drop-in works on."""

from typing import Any

from tests.dropin.factory import QUEUE
from tests.support.node import Node


class NodeQueue:
    """Node's Queue, by its own methods: `await node_queue("getJobCounts", "waiting")`."""

    def __init__(self, node: Node, url: str) -> None:
        self.node = node
        self.where = {"name": QUEUE, "prefix": "bull", "url": url}

    async def open(self) -> "NodeQueue":
        await self.node("openQueue", handle="queue", **self.where)
        return self

    async def __call__(self, method: str, *args: Any) -> Any:
        return await self.node("queue", handle="queue", method=method, args=list(args))

    async def add(self, name: str = "send", data: Any = None, **opts: Any) -> str:
        job = await self.node("add", queue="queue", name=name, data={} if data is None else data, opts=opts)
        return str(job["id"])

    async def read(self, job_id: Any) -> dict[str, Any]:
        """Return the job as Node reads it."""
        job: dict[str, Any] = await self.node("fromId", queue="queue", id=str(job_id))
        return job

    async def job(self, job_id: Any, method: str, *args: Any) -> Any:
        return await self.node("job", queue="queue", id=str(job_id), method=method, args=list(args))

    async def works(self, script: dict[str, Any] | None = None, **opts: Any) -> None:
        """Start a Node worker."""
        await self.node("runWorker", handle="worker", **self.where, script=script or {}, opts=opts)
