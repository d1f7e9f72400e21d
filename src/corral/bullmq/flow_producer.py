"""FlowProducer: trees of jobs, in one queue or many, in which parents wait for their children."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from corral.bullmq.connection import Connection
from corral.bullmq.event_emitter import EventEmitter
from corral.bullmq.job import Job
from corral.bullmq.options import encode
from corral.bullmq.queue import refused
from corral.bullmq.queue_base import DEFAULT_PREFIX, QueueBase
from corral.bullmq.types import ConnectionOptions
from corral.core import job as core
from corral.errors import Refused
from corral.protocols.bullmq.flows import BullmqFlows, Flow
from corral.worker.worker import wall_clock

JobNode = dict[str, Any]
"""`job`, and where it has some `children`, which are nodes too."""
_OPTIONS = ("prefix", "connection", "skipVersionCheck")


class FlowProducer(EventEmitter):
    """Adds flows, each at once or not at all: `{"name", "queueName", "data", "opts", "prefix", "children"}`.

    >>> flows = FlowProducer({"connection": {"host": "127.0.0.1"}})                  # doctest: +SKIP
    >>> tree = await flows.add({"name": "album", "queueName": "albums", "children": [
    ...     {"name": "photo", "queueName": "photos", "data": {"number": 1}}]})       # doctest: +SKIP
    """

    def __init__(
        self, redisOpts: ConnectionOptions | None = None, opts: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        if opts is None and isinstance(redisOpts, Mapping) and any(name in redisOpts for name in _OPTIONS):
            opts, redisOpts = redisOpts, None
        self.opts: dict[str, Any] = dict(opts or {})
        if redisOpts is not None:
            self.opts["connection"] = redisOpts
        self.prefix: str = self.opts.get("prefix") or DEFAULT_PREFIX
        self.connection = Connection(self.opts.get("connection"))
        self.closing = False

    # -- writing --------------------------------------------------------------------------------------------

    async def add(self, flow: Mapping[str, Any], opts: Mapping[str, Any] | None = None) -> JobNode | None:
        """The flow as it was added; `opts` may hold `queuesOptions` with `defaultJobOptions` by queue name.

        None once closed.
        """
        if self.closing:
            return None
        defaults = (opts or {}).get("queuesOptions") or {}
        return (await self._add([flow], defaults))[0]

    async def addBulk(self, flows: Sequence[Mapping[str, Any]]) -> list[JobNode] | None:
        """The flows as they were added, in one step; None once closed."""
        if self.closing:
            return None
        return await self._add(flows, {})

    async def _add(self, flows: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]) -> list[JobNode]:
        nodes = [self._node(flow, defaults) for flow in flows]
        try:
            added = await self._flows().add_many([_flow(node) for node in nodes])
        except Refused as error:
            raise refused(error, nodes[0]["job"]) from error
        for node, flow in zip(nodes, added, strict=True):
            _name(node, flow)
        return nodes

    def _node(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> JobNode:
        queue = self._queue(given.get("queueName", ""), given.get("prefix"))
        options = (defaults.get(queue.name) or {}).get("defaultJobOptions") or {}
        job = Job(queue, given.get("name", ""), given.get("data"), {**options, **(given.get("opts") or {})})
        node: JobNode = {"job": job}
        if given.get("children"):
            node["children"] = [self._node(child, defaults) for child in given["children"]]
        return node

    # -- reading --------------------------------------------------------------------------------------------

    async def getFlow(self, opts: Mapping[str, Any]) -> JobNode | None:
        """The flow below the job with `id` in `queueName` (`prefix`), `depth` levels (10) of about
        `maxChildren` (20) of each kind; None where there is no such job."""
        if self.closing:
            return None
        prefix = opts.get("prefix") or self.prefix
        found = await self._flows().get(
            opts["queueName"], opts["id"], opts.get("depth") or 10, opts.get("maxChildren") or 20, prefix
        )
        return None if found is None else await self._read(found)

    async def _read(self, flow: Flow) -> JobNode | None:
        queue = self._queue(flow.job.queue, flow.namespace)
        job = await Job.fromId(queue, flow.job.id)
        if job is None:
            return None
        node: JobNode = {"job": job}
        children = [await self._read(child) for child in flow.children]
        if children:
            node["children"] = [child for child in children if child is not None]
        return node

    # -- places ---------------------------------------------------------------------------------------------

    def _queue(self, name: str, prefix: str | None) -> QueueBase:
        return QueueBase(name, {"prefix": prefix or self.prefix}, self.connection)

    def _flows(self) -> BullmqFlows:
        return BullmqFlows(self.connection.store(), self.prefix, wall_clock)

    async def close(self) -> None:
        """Let go of the connections."""
        self.closing = True
        await self.connection.close()

    async def disconnect(self) -> None:
        """The same: nothing is kept open here that could be cut off more harshly."""
        await self.close()


def _flow(node: JobNode) -> Flow:
    job: Job = node["job"]
    made, data = encode(job.id or "", job.name, job.data, job.opts, job.timestamp, job.queue.name)
    encoded: core.Job = replace(made, data=orjson.Fragment(data))
    return Flow(encoded, tuple(_flow(child) for child in node.get("children", ())), job.queue.prefix)


def _name(node: JobNode, added: Flow) -> None:
    """Tell each job of the tree its id, and whose child it is."""
    job: Job = node["job"]
    job.id = added.job.id
    children = node.get("children", ())
    # a flow that another stands for has none of its children added
    for child, flow in zip(children, added.children, strict=False):
        made: Job = child["job"]
        made.parent = {"id": job.id, "queueKey": job.queueQualifiedName}
        made.parentKey = f"{job.queueQualifiedName}:{job.id}"
        _name(child, flow)
