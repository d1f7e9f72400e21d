"""Flows: trees of jobs, in one queue or many, in which parents wait for their children."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from corral.core.job import Job
from corral.errors import Refused
from corral.protocols.binding import Binding
from corral.protocols.bullmq.bound import SCRIPTS
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.keys import Keys
from corral.protocols.bullmq.submitting import Row, Rows, batches, decode_ids, encode_node, submit_args
from corral.store.client import Store

DEPTH = 10
MOST_CHILDREN = 20


class Flow(Struct, frozen=True):
    """A job and its children, which run before it; each job names its own queue.

    `namespace` is what the keys of this job's queue begin with, where it is not that of the others.
    """

    job: Job
    children: tuple["Flow", ...] = ()
    namespace: str | None = None


class _Node(Struct):
    """A flow on its way: its row, whose child it is, and what came of it."""

    flow: Flow
    keys: Keys
    row: Row
    parent: "_Node | None"
    answer: str | Refused = ""

    @property
    def id(self) -> str:
        """What its row calls it; another job may stand for it."""
        return str(self.row[0][0])

    @property
    def is_there(self) -> bool:
        """Was this very job added, or found under its own id?"""
        return self.answer == self.id


class BullmqFlows:
    """Adds flows, and reads them.

    >>> await BullmqFlows(store, "bull", clock).add(Flow(parent, (Flow(child),)))  # doctest: +SKIP
    """

    def __init__(self, store: Store, namespace: str, clock: Callable[[], int]) -> None:
        self._store = store
        self._namespace = namespace
        self._clock = clock

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
        calls = [
            (keys.fixed, submit_args(batch))
            for keys, run in runs
            for batch in batches(Rows.of(node.row for node in run))
        ]
        answers = await self._store.run_together(SCRIPTS["submit"], calls)
        ids = decode_ids(chain.from_iterable(answers), [node.row[0] for node in nodes])
        for node, answer in zip(nodes, ids, strict=True):
            node.answer = answer
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

    async def get(
        self,
        queue: str,
        job_id: str,
        depth: int = DEPTH,
        most_children: int = MOST_CHILDREN,
        namespace: str | None = None,
    ) -> Flow | None:
        """A job with its children and theirs, `depth` levels in all, about `most_children` of each kind for
        each parent; None where it is gone. Children that are gone are left out."""
        inspector = BullmqInspector(Binding(self._store, queue, namespace or self._namespace, self._clock))
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
        return await self.get(queue, job_id, depth, most_children, namespace)


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
        if isinstance(node.answer, Refused):
            continue
        job = replace(node.flow.job, id=node.answer, created_at=node.row[0][3])
        mine = children.get(id(node), [])
        flow = Flow(job, tuple(reversed(mine)), node.flow.namespace)
        if node.parent is None:
            roots.append(flow)
        else:
            children.setdefault(id(node.parent), []).append(flow)
    return roots[::-1]
