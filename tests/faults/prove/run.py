"""One run: jobs are added and worked while faults are injected; then the server's state is written down."""

import asyncio
import math
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from corral.core.job import Job, JobState
from corral.core.schedule import ScheduleRule
from corral.queue import Queue
from tests.faults.checker import Report, Writer, check, read
from tests.faults.checker.history import wall_clock_ms
from tests.faults.checker.records import Fault, Schedule, Tick, Verb
from tests.faults.prove import producer_main, worker_main
from tests.faults.prove.dump import dump, keep_every_event, left
from tests.faults.prove.plan import LATE_SETTLE_S, NODE, PRODUCERS, WORKERS, Plan, PlannedFault
from tests.faults.prove.processes import NodeWorkerProcess, RunProcess, WorkerProcess
from tests.faults.prove.producer_main import ProducerOrder
from tests.faults.prove.queues import (
    ASYNC,
    ATTEMPTS,
    EVERY_MS,
    EXTRAS,
    LIMIT_CONCURRENCY,
    LIMIT_RATE,
    LIMITS,
    NODE_WORK,
    SCHEDULE,
    WORK,
    RunQueue,
    promises,
    run_queues,
)
from tests.faults.prove.worker_main import WorkerOrder
from tests.faults.trips import Trip, is_trip
from tests.support.persistent_server import PersistentServer
from tests.support.polling import eventually, until
from tests.support.proxy import Proxy, ProxyFault, runs

START_S = 60.0
DRAIN_S = 60.0
"""How long the jobs that are left have to end when no more faults are injected."""
CLOCK_MS = 20
"""Where a tick was claimed so much before the next one, that one is surely after it."""
KEPT_COMMANDS = 1000
MOST_REOPENED = 20


@dataclass(frozen=True)
class Finding:
    """A run and what the checker makes of it."""

    plan: Plan
    folder: Path
    report: Report


def prove(plan: Plan, folder: Path) -> Finding:
    """Carry the plan out, write the histories into the folder, and judge them."""
    with run_of(plan, folder) as run:
        run.go()
    return Finding(plan, folder, check(read([folder])))


@contextmanager
def run_of(plan: Plan, folder: Path) -> Iterator["Run"]:
    """Yield a run with its server; everything is gone at the end of the block but the histories."""
    folder.mkdir(parents=True, exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="corral-prove-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        server = PersistentServer(data, plan.fsync)
        stack.callback(server.stop)
        proxies = [stack.enter_context(Proxy(server.port)) for _ in range(WORKERS + PRODUCERS)]
        history = stack.enter_context(Writer.in_folder(folder, "harness"))
        run = Run(plan, folder, server, proxies, history)
        stack.callback(run.kill_all)
        yield run


class Run:
    """The server, the clients with a proxy each, and what is done to them."""

    def __init__(
        self, plan: Plan, folder: Path, server: PersistentServer, proxies: list[Proxy], history: Writer
    ) -> None:
        self._plan, self._folder, self._server = plan, folder, server
        self._proxies, self._history = proxies, history
        self._queues = run_queues(plan.protocol)
        self._workers: dict[int, WorkerProcess] = {}
        self._producers: list[RunProcess] = []
        self._retired: list[WorkerProcess] = []
        self._started = 0
        self._first_tick = 0
        self._due: list[tuple[float, Callable[[], None]]] = []
        """What ends faults that last: when, and how."""

    def go(self) -> None:
        """Carry the whole plan out."""
        for promise in promises(self._plan.protocol):
            self._history.write(promise)
        asyncio.run(self._prepare())
        slots = (*range(WORKERS), *((NODE,) if self._plan.has_node else ()))
        self._workers = {slot: self._start_worker(slot) for slot in slots}
        for worker in self._workers.values():
            assert worker.wait_ready(START_S), f"{worker.name} did not start within {START_S:.0f} s"
        self._producers = [self._start_producer(number) for number in range(PRODUCERS)]
        self._inject_all()
        self._wait_for_producers()
        asyncio.run(self._reopen())
        if EXTRAS in self._queues:
            asyncio.run(self._end_schedule())
        eventually(lambda: self._left() == 0, DRAIN_S, 0.05)
        for worker in (*self._workers.values(), *self._retired):
            worker.stop()
        self._write_state()
        if EXTRAS in self._queues:
            self._write_schedule()

    def kill_all(self) -> None:
        for process in (*self._producers, *self._workers.values(), *self._retired):
            process.kill()

    # -- before and after the faults ------------------------------------------------------------------------

    def _queue(self, run_queue: RunQueue) -> Queue:
        return run_queue.app(self._server.url, self._plan.protocol).queue(
            run_queue.queue_name(self._plan.protocol)
        )

    async def _prepare(self) -> None:
        """Set limits and the schedule."""
        protocol = self._plan.protocol
        with self._server.connect() as client:
            for run_queue in self._queues:
                keep_every_event(client, protocol, run_queue.name)
        if protocol == "bullmq":
            await self._queue(LIMITS).set_limits(LIMIT_CONCURRENCY, LIMIT_RATE)
        if EXTRAS in self._queues:
            queue = self._queue(EXTRAS)
            job = Job(
                name=ASYNC, data={"value": "tick", "ms": 1}, queue=queue.name, id=SCHEDULE,
                options=queue.options({"attempts": ATTEMPTS[protocol]}),
            )  # fmt: skip
            rule = ScheduleRule(cron="* * * * * *", timezone="UTC", catch_up="all")
            if protocol == "bullmq":
                rule = ScheduleRule(every_ms=EVERY_MS)
            await queue.schedules.upsert(job, rule)
            [schedule] = await queue.schedules.list()
            self._first_tick = schedule.next_at or 0

    async def _reopen(self) -> None:
        """Put some dead jobs back, with their attempts and with new ones."""
        if self._plan.protocol == "streams":
            return
        queue = self._queue(WORK)
        dead = [job.id for job in await queue.jobs(JobState.DEAD, count=MOST_REOPENED)]
        half = len(dead) // 2
        for verb, ids, call in (("retry", dead[:half], queue.retry), ("replay", dead[half:], queue.replay)):
            if ids:
                await self._operate(verb, ids, call)

    async def _operate(
        self, verb: Verb, ids: list[str], call: Callable[[list[str]], Awaitable[list[str]]]
    ) -> None:
        op = self._history.invoke(verb, WORK.name, ids=ids)
        self._history.ok(op, await call(ids))

    async def _end_schedule(self) -> None:
        """Remove the schedule once it has gone on after the faults."""
        schedules, calm_at = self._queue(EXTRAS).schedules, wall_clock_ms()

        async def goes_on() -> bool:
            [schedule] = await schedules.list()
            return (schedule.next_at or 0) > calm_at

        await until(goes_on, "the schedule has a tick after the faults", DRAIN_S)
        await schedules.remove(SCHEDULE)

    def _write_schedule(self) -> None:
        """Write down the ticks that were owed, and those that may have been left out."""
        seen: dict[float, float] = {}
        for record in read([self._folder]).records:
            if isinstance(record, Tick):
                seen.setdefault(record.tick, record.at)
        newest = max(seen, default=0.0)
        ticks = [float(at) for at in range(self._first_tick - EVERY_MS, int(newest) + 3 * EVERY_MS, EVERY_MS)]
        owed = {tick for tick in ticks if tick <= newest and self._is_owed(tick, seen)}
        self._history.write(
            Schedule(
                queue=EXTRAS.name,
                schedule=SCHEDULE,
                ticks=tuple(sorted(owed)),
                optional=tuple(tick for tick in ticks if tick not in owed),
            )
        )

    def _is_owed(self, tick: float, seen: Mapping[float, float]) -> bool:
        """Whether the schedule must have made this tick: bullmq makes one when that before it is claimed."""
        if self._plan.may_lose_ms or tick < self._first_tick:
            return False
        if self._plan.protocol == "bridgemq" or tick == self._first_tick:
            return True
        return seen.get(tick - EVERY_MS, math.inf) < tick - CLOCK_MS

    def _left(self) -> int:
        try:
            with self._server.connect() as client:
                return sum(left(client, self._plan.protocol, run_queue.name) for run_queue in self._queues)
        except redis.RedisError:
            return -1

    def _write_state(self) -> None:
        with self._server.connect() as client:
            for run_queue in self._queues:
                for record in dump(client, self._plan.protocol, run_queue.name):
                    self._history.write(record)

    # -- processes ----------------------------------------------------------------------------------------

    def _start_worker(self, slot: int) -> WorkerProcess:
        self._started += 1
        if slot == NODE:
            return NodeWorkerProcess(f"node-{self._started}", self._server.port, NODE_WORK, self._folder)
        name = f"worker-{slot}-{self._started}"
        served = tuple(run_queue for run_queue in self._queues if slot in run_queue.slots)
        url = self._proxies[slot].url
        order = WorkerOrder(name, url, self._plan.protocol, served, self._folder)
        return RunProcess(name, worker_main.main, order)

    def _start_producer(self, number: int) -> RunProcess:
        plan, url = self._plan, self._proxies[WORKERS + number].url
        order = ProducerOrder(
            number, url, plan.protocol, plan.seed, plan.jobs // PRODUCERS, plan.seconds, self._folder
        )
        return RunProcess(f"producer-{number}", producer_main.main, order)

    def _wait_for_producers(self) -> None:
        for producer in self._producers:
            ended = producer.join(DRAIN_S)
            assert ended, f"{producer.name} is not done within {DRAIN_S:.0f} s"
            assert producer.exit_code == 0, f"{producer.name} ended with {producer.exit_code}"

    # -- faults --------------------------------------------------------------------------------------------

    def _inject_all(self) -> None:
        begin = time.monotonic()
        for fault in self._plan.faults:
            self._pass_time(begin + fault.at_s)
            self._inject(fault)
            for proxy in self._proxies:
                del proxy.commands[:-KEPT_COMMANDS]
        while self._due:
            self._pass_time(self._due[0][0])

    def _pass_time(self, until: float) -> None:
        """Wait, and meanwhile end faults that are over."""
        while self._due and self._due[0][0] <= until:
            at, end = self._due.pop(0)
            time.sleep(max(at - time.monotonic(), 0))
            end()
        time.sleep(max(until - time.monotonic(), 0))

    def _later(self, seconds: float, end: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + seconds, end))
        self._due.sort(key=lambda due: due[0])

    def _inject(self, fault: PlannedFault) -> None:
        match fault.action:
            case "kill":
                self._replace(fault.target, lambda worker: worker.kill(), "kill")
            case "late_settle":
                self._late_settle(fault)
            case "stop":
                self._replace(fault.target, lambda worker: worker.signal(signal.SIGTERM), "other")
            case "freeze":
                self._freeze(fault)
            case "restart":
                self._restart(fault)
            case "cut":
                assert fault.cut is not None
                self._fault("cut", f"client-{fault.target}", note=fault.cut.name)
                self._proxies[fault.target].rule(runs("EVALSHA"), fault.cut)
            case "outage":
                proxy, begin = self._proxies[fault.target], wall_clock_ms()
                proxy.go_away()
                self._later(fault.seconds, lambda: self._back(proxy, fault, begin))

    def _fault(self, action: str, target: str, begin: float | None = None, **fields: object) -> None:
        begin = wall_clock_ms() if begin is None else begin
        self._history.write(Fault(action=action, target=target, begin=begin, **fields))

    def _replace(self, slot: int, end: Callable[[WorkerProcess], None], action: str) -> None:
        worker, begin = self._workers[slot], wall_clock_ms()
        end(worker)
        self._fault(action, worker.name, begin)
        self._retired.append(worker)
        self._workers[slot] = self._start_worker(slot)

    def _late_settle(self, fault: PlannedFault) -> None:
        """Hold a settlement back, kill its worker, and let it arrive when others have the job."""
        settles = [is_trip(self._plan.protocol, trip) for trip in (Trip.SETTLE, Trip.BOTH)]
        proxy = self._proxies[fault.target]
        rule = proxy.rule(
            lambda command: any(is_it(command) for is_it in settles), ProxyFault.LATE, late_s=LATE_SETTLE_S
        )
        eventually(lambda: rule.met, LATE_SETTLE_S, 0.002)
        self._replace(fault.target, lambda worker: worker.kill(), "kill")
        self._later(LATE_SETTLE_S, lambda: None)  # no run ends before it has arrived

    def _freeze(self, fault: PlannedFault) -> None:
        worker, begin = self._workers[fault.target], wall_clock_ms()
        worker.signal(signal.SIGSTOP)

        def thaw() -> None:
            worker.signal(signal.SIGCONT)
            self._fault("freeze", worker.name, begin, end=wall_clock_ms())

        self._later(fault.seconds, thaw)

    def _back(self, proxy: Proxy, fault: PlannedFault, begin: float) -> None:
        proxy.come_back()
        self._fault("cut", f"client-{fault.target}", begin, end=wall_clock_ms())

    def _restart(self, fault: PlannedFault) -> None:
        begin = wall_clock_ms()
        self._server.crash()
        time.sleep(fault.seconds)
        self._server.restart()
        self._fault("restart", "server", begin, end=wall_clock_ms(), may_lose_ms=self._plan.may_lose_ms)
