"""Flows: trees of jobs, in one queue or many, in which parents wait for their children."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from corral.core.ports import Added, Flow
from corral.errors import Refused
from corral.protocols.base import Binding
from corral.protocols.bullmq.bound import SCRIPTS
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.keys import Keys
from corral.protocols.bullmq.operator import BullmqOperator
from corral.protocols.bullmq.submitting import Row, Rows, batches, decode_added, encode_node, submit_args

DEPTH = 10
MOST_CHILDREN = 20


class _Node(Struct):
    """A flow on its way: its row, whose child it is, and what came of it."""

    flow: Flow
    keys: Keys
    row: Row
    parent: "_Node | None"
    answer: Added | Refused | None = None

    @property
    def id(self) -> str:
        """What its row calls it; another job may stand for it."""
        return str(self.row[0][0])

    @property
    def is_there(self) -> bool:
        """Was this very job added, or found under its own id?"""
        return isinstance(self.answer, Added) and self.answer.id == self.id


class BullmqFlows:
    """Adds flows, and reads them.

    >>> await BullmqFlows(binding).add(Flow(parent, (Flow(child),)))  # doctest: +SKIP
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._namespace = binding.namespace
        self._clock = binding.clock

    # -- writing --------------------------------------------------------------------------------------------

    async def add(self, flow: Flow) -> Flow:
        """The flow with the ids of its jobs. All of them are there at once, or none.

        A job that was there already under its id is left as it is, and gets its parent where it has none;
        `ParentTaken` where it has another. A flow whose first job another stands for (deduplication) is not
        added: that other's id is returned, and no children.
        """
        return (await self.add_many([flow]))[0]

    async def add_many(self, flows: Sequence[Flow]) -> list[Flow]:
        """The same for several flows, in one step."""
        nodes = list(self._nodes(flows))
        runs = groupby(nodes, key=lambda node: node.keys)
        calls = [(keys, batch) for keys, run in runs for batch in batches(Rows.of(node.row for node in run))]
        answers = await self._store.run_together(
            SCRIPTS["submit"], [(keys.fixed, (*submit_args(batch), "")) for keys, batch in calls]
        )
        left = iter(nodes)
        for (_, batch), answer in zip(calls, answers, strict=True):
            for added in decode_added(answer, batch.envelopes):
                next(left).answer = added
        _raise_refused(nodes)
        return _trees(nodes)

    def _nodes(self, flows: Sequence[Flow]) -> Iterator[_Node]:
        """Level by level, parents before their children, as Node writes them."""
        known: dict[tuple[str, str], Keys] = {}
        level: list[tuple[Flow, _Node | None]] = [(flow, None) for flow in flows]
        while level:
            following: list[tuple[Flow, _Node | None]] = []
            for flow, parent in level:
                place = (flow.namespace or self._namespace, flow.job.queue)
                keys = known.setdefault(place, Keys(*place))
                node = _Node(flow, keys, self._row(flow, parent), parent)
                yield node
                following += [(child, node) for child in flow.children]
            level = following

    def _row(self, flow: Flow, parent: _Node | None) -> Row:
        job = flow.job
        options = job.options
        if parent is not None:
            connection = {"id": parent.id, "queue": parent.keys.prefix[:-1]}
            options = replace(options, extra={**options.extra, "parent": connection})
        created = job.created_at or self._clock()
        named = replace(job, id=job.id or str(uuid4()), options=options, created_at=created)
        return encode_node(named, job.id, bool(flow.children))

    # -- reading --------------------------------------------------------------------------------------------

    async def tree(self, job_id: str, depth: int = DEPTH, most_children: int = MOST_CHILDREN) -> Flow | None:
        """Return a job with its children and theirs, `depth` levels in all, about `most_children` of each
        kind for each parent; None where it is gone. Children that are gone are left out."""
        return await self._tree(self._binding.queue, job_id, depth, most_children, self._namespace)

    async def remove_unprocessed(self, job_id: str) -> None:
        await BullmqOperator(self._binding).remove_unprocessed_children(job_id)

    async def _tree(
        self, queue: str, job_id: str, depth: int, most_children: int, namespace: str
    ) -> Flow | None:
        inspector = BullmqInspector(Binding(self._store, queue, namespace, self._clock))
        job = await inspector.job(job_id)
        if job is None:
            return None
        found: list[Flow | None] = []
        if depth > 1:
            kinds = ("processed", "unprocessed", "failed", "ignored")
            pages = await asyncio.gather(
                *(inspector.children_page(job_id, kind, count=most_children) for kind in kinds)
            )
            keys = [key for page in pages for key in page.children]
            found = await asyncio.gather(*(self._get_child(key, depth - 1, most_children) for key in keys))
        return Flow(job, tuple(child for child in found if child is not None), namespace)

    async def _get_child(self, key: str, depth: int, most_children: int) -> Flow | None:
        place, _, job_id = key.rpartition(":")
        namespace, _, queue = place.rpartition(":")
        return await self._tree(queue, job_id, depth, most_children, namespace)


def _raise_refused(nodes: Sequence[_Node]) -> None:
    """Say why the first job was not added, unless its parent was left out before it for a good reason."""
    for node in nodes:
        if isinstance(node.answer, Refused) and (node.parent is None or node.parent.is_there):
            if node.parent is not None:
                node.answer.add_note("The other jobs of the flow were added.")
            raise node.answer


def _trees(nodes: Sequence[_Node]) -> list[Flow]:
    """The flows as they were added, built from their leaves up."""
    children: dict[int, list[Flow]] = {}
    roots: list[Flow] = []
    for node in reversed(nodes):
        if not isinstance(node.answer, Added):
            continue
        job = replace(node.flow.job, id=node.answer.id, created_at=node.row[0][3])
        mine = children.get(id(node), [])
        flow = Flow(job, tuple(reversed(mine)), node.flow.namespace)
        if node.parent is None:
            roots.append(flow)
        else:
            children.setdefault(id(node.parent), []).append(flow)
    return roots[::-1]
