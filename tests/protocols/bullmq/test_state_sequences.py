"""Any sequence of calls leaves the very state that Node BullMQ leaves."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from corral.core.ports import Limit
from corral.store.client import Store
from tests.protocols.bullmq.paired_outcomes import Done, Failed, PairedOutcome, Postpone, Release
from tests.protocols.bullmq.paired_queue import PairedQueue
from tests.support.node import Node
from tests.support.servers import Server

keeps = st.sampled_from([True, False, 0, 1, 2, {"age": 1}, {"count": 1}, {"age": 2, "count": 3}])
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "priority": st.sampled_from([1, 2, 2_097_151]),
    "delay": st.sampled_from([1, 40, 500, 3_000]),
    "lifo": st.just(True),
    "attempts": st.sampled_from([1, 2, 3]),
    "backoff": st.sampled_from([30, 700, {"type": "exponential", "delay": 10}]),
    "jobId": st.sampled_from(["a", "b", "c", "d", "e", "f"]),
    "removeOnComplete": keeps,
    "removeOnFail": keeps,
    "keepLogs": st.sampled_from([1, 3]),
    "stackTraceLimit": st.sampled_from([0, 1]),
}
job_options = st.sets(st.sampled_from(sorted(OPTIONS)), max_size=3).flatmap(
    lambda chosen: st.fixed_dictionaries({name: OPTIONS[name] for name in sorted(chosen)})
)
payloads = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
).filter(lambda data: data is not None)
new_jobs = st.lists(st.tuples(st.just("send"), payloads, job_options), min_size=1, max_size=8)
which = st.integers(0, 19)
wants = st.sampled_from([5, 0, 1, 2, 12])
endings = st.sampled_from(["done", "done", "failed", "failed", "unrecoverable", "put off", "given back"])

worker_options = st.fixed_dictionaries(
    {},
    optional={
        "limiter": st.sampled_from([{"max": 2, "duration": 600_000}, {"max": 5, "duration": 600_000}]),
        "removeOnComplete": st.sampled_from([{"count": 2}, {"age": 1}, {"age": 1, "count": 1}]),
        "removeOnFail": st.sampled_from([{"count": 1}, {"age": 1}]),
        "metrics": st.sampled_from([{"maxDataPoints": 2}, {"maxDataPoints": 60}]),
        "maxStalledCount": st.sampled_from([0, 2]),
    },
)

some_endings = st.lists(st.tuples(which, endings), max_size=3)
many_endings = st.lists(st.tuples(which, endings), min_size=8, max_size=14)
USUAL: list[st.SearchStrategy[Any]] = [
    st.tuples(st.just("add"), new_jobs),
    st.tuples(st.just("turn"), st.just([]), st.sampled_from([12, 2, 1])),
    st.tuples(st.just("turn"), some_endings, wants),
    st.tuples(st.just("turn"), many_endings, wants),
    st.tuples(st.just("advance"), st.sampled_from([1, 33, 700, 61_000])),
]
OFTEN: list[st.SearchStrategy[Any]] = [
    st.tuples(st.just("stall"), which, st.integers(0, 2)),
    st.tuples(st.sampled_from(["sweep", "resume", "wake up"])),
    st.tuples(st.sampled_from(["extend", "progress", "log"]), which),
    st.tuples(st.sampled_from(["retry", "promote", "remove"]), which),
]
SELDOM: list[st.SearchStrategy[Any]] = [
    st.tuples(st.sampled_from(["pause", "limit passes"])),
    st.tuples(st.just("concurrency"), st.sampled_from([None, 1, 3])),
    st.tuples(st.just("limit"), st.sampled_from([None, Limit(1, 600_000), Limit(4, 600_000)])),
]
calls = st.sampled_from([*USUAL * 6, *OFTEN * 2, *SELDOM]).flatmap(lambda call: call)


class Player:
    """Plays a drawn sequence; what a call cannot mean at its place is left out."""

    def __init__(self, queue: PairedQueue) -> None:
        self.queue = queue
        self.known: list[str] = []
        self.held: list[str] = []

    async def play(self, call: tuple[Any, ...]) -> None:
        queue = self.queue
        match call:
            case ("add", rows):
                self.known += await queue.add_many(rows)
            case ("turn", drawn, want):
                await self._turn(drawn, want)
            case ("advance", ms):
                await queue.advance(ms)
            case ("stall", place, sweeps) if self.held:
                # its worker is gone: it is not settled, and two sweeps will find it
                queue.abandon(self.held.pop(place % len(self.held)))
                for _ in range(sweeps):
                    await queue.sweep()
            case ("sweep",):
                await queue.sweep()
            case ("pause",):
                await queue.pause()
            case ("resume",):
                await queue.resume()
            case ("wake up",):
                queue.take_markers()
            case ("limit passes",):
                queue.forget("limiter")
            case ("concurrency", count):
                await queue.set_concurrency(count)
            case ("limit", limit):
                await queue.set_limit(limit)
            case ("extend" | "progress" | "log" as verb, place) if self.held:
                await self._report(verb, self.held[place % len(self.held)])
            case ("retry" | "promote" | "remove" as verb, place) if self.known:
                await self._operate(verb, self.known[place % len(self.known)])

    async def _turn(self, drawn: list[tuple[int, str]], want: int) -> None:
        chosen: list[PairedOutcome] = []
        for place, how in drawn:
            if self.held:
                chosen.append(self._ending(self.held.pop(place % len(self.held)), how))
        self.held += await self.queue.turn(chosen, want)

    def _ending(self, job_id: str, how: str) -> PairedOutcome:
        reason = self.queue.claimed(job_id).doomed
        if reason is not None:
            return Failed(job_id, reason, unrecoverable=True)
        match how:
            case "done":
                return Done(job_id, {"id": job_id})
            case "put off":
                return Postpone(job_id, 50, self.queue.now)
            case "given back":
                return Release(job_id)
        return Failed(job_id, "no luck ☂", unrecoverable=how == "unrecoverable")

    async def _report(self, verb: str, job_id: str) -> None:
        if verb == "extend":
            await self.queue.extend(job_id)
        elif verb == "progress":
            await self.queue.progress(job_id, {"half": [50]})
        else:
            await self.queue.log(job_id, "a line")

    async def _operate(self, verb: str, job_id: str) -> None:
        if verb == "promote":
            await self.queue.promote(job_id)
        elif verb == "remove":
            await self.queue.remove(job_id)
        else:
            await self.queue.retry(job_id)


HABITS = settings(
    max_examples=35,
    deadline=None,
    # add Phase.shrink to work on a failure: it takes minutes, and the first difference is reported without it
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
sequences = given(worker=worker_options, sequence=st.lists(calls, min_size=25, max_size=50))


@HABITS
@sequences
async def test_any_sequence_of_calls(
    node: Node, server: Server, store: Store, worker: dict[str, Any], sequence: list[tuple[Any, ...]]
) -> None:
    await play(node, server, store, worker, sequence)


@pytest.mark.parametrize("node", [6], indirect=True)
@settings(HABITS, max_examples=6)
@sequences
async def test_some_sequences_of_calls_of_bullmq_6(
    node: Node, server: Server, store: Store, worker: dict[str, Any], sequence: list[tuple[Any, ...]]
) -> None:
    await play(node, server, store, worker, sequence)


async def play(
    node: Node, server: Server, store: Store, worker: dict[str, Any], sequence: list[tuple[Any, ...]]
) -> None:
    server.flush()
    queue = await PairedQueue(node, server, store, **worker).open()
    try:
        player = Player(queue)
        for call in sequence:
            await player.play(call)
    finally:
        await queue.close()
