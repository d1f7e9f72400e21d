"""A producer process of a run: adds jobs of all kinds and operates on them, by its seed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any
from uuid import UUID

from corral.core.job import Job
from corral.core.options import Capability
from corral.core.ports import Flow
from corral.errors import RedisError, Refused
from corral.protocols import protocol_named
from corral.queue import Queue
from corral.telemetry import logs
from tests.faults.checker import Writer
from tests.faults.checker.records import Flow as FlowRecord
from tests.faults.checker.records import NewJob, Verb
from tests.faults.prove.plan import CALM_S
from tests.faults.prove.queues import (
    ASYNC,
    ATTEMPTS,
    EXTRAS,
    LIMIT_CONCURRENCY,
    LIMITS,
    ORDER,
    THREAD,
    WORK,
    RunQueue,
    run_queues,
)
from tests.support.proxy import LATE_S
from tests.support.worker_process_main import go_with_parent

VALUES = (None, 0, [], {}, "", "ü€", 130775545883395173, 1.5, {"b": [1, {}], "a": None}, "x" * 3000)
"""Results that a careless codec changes."""
HOUR_MS = 3_600_000
BURST, MOST_BURST = 0.4, 50
"""The share of jobs that are added at once, and how many at most."""
FRONT = 7
"""The priority from which a bridgemq job goes to the front."""
MOST_AGAIN = 60
"""How often an operation that must not be left undone is repeated."""


@dataclass(frozen=True, slots=True)
class ProducerOrder:
    """How many jobs a producer adds, in which time, and where it writes."""

    number: int
    url: str
    protocol: str
    seed: int
    jobs: int
    seconds: float
    folder: Path


@dataclass(frozen=True, slots=True)
class Draft:
    """A job before it is added: as Corral takes it, and as the history has it."""

    name: str
    data: dict[str, Any]
    options: dict[str, Any]
    spec: NewJob

    @property
    def item(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        return self.name, self.data, self.options


class Producer:
    """Adds jobs one after the other, each request and its answer written down."""

    def __init__(self, order: ProducerOrder, history: Writer) -> None:
        self._order, self._history = order, history
        self._random = Random(f"{order.seed} {order.protocol} {order.number}")
        self._able = protocol_named(order.protocol).spec.capabilities
        self._has_flows = order.protocol == "bullmq"
        self._queues = run_queues(order.protocol)
        self._apps = {run_queue.name: run_queue.app(order.url, order.protocol) for run_queue in self._queues}
        self._made = 0

    def _queue(self, run_queue: RunQueue) -> Queue:
        return self._apps[run_queue.name].queue(run_queue.queue_name(self._order.protocol))

    # -- requests -----------------------------------------------------------------------------------------

    async def _request(self, op: str, call: Callable[[], Awaitable[Sequence[str] | None]]) -> bool | None:
        """Send a request and write its answer down; return None where it is unknown."""
        try:
            ids = await call()
        except Refused as error:
            self._history.refused(op, str(error))
            return False
        except (RedisError, TimeoutError) as error:
            self._history.unknown(op, repr(error)[:200])
            return None
        self._history.ok(op, ids)
        return True

    async def _add(self, run_queue: RunQueue, drafts: Sequence[Draft]) -> bool | None:
        op = self._history.invoke("add", run_queue.name, jobs=[draft.spec for draft in drafts])
        queue = self._queue(run_queue)

        async def add() -> list[str]:
            if len(drafts) == 1:
                [draft] = drafts
                return [(await queue.add(draft.name, draft.data, **draft.options)).id]
            return await queue.add_many([draft.item for draft in drafts])

        done = await self._request(op, add)
        if done is None and drafts[0].spec.id is not None and self._random.random() < 0.7:
            # what a client does whose answer was lost: the same job again, by its id
            await asyncio.sleep(0.05)
            return await self._add(run_queue, drafts)
        return done

    async def _operate(self, verb: Verb, run_queue: RunQueue, ids: Sequence[str]) -> None:
        """Do something to jobs that are delayed for an hour, so that its effect is certain."""
        queue = self._queue(run_queue)
        calls = {"promote": queue.promote, "cancel": queue.cancel, "remove": queue.remove}
        # of this protocol nothing is left of a cancelled job that never ran
        recorded: Verb = "remove" if verb == "cancel" else verb
        for _ in range(MOST_AGAIN):
            op = self._history.invoke(recorded, run_queue.name, ids=ids)
            if await self._request(op, lambda: calls[verb](ids)) is not None:
                return
            await asyncio.sleep(0.1)

    # -- jobs ---------------------------------------------------------------------------------------------

    def _draft(self, run_queue: RunQueue, *, delay: int = 0, has_id: bool | None = None) -> Draft:
        random, self._made = self._random, self._made + 1
        tag = f"{self._order.number}-{self._made}"
        data: dict[str, Any] = {
            "tag": tag,
            "ms": random.choice((1, 5, 10, 30)),
            "value": random.choice(VALUES),
        }
        options: dict[str, Any] = {}
        priority, attempts = 0, None
        if Capability.RETRY in self._able:
            attempts = ATTEMPTS[self._order.protocol]
            options |= {"attempts": attempts, "backoff": random.choice(("custom", 20, 80))}
        if run_queue is WORK:
            data["reports"] = random.random() < 0.2
            data["dies"] = random.random() < 0.04
            data["ms"] = random.choice((10, 60, 200, 500))
            if Capability.RETRY in self._able:
                data["fails"] = random.choices((0, 1, 2, 99), (80, 12, 5, 3))[0]
            if Capability.DELAY in self._able and random.random() < 0.15:
                delay = delay or random.randint(50, 800)
            if Capability.PRIORITY in self._able:
                options["priority"] = priority = random.choice((0, 0, 1, 2, 9))
        if run_queue is LIMITS and self._order.protocol == "bridgemq":
            options["rate"] = {"concurrent": LIMIT_CONCURRENCY}
        if delay:
            options["delay"] = delay
        if self._order.protocol == "bridgemq":
            priority = int(priority >= FRONT)
        job_id = None
        if random.random() < 0.5 if has_id is None else has_id:
            options["id"] = job_id = str(UUID(int=random.getrandbits(128), version=4))
        # one kind of handler in the run_queue whose order is judged: two of them need not start in turn
        name = ASYNC if run_queue is ORDER else random.choice((ASYNC, ASYNC, THREAD))
        spec = NewJob(id=job_id, tag=tag, priority=priority, delay=float(delay), max_attempts=attempts)
        return Draft(name, data, options, spec)

    async def _flow(self) -> None:
        """Add a parent with some children."""
        drafts = [self._draft(EXTRAS, has_id=True) for _ in range(self._random.randint(2, 4))]
        queue = self._queue(EXTRAS)
        jobs = [self._job(queue, draft) for draft in drafts]
        parent, children = jobs[0], jobs[1:]
        self._history.write(
            FlowRecord(
                queue=EXTRAS.name,
                parent=parent.id,
                children=tuple((EXTRAS.name, child.id) for child in children),
            )
        )
        op = self._history.invoke("add", EXTRAS.name, jobs=[draft.spec for draft in drafts])

        async def add() -> list[str]:
            await queue.flows.add(Flow(parent, tuple(Flow(child) for child in children)))
            return [job.id for job in jobs]

        await self._request(op, add)

    def _job(self, queue: Queue, draft: Draft) -> Job:
        options = {name: value for name, value in draft.options.items() if name != "id"}
        return Job(
            name=draft.name, data=draft.data, queue=queue.name, id=draft.spec.id or "",
            options=queue.options(options),
        )  # fmt: skip

    async def _refused(self) -> None:
        """Add jobs of which the last cannot be accepted: none may be there."""
        drafts = [self._draft(WORK, has_id=True) for _ in range(self._random.randint(1, 3))]
        last = drafts[-1]
        bad = self._random.choice(({"priority": -1}, {"no_such_option": 1}, {"delay": -5}))
        drafts[-1] = Draft(last.name, last.data, {**last.options, **bad}, last.spec)
        await self._add(WORK, drafts)

    async def _operated(self) -> None:
        """Add jobs for much later, and promote, cancel or remove them."""
        drafts = [self._draft(WORK, delay=HOUR_MS, has_id=True) for _ in range(self._random.randint(1, 3))]
        verb: Verb = self._random.choice(("promote", "cancel", "remove"))
        done = await self._add(WORK, drafts)
        ids = [draft.spec.id for draft in drafts if draft.spec.id is not None]
        if done is None:
            verb = "remove"  # they may be there, and nobody should wait an hour for them
            await asyncio.sleep(2 * LATE_S)  # for the request may still be under way
        await self._operate(verb, WORK, ids)

    async def _paused(self) -> None:
        for verb in ("pause", "resume"):
            queue = self._queue(WORK)
            call = queue.pause if verb == "pause" else queue.resume
            for _ in range(MOST_AGAIN):
                op = self._history.invoke(verb, WORK.name)
                if await self._request(op, call) is not None:
                    break
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.15)

    # -- the whole ----------------------------------------------------------------------------------------

    def _due(self, share: float) -> float:
        """Return when, in seconds, this share of the jobs should have been added."""
        burst = min(BURST, MOST_BURST / self._order.jobs)
        if share < burst:
            return 0.0
        return CALM_S + (share - burst) / (1 - burst) * (self._order.seconds - CALM_S)

    def _steps(self) -> Iterable[Callable[[], Awaitable[Any]]]:
        random = self._random
        others = [run_queue for run_queue in self._queues if run_queue in (ORDER, LIMITS)]
        while self._made < self._order.jobs:
            choice = random.random()
            if choice < 0.03:
                yield self._refused
            elif choice < 0.07 and Capability.DELAY in self._able:
                yield self._operated
            elif choice < 0.12 and self._has_flows:
                yield self._flow
            elif choice < 0.55:
                run_queue = random.choice(others)
                yield partial(self._add, run_queue, [self._draft(run_queue)])
            else:
                count = random.choice((1, 1, 1, 2, 5))
                drafts = [
                    self._draft(WORK, has_id=True) if count > 1 else self._draft(WORK) for _ in range(count)
                ]
                yield partial(self._add, WORK, drafts)

    async def run(self) -> None:
        """Add all jobs: some at once, which then wait for a worker, and the others spread over the time."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        has_paused = self._order.number != 0 or Capability.PAUSE not in self._able
        for step in self._steps():
            await step()
            share = self._made / self._order.jobs
            if not has_paused and share > 0.3:
                has_paused = True
                await self._paused()
            await asyncio.sleep(max(begin + self._due(share) - loop.time(), 0))
        for app in self._apps.values():
            await app.close()


async def _produce(order: ProducerOrder) -> None:
    with Writer.in_folder(order.folder, "producer") as history:
        await Producer(order, history).run()


def main(order: ProducerOrder, ready: Event) -> None:
    """Run until everything is added."""
    Thread(target=go_with_parent, daemon=True).start()
    logs.configure(level="critical")
    ready.set()
    asyncio.run(_produce(order))
