"""Any sequence of calls with flows and deduplication leaves the very state that Node BullMQ leaves."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from corral.store.client import Store
from tests.protocols.bullmq.paired_flows import POLICIES, PairedFlowQueue, PairedQueues, job
from tests.protocols.bullmq.paired_outcomes import Done, Failed, PairedOutcome, Postpone, Release
from tests.support.node import Node
from tests.support.servers import Server

QUEUES = ("mail", "pay")
NAMES = [f"j{n}" for n in range(16)]

queues = st.sampled_from(QUEUES)
names = st.sampled_from(NAMES)
which = st.integers(0, 19)
deduplications = st.sampled_from(
    [
        {"id": "x"},
        {"id": "y", "ttl": 600_000},
        {"id": "x", "ttl": 600_000, "extend": True},
        {"id": "x", "replace": True},
        {"id": "y", "ttl": 600_000, "replace": True},
        # words of BullMQ 6, which 5.62.0 passes over
        {"id": "x", "keepLastIfActive": True},
        {"id": "y", "ttl": 600_000, "keepLastIfActive": True, "extend": True},
        {"id": "x", "replace": True, "keepLastIfActive": True},
        {"id": "y", "reschedule": True},
    ]
)
RICH = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from([1, 3]),
        "delay": st.sampled_from([40, 3_000]),
        "lifo": st.just(True),
        "attempts": st.just(2),
        "removeOnComplete": st.sampled_from([True, 2]),
        "removeOnFail": st.just(True),
        "deduplication": deduplications,
    },
)
options: st.SearchStrategy[Any] = st.just({}) | st.just({}) | RICH
deduplicated = st.tuples(RICH, deduplications).map(lambda drawn: {**drawn[0], "deduplication": drawn[1]})
policies = st.sampled_from([*POLICIES, *POLICIES[1:]])
nodes = st.tuples(queues, options, policies)
leaves: st.SearchStrategy[Any] = st.tuples(nodes, st.just([]))
branches = leaves | st.tuples(nodes, st.lists(leaves, max_size=3))
shapes = st.tuples(nodes, st.lists(branches, min_size=1, max_size=4))
flows = st.tuples(shapes, st.permutations(NAMES)).map(lambda drawn: named(drawn[0], iter(drawn[1])))


def named(shape: Any, free: Iterator[str]) -> dict[str, Any]:
    """The flow of this shape, each of its jobs with a name of its own."""
    (queue, opts, policy), below = shape
    name = next(free)
    return job(name, queue, *(named(each, free) for each in below), **opts, **policy)


def alone(flow: dict[str, Any]) -> dict[str, Any]:
    """The flow without deduplication, which Node 6 refuses in flows."""
    opts = {word: value for word, value in flow["opts"].items() if word != "deduplication"}
    return {**flow, "opts": opts, "children": [alone(child) for child in flow.get("children", [])]}


endings = st.sampled_from(["done", "done", "done", "failed", "failed", "put off", "given back", "awaits"])
WORK: list[st.SearchStrategy[Any]] = [
    st.tuples(st.just("claim"), queues, st.sampled_from([9, 1, 3])),
    st.tuples(st.just("end"), queues, st.lists(st.tuples(which, endings), min_size=1, max_size=3)),
    st.tuples(st.just("end"), queues, st.lists(st.tuples(which, endings), min_size=8, max_size=12)),
]
OFTEN: list[st.SearchStrategy[Any]] = [
    st.tuples(st.just("flow"), flows),
    st.tuples(st.just("child"), queues, queues, names, options, policies),
    st.tuples(st.just("add"), queues, deduplicated),
    st.tuples(st.just("advance"), st.sampled_from([50, 4_000])),
    st.tuples(st.sampled_from(["remove", "retry", "promote"]), queues, names),
]
SELDOM: list[st.SearchStrategy[Any]] = [
    st.tuples(st.just("add"), queues, options),
    st.tuples(st.sampled_from(["pause", "resume"]), queues),
]
calls = st.sampled_from([*WORK * 6, *OFTEN * 2, *SELDOM]).flatmap(lambda call: call)


class Player:
    """Plays a drawn sequence; what a call cannot mean at its place is left out."""

    def __init__(self, paired_queues: PairedQueues) -> None:
        self.paired_queues = paired_queues
        self.is_six = paired_queues[QUEUES[0]].is_six

    async def play(self, call: tuple[Any, ...]) -> None:
        match call:
            case ("flow", flow):
                await self.paired_queues.try_flow(alone(flow) if self.is_six else flow)
            case ("add", queue, opts):
                await self.paired_queues[queue].add("send", **opts)
            case ("child", queue, above, name, opts, policy):
                if self.is_six:
                    opts = {word: value for word, value in opts.items() if word != "deduplication"}
                await self.paired_queues.add_child(queue, (above, name), **opts, **policy)
            case ("claim", queue, want):
                await self.paired_queues[queue].claim(want)
            case ("end", queue, drawn):
                await self._end(self.paired_queues[queue], drawn)
            case ("advance", ms):
                await self.paired_queues[QUEUES[0]].advance(ms)
            case ("pause", queue):
                await self.paired_queues[queue].pause()
            case ("resume", queue):
                await self.paired_queues[queue].resume()
            case ("remove" | "retry" | "promote" as verb, queue, name):
                await self._operate(verb, self.paired_queues[queue], name)

    async def _end(self, queue: PairedFlowQueue, drawn: list[tuple[int, str]]) -> None:
        held, chosen = queue.held(), []
        for place, how in drawn:
            if held:
                job_id = held.pop(place % len(held))
                if how == "awaits":
                    await queue.await_children(job_id)
                else:
                    chosen.append((job_id, how))
        if chosen:
            await queue.turn([self._ending(queue, job_id, how) for job_id, how in chosen])
            for job_id, _ in chosen:
                queue.hold_again_if_locked(job_id)

    def _ending(self, queue: PairedFlowQueue, job_id: str, how: str) -> PairedOutcome:
        if queue.claimed(job_id).doomed is not None:
            return Failed(job_id, "a child failed", unrecoverable=True)
        match how:
            case "done":
                return Done(job_id, {"id": job_id})
            case "put off":
                return Postpone(job_id, 50, queue.now)
            case "given back":
                return Release(job_id)
        return Failed(job_id, "no luck")

    async def _operate(self, verb: str, queue: PairedFlowQueue, name: str) -> None:
        if queue.entry(name) is None:
            return
        if verb == "retry":
            # Node 5 stops half-way where the failure was one its parent goes on without
            link = queue.entry(name).get("parent", b"")
            if self.is_six or (b"cpof" not in link and b"idof" not in link):
                await queue.retry(name)
        elif verb == "remove":
            await queue.remove(name)
        else:
            await queue.promote(name)


HABITS = settings(
    max_examples=25,
    deadline=None,
    # add Phase.shrink to work on a failure: it takes minutes, and the first difference is reported without it
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
sequences = given(first=flows, sequence=st.lists(calls, min_size=30, max_size=50))


@HABITS
@sequences
async def test_any_sequence_of_calls_with_flows_and_deduplication(
    node: Node, server: Server, store: Store, first: dict[str, Any], sequence: list[tuple[Any, ...]]
) -> None:
    await play(node, server, store, first, sequence)


@pytest.mark.parametrize("node", [6], indirect=True)
@settings(HABITS, max_examples=6)
@sequences
async def test_some_sequences_with_flows_and_deduplication_of_bullmq_6(
    node: Node, server: Server, store: Store, first: dict[str, Any], sequence: list[tuple[Any, ...]]
) -> None:
    await play(node, server, store, first, sequence)


async def play(
    node: Node, server: Server, store: Store, first: dict[str, Any], sequence: list[tuple[Any, ...]]
) -> None:
    server.flush()
    paired_queues = await PairedQueues(node, server, store, *QUEUES).open()
    try:
        player = Player(paired_queues)
        for call in [("flow", first), *sequence]:
            await player.play(call)
    finally:
        await paired_queues.close()
