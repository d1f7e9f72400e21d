"""The bullmq protocol's Flows: trees of jobs, over any queues, in which parents wait for their children."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count, groupby
from typing import Any
from uuid import UUID, uuid4

from msgspec import Struct
from msgspec.structs import replace

from corral.core.job import Job
from corral.core.ports import Added, AddedFlow, Flow
from corral.errors import RedisResponseError, Refused
from corral.protocols.base import Binding
from corral.protocols.bullmq.broker import batches_of, decode_added
from corral.protocols.bullmq.codec import Envelope, JobRows, encode_node
from corral.protocols.bullmq.flows.children import ChildReads
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.keys import BullmqKeys
from corral.protocols.bullmq.scripts import check_mismatch, existing, refusal
from corral.protocols.wire import pack

DEPTH = 10
MOST_CHILDREN = 20
READ_ORDER = ("processed", "unprocessed", "failed", "ignored")


class _Node(Struct):
    """A job of a flow that is being added: its row, its parent, and the answer."""

    flow: Flow
    keys: BullmqKeys
    row: tuple[Envelope, bytes]
    parent: "_Node | None"
    answer: Added | Refused | None = None

    @property
    def id(self) -> str:
        """The id in its row; by deduplication another job may be returned in its place."""
        return str(self.row[0][0])

    @property
    def exists(self) -> bool:
        """Whether this very job was added, or existed under its own id."""
        return isinstance(self.answer, Added) and self.answer.id == self.id


class BullmqFlows(ChildReads):
    """Adds flows, and reads them.

    >>> await BullmqFlows(binding).add(Flow(parent, (Flow(child),)))  # doctest: +SKIP
    """

    # -- writes -----------------------------------------------------------------------------------------

    async def add(self, flow: Flow) -> Flow:
        """Add a flow at once or not at all; return it with the ids of its jobs.

        A job that exists already under its id is left as it is, and gets its parent where it has none;
        `ParentTaken` where it has another. A flow whose first job is deduplicated is not added: the id of
        the other job is returned, and no children.
        """
        [added] = await self.add_many([flow])
        return _with_ids(flow, added)

    async def add_many(self, flows: Sequence[Flow]) -> list[AddedFlow]:
        nodes = await self._submit(flows)
        _raise_refusal(nodes)
        return _trees(nodes)

    async def add_each(self, flows: Sequence[Flow]) -> list[AddedFlow]:
        """Add several flows in one step; a refusal leaves the other jobs alone."""
        return _trees(await self._submit(flows))

    async def _submit(self, flows: Sequence[Flow]) -> list[_Node]:
        nodes = list(self._nodes(flows))
        calls = [
            (keys, batch)
            for keys, group in groupby(nodes, key=lambda node: node.keys)
            for batch in batches_of(JobRows.of(node.row for node in group))
        ]
        rows = [(keys.fixed, (*batch.arguments(), "")) for keys, batch in calls]
        try:
            answers = await self._store.run_together(
                self._scripts["submit"], [*rows, *self._closing_rows(nodes)]
            )
        except RedisResponseError as error:
            check_mismatch(error, self._keys.queue)
            raise
        unanswered = iter(nodes)
        for (_, batch), answer in zip(calls, answers, strict=False):
            for added in decode_added(answer, batch.envelopes):
                next(unanswered).answer = added
        return nodes

    def _closing_rows(self, nodes: Sequence[_Node]) -> Iterator[tuple[Sequence[str], tuple[Any, ...]]]:
        """Yield a call for each queue with parents of children by a requested id, which may have ended."""
        parents: dict[BullmqKeys, list[str]] = {}
        for node in nodes:
            if node.parent is not None and node.flow.job.id:
                ids = parents.setdefault(node.parent.keys, [])
                if node.parent.id not in ids:
                    ids.append(node.parent.id)
        now = self._binding.clock()
        for keys, ids in parents.items():
            yield keys.fixed, (pack([]), pack(([], [])), 1, "", pack([now, *ids]))

    def _nodes(self, flows: Sequence[Flow]) -> Iterator[_Node]:
        """Yield the jobs level by level, parents before their children, as Node writes them."""
        known: dict[tuple[str, str], BullmqKeys] = {}
        ids = _ids()
        level: list[tuple[Flow, _Node | None]] = [(flow, None) for flow in flows]
        while level:
            following: list[tuple[Flow, _Node | None]] = []
            for flow, parent in level:
                queue = (flow.namespace or self._binding.namespace, flow.job.queue)
                keys = known.setdefault(queue, BullmqKeys(*queue))
                node = _Node(flow, keys, self._row(flow, parent, next(ids)), parent)
                yield node
                following += [(child, node) for child in flow.children]
            level = following

    def _row(self, flow: Flow, parent: _Node | None, new_id: str) -> tuple[Envelope, bytes]:
        job = flow.job
        options = job.options
        if parent is not None:
            reference = {"id": parent.id, "queue": parent.keys.prefix[:-1]}
            options = replace(options, extra={**options.extra, "parent": reference})
        created_at = job.created_at or self._binding.clock()
        named = replace(job, id=job.id or new_id, options=options, created_at=created_at)
        return encode_node(named, job.id, bool(flow.children), flow.first)

    async def remove_unprocessed(self, job_id: str) -> None:
        await self._run("remove_children", job_id)

    async def remove_parent(self, job_id: str, parent_key: str) -> bool:
        """Let the parent wait for this job no more; return whether it did.

        >>> await flows.remove_parent("7", "bull:mail:parent")  # doctest: +SKIP
        """
        code = existing(await self._run("remove_parent", job_id, parent_key), job_id)
        if code < 0:
            raise refusal(code, job_id, parent_key)
        return code == 0

    # -- reads ------------------------------------------------------------------------------------------

    async def parents(self, start: int = 0, count: int = 100) -> list[Job]:
        inspector = BullmqInspector(self._binding)
        ids = await inspector.ranges(["waiting-children"], start, start + count - 1)
        return [job for job in await inspector.jobs_by_id(ids) if job is not None]

    async def tree(self, job_id: str, depth: int = DEPTH, most_children: int = MOST_CHILDREN) -> Flow | None:
        """Return a job with its children and theirs, `depth` levels in all, about `most_children` of each
        kind for each parent; None where it does not exist. Children that do not exist are left out."""
        namespace = self._binding.namespace
        job = await BullmqInspector(self._binding).job(job_id)
        if job is None:
            return None
        children: list[Flow | None] = []
        if depth > 1:
            pages = await asyncio.gather(
                *(self.children_page(job_id, kind, count=most_children) for kind in READ_ORDER)
            )
            keys = [key for page in pages for key in page.children]
            children = await asyncio.gather(*(self._subtree(key, depth - 1, most_children) for key in keys))
        return Flow(job, tuple(child for child in children if child is not None), namespace)

    async def _subtree(self, key: str, depth: int, most_children: int) -> Flow | None:
        prefix, _, job_id = key.rpartition(":")
        namespace, _, queue = prefix.rpartition(":")
        binding = Binding(self._store, queue, namespace, self._binding.clock)
        return await BullmqFlows(binding).tree(job_id, depth, most_children)


def _ids() -> Iterator[str]:
    """Yield UUIDs that differ in their last digits alone: by them, children keep the order of their flow."""
    family = uuid4().int >> 32 << 32
    return (str(UUID(int=family + number)) for number in count())


def _raise_refusal(nodes: Sequence[_Node]) -> None:
    """Raise why a job was not added, unless its parent was left out before it by deduplication."""
    for node in nodes:
        if isinstance(node.answer, Refused) and (node.parent is None or node.parent.exists):
            if node.parent is not None:
                node.answer.add_note("The other jobs of the flow were added.")
            raise node.answer


def _trees(nodes: Sequence[_Node]) -> list[AddedFlow]:
    """Return what became of each flow, built from its leaves up."""
    children: dict[int, list[AddedFlow]] = {}
    roots: list[AddedFlow] = []
    for node in reversed(nodes):
        assert node.answer is not None
        tree = AddedFlow(node.answer, node.row[0][3], tuple(reversed(children.get(id(node), []))))
        if node.parent is None:
            roots.append(tree)
        else:
            children.setdefault(id(node.parent), []).append(tree)
    return roots[::-1]


def _with_ids(flow: Flow, added: AddedFlow) -> Flow:
    """Return the flow as it was added, without the jobs that were not."""
    assert isinstance(added.answer, Added)
    pairs = zip(flow.children, added.children, strict=True)
    children = tuple(_with_ids(child, tree) for child, tree in pairs if isinstance(tree.answer, Added))
    return Flow(replace(flow.job, id=added.answer.id, created_at=added.created_at), children, flow.namespace)
