"""FlowProducer: trees of jobs in one or more queues, in which parents wait for their children."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from corral.bullmq.connection import RedisConnection
from corral.bullmq.error_code import translate
from corral.bullmq.event_emitter import EventEmitter
from corral.bullmq.job import Job
from corral.bullmq.queue_base import DEFAULT_PREFIX, QueueBase
from corral.bullmq.types import ConnectionOptions
from corral.core.ports import AddedFlow, Flow
from corral.errors import Refused
from corral.protocols import given_generation
from corral.protocols.base import Binding
from corral.protocols.bullmq.flows import BullmqFlows
from corral.protocols.bullmq.keys import NAME

JobNode = dict[str, Any]
"""`job`, and if it has any `children`, which are nodes too."""
_OPTIONS = ("prefix", "connection", "skipVersionCheck")


class FlowProducer(EventEmitter):
    """Adds flows, each as a whole: `{"name", "queueName", "data", "opts", "prefix", "children"}`.

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
        self.generation = given_generation(NAME, self.opts.get("bullmq"))
        self.connection = RedisConnection(self.opts.get("connection"))
        self.closing = False

    async def add(self, flow: Mapping[str, Any], opts: Mapping[str, Any] | None = None) -> JobNode | None:
        """Add a flow and return its tree of jobs; None once closed.

        `opts` may have `queuesOptions`: `defaultJobOptions` by the name of a queue.
        """
        if self.closing:
            return None
        await self.connection.check_clock()
        node = self._node(flow, (opts or {}).get("queuesOptions") or {})
        parent = node["job"].parentKey or ""
        [added] = await self._add([node])
        if isinstance(added.answer, Refused):
            raise translate(added.answer, "addJob", parent=parent)
        return node

    async def addBulk(self, flows: Sequence[Mapping[str, Any]]) -> list[JobNode] | None:
        """Add many flows in one step and return their trees of jobs; None once closed.

        A job that is refused, because its parent does not exist, has the number of the error as its id.
        """
        if self.closing:
            return None
        await self.connection.check_clock()
        nodes = [self._node(flow, {}) for flow in flows]
        await self._add(nodes)
        return nodes

    async def _add(self, nodes: Sequence[JobNode]) -> list[AddedFlow]:
        """Add the trees of jobs, and set their ids."""
        trees = await self._flows().add_each([_flow(node) for node in nodes])
        for node, added in zip(nodes, trees, strict=True):
            _set_ids(node, added)
        return trees

    def _node(self, flow: Mapping[str, Any], queues_options: Mapping[str, Any]) -> JobNode:
        queue = self._queue(flow.get("queueName", ""), flow.get("prefix"))
        defaults = (queues_options.get(queue.name) or {}).get("defaultJobOptions") or {}
        opts = {**defaults, **(flow.get("opts") or {})}
        node: JobNode = {"job": Job(queue, flow.get("name", ""), flow.get("data", {}), opts)}
        if flow.get("children"):
            node["children"] = [self._node(child, queues_options) for child in flow["children"]]
        return node

    async def getFlow(self, opts: Mapping[str, Any]) -> JobNode | None:
        """Return the tree below the job with `id` in `queueName` (`prefix`), `depth` levels (10) of about
        `maxChildren` (20) of each kind; None if there is no such job."""
        if self.closing:
            return None
        flows = self._flows(opts["queueName"], opts.get("prefix"))
        tree = await flows.tree(opts["id"], opts.get("depth") or 10, opts.get("maxChildren") or 20)
        return None if tree is None else await self._read(tree)

    async def _read(self, flow: Flow) -> JobNode | None:
        job = await Job.fromId(self._queue(flow.job.queue, flow.namespace), flow.job.id)
        if job is None:
            return None
        children = [await self._read(child) for child in flow.children]
        if not children:
            return {"job": job}
        return {"job": job, "children": [child for child in children if child is not None]}

    def _queue(self, name: str, prefix: str | None) -> QueueBase:
        return QueueBase(name, {"prefix": prefix or self.prefix, "bullmq": self.generation}, self.connection)

    def _flows(self, queue: str = "", prefix: str | None = None) -> BullmqFlows:
        connection = self.connection
        where = connection.store, queue, prefix or self.prefix
        return BullmqFlows(Binding(*where, connection.clock, generation=self.generation))

    async def close(self) -> None:
        """Close the connections."""
        self.closing = True
        await self.connection.close()

    async def disconnect(self) -> None:
        """Another name of `close`."""
        await self.close()


def _flow(node: JobNode) -> Flow:
    job: Job = node["job"]
    core_job, data = job.encode()
    children = tuple(_flow(child) for child in node.get("children", ()))
    return Flow(replace(core_job, data=orjson.Fragment(data)), children, job.queue.prefix)


def _set_ids(node: JobNode, added: AddedFlow) -> None:
    """Set the ids and parents of a tree's jobs."""
    job: Job = node["job"]
    job.set_answer(added.answer)
    for child, tree in zip(node.get("children", ()), added.children, strict=True):
        child_job: Job = child["job"]
        child_job.opts["parent"] = {"id": job.id, "queue": job.queueQualifiedName}
        child_job.parent = {"id": job.id, "queueKey": job.queueQualifiedName}
        child_job.parentKey = f"{job.queueQualifiedName}:{job.id}"
        _set_ids(child, tree)
