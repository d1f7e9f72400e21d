"""Several queues twice, Node's and ours: flows go from one to another, and all are compared at each step."""

import json
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

from corral.core.job import Claim, Job
from corral.core.ports import Added, Flow
from corral.errors import CorralError, ParentMissing, ParentTaken, Refused, SettleError
from corral.protocols.bullmq.flows import BullmqFlows
from corral.store.client import Store
from tests.protocols.bullmq.node_options import options_of
from tests.protocols.bullmq.paired_queue import BEGIN, CODES, PairedQueue
from tests.support.compare import differences
from tests.support.keyspace import Entry, Keyspace, look
from tests.support.node import Node, NodeError
from tests.support.servers import Server

HANDLES = ("node-queue", "node-worker")
POLICIES: list[dict[str, bool]] = [
    {},
    {"failParentOnFailure": True},
    {"continueParentOnFailure": True},
    {"ignoreDependencyOnFailure": True},
    {"removeDependencyOnFailure": True},
]
REFUSED: dict[type[Refused], int] = {ParentMissing: -5, ParentTaken: -7}


def policy_name(policy: Any) -> str:
    return next(iter(policy), "no policy")


def job(job_id: str, queue: str = "mail", *children: dict[str, Any], **opts: Any) -> dict[str, Any]:
    """A job of a flow as a Node program writes it."""
    found: dict[str, Any] = {"name": "work", "queueName": queue, "data": {"is": job_id}}
    found["opts"] = {"jobId": job_id, **opts}
    return {**found, "children": list(children)} if children else found


class _Named:
    """Node, for one queue of several: its handles get the queue's name."""

    def __init__(self, node: Node, queue: str) -> None:
        self._node, self._queue = node, queue
        self.generation = node.generation

    async def __call__(self, op: str, **args: Any) -> Any:
        for name, value in args.items():
            if value in HANDLES:
                args[name] = f"{value}-{self._queue}"
        return await self._node(op, **args)


class PairedFlowQueue(PairedQueue):
    """One of several queues."""

    def __init__(self, paired_queues: "PairedQueues", node: Node, server: Server, store: Store, queue: str,
                 **options: Any) -> None:  # fmt: skip
        self.paired_queues = paired_queues
        self._seen_tokens: dict[str, str] = {}
        self._seen_claims: dict[str, Claim] = {}
        super().__init__(_Named(node, queue), server, store, queue, **options)  # type: ignore[arg-type]

    @property
    def now(self) -> int:
        return self.paired_queues.now

    @now.setter
    def now(self, moment: int) -> None:
        self.paired_queues.now = moment

    async def close(self) -> None:
        await self.broker.close()
        self._client.close()

    def different(self) -> list[str]:
        return self.paired_queues.different()

    def own_differences(self) -> list[str]:
        """What is not the same in this queue, with the two prefixes called alike."""
        theirs, ours = look(self._client, f"node:{self.queue}:", f"corral:{self.queue}:")
        # a job that could not be settled is still held under what it was claimed with
        self._seen_tokens |= self._tokens
        self._seen_claims |= self._claims
        receipts = {job_id: str(claim.receipt) for job_id, claim in self._seen_claims.items()}
        found = differences(
            _neutral(theirs, b"node:"), _neutral(ours, b"corral:"), receipts=(self._seen_tokens, receipts)
        )
        return [f"{self.queue}: {each}" for each in found]

    async def same(self, what: str) -> None:
        await self._check_same(what)

    def hold_again(self, job_id: str) -> None:
        """Keep the claims that were refused."""
        self._tokens[job_id], self._claims[job_id] = self._seen_tokens[job_id], self._seen_claims[job_id]

    def hold_again_if_locked(self, job_id: str) -> None:
        """The same, where our lock says that it was refused."""
        lock, claim = self.entry(f"{job_id}:lock"), self._seen_claims.get(job_id)
        if lock is not None and claim is not None and lock.decode() == claim.receipt:
            self.hold_again(job_id)

    async def await_children(self, job_id: str, child: tuple[str, str] | None = None) -> bool | int:
        """Set a claimed job aside until its children have ended; False, or the code, where it is not."""
        opts = {"child": {"queue": f"node:{child[0]}", "id": child[1]}} if child else {}
        theirs: bool | int
        ours: bool | int
        try:
            args = [self._tokens[job_id], opts]
            theirs = await self._node("claimed", worker="node-worker", id=job_id,
                                      method="moveToWaitingChildren", args=args)  # fmt: skip
        except NodeError as error:
            theirs = error.code
        try:
            key = f"corral:{child[0]}:{child[1]}" if child else ""
            ours = await self.broker.await_children(self._claims[job_id], key)
        except SettleError as error:
            ours = CODES[type(error)]
        assert ours is theirs or ours == theirs
        if ours is True:
            del self._tokens[job_id], self._claims[job_id]
        await self._check_same(f"{job_id} waits for children {child}")
        return ours

    async def operate(self, job_id: str, theirs: str, args: list[Any], ours: Awaitable[Any]) -> Any:
        """A method of Node's Job and ours; both must refuse, or neither."""
        try:
            answer = await self._node("job", queue="node-queue", id=job_id, method=theirs, args=args)
        except NodeError as error:
            answer = error
        try:
            own = await ours
        except CorralError as error:
            own = error
        assert isinstance(own, Exception) == isinstance(answer, Exception), (answer, own)
        await self._check_same(f"{theirs} {job_id}")
        return own


class PairedQueues:
    """Queues by their names, and flows across them."""

    def __init__(self, node: Node, server: Server, store: Store, *queues: str, **options: Any) -> None:
        self.now = BEGIN
        self._node, self._server = node, server
        self._queues = {name: PairedFlowQueue(self, node, server, store, name, **options) for name in queues}
        binding = next(iter(self._queues.values())).binding
        self.flows = BullmqFlows(replace(binding, queue="mail"))

    async def open(self) -> "PairedQueues":
        for queue in self._queues.values():
            await queue.open()
        await self._node("openFlows", handle="flows", prefix="node", url=self._server.url)
        return self

    async def close(self) -> None:
        for queue in self._queues.values():
            await queue.close()
        await self._node("closeAll")

    def __getitem__(self, name: str) -> PairedFlowQueue:
        return self._queues[name]

    def different(self) -> list[str]:
        return [each for queue in self._queues.values() for each in queue.own_differences()]

    # -- flows ----------------------------------------------------------------------------------------------

    async def add_flow(self, flow: dict[str, Any]) -> None:
        """Add a flow as a Node program would write it; each job of it must have its own id."""
        await self.add_flows([flow])

    async def add_flows(self, many: Sequence[dict[str, Any]]) -> None:
        if len(many) == 1:
            await self.add_flow_to_node(many[0])
            await self.add_own_flow(many[0])
        else:
            await self._node("addFlows", flows="flows", many=many)
            await self.flows.add_each([self._flow(flow) for flow in many])
        await self._settle(f"flows {many}")

    async def add_flow_to_node(self, flow: dict[str, Any]) -> None:
        await self._node("addFlow", flows="flows", flow=flow)

    async def add_own_flow(self, flow: dict[str, Any]) -> None:
        await self.flows.add(self._flow(flow))

    async def try_flow(self, flow: dict[str, Any]) -> None:
        """Add a flow, of which jobs may be refused for the parents they have."""
        try:
            await self.add_flow(flow)
        except (ParentMissing, ParentTaken):
            await self._settle(f"flow {flow}")

    def _flow(self, flow: dict[str, Any]) -> Flow:
        opts = flow.get("opts", {})
        job = Job(name=flow["name"], data=flow.get("data", {}), queue=flow["queueName"],
                  id=opts.get("jobId", ""), options=options_of(_ours(opts)), created_at=self.now)  # fmt: skip
        return Flow(job, tuple(map(self._flow, flow.get("children", []))))

    async def add_child(self, queue: str, parent: tuple[str, str], **opts: Any) -> str | int:
        """Add a job with a parent in (queue, id); its id, or the code of what both sides refuse."""
        opts["parent"] = {"id": parent[1], "queue": f"node:{parent[0]}"}
        pair = self[queue]
        theirs: Any
        try:
            theirs = (await pair._node("add", queue="node-queue", name="child", data={}, opts=opts))["id"]
        except NodeError as error:
            theirs = error.code
        [ours] = await pair.broker.submit([pair._job("child", {}, _ours(opts))], together=False)
        answer = ours.id if isinstance(ours, Added) else REFUSED[type(ours)]
        assert answer == theirs
        await self._settle(f"child {opts} of {parent}")
        return answer

    async def _settle(self, what: str) -> None:
        await next(iter(self._queues.values())).same(what)


def _ours(opts: dict[str, Any]) -> dict[str, Any]:
    """The options with our own prefix instead of Node's."""
    translated: dict[str, Any] = json.loads(json.dumps(opts).replace('"node:', '"corral:'))
    return translated


def _neutral(space: Keyspace, prefix: bytes) -> Keyspace:
    """The keyspace with its own prefix called `bull:` wherever a value names it."""
    return {
        name: entry if name.endswith(":lock") else Entry(entry.kind, _renamed(entry.value, prefix), entry.ttl)
        for name, entry in space.items()
    }


def _renamed(value: Any, prefix: bytes) -> Any:
    match value:
        case bytes():
            return value.replace(prefix, b"bull:")
        case str():
            return value.replace(prefix.decode(), "bull:")
        case dict():
            renamed = {_renamed(name, prefix): _renamed(given, prefix) for name, given in value.items()}
            if "parent" in renamed:
                renamed["parent"] = json.dumps(json.loads(renamed["parent"]), sort_keys=True).encode()
            return renamed
        case list():
            return [_renamed(each, prefix) for each in value]
        case tuple():
            return tuple(_renamed(each, prefix) for each in value)
    return value
