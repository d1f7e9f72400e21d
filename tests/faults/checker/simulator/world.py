"""Simulated clients, workers and faults around the model server, and the history that they write."""

import heapq
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TypeVar

import msgspec

from tests.faults.checker.history import History
from tests.faults.checker.records import (
    AnyRecord,
    Dump,
    Event,
    Fault,
    Key,
    Limit,
    Promise,
    Schedule,
    State,
    Tick,
)
from tests.faults.checker.simulator.server import Bug, Entry, Server, Settings

QUEUE = "main"
LOCK_MS = 200.0
SWEEP_MS = 40.0

T = TypeVar("T")
R = TypeVar("R", bound=AnyRecord)


@dataclass(frozen=True)
class Options:
    """What happens in a run; rates are parts of 1, counts are for the whole run."""

    seed: int = 0
    jobs: int = 30
    horizon_ms: float = 1500.0
    workers: int = 3
    slots: int = 2
    skew_ms: float = 4.0
    lost_answers: float = 0.05
    raises: float = 0.2
    slow: float = 0.1
    """Handlers that run for longer than their lock, half of them without extending it."""
    kills: int = 2
    freezes: int = 1
    failovers: int = 0
    operations: int = 4
    pauses: int = 1
    flows: int = 2
    delayed: float = 0.2
    priorities: int = 3
    tick_ms: float | None = 300.0
    rate: int | None = None
    concurrency: int | None = None
    keeps_ended: bool = True
    stops_early: bool = False
    recovery_ms: float | None = None


@dataclass(eq=False)
class Process:
    """A process with a clock of its own."""

    name: str
    offset: float
    seq: int = 0
    last_at: float = 0.0
    alive: bool = True
    frozen_until: float = 0.0
    busy: set[str] = field(default_factory=set)
    requests: int = 0


class Simulation:
    """Virtual time, the server, and the records that were written."""

    def __init__(self, options: Options, bug: Bug | None = None) -> None:
        self.options, self.random, self.now, self.epoch = options, Random(options.seed), 1000.0, 0
        settings = Settings(
            lock_ms=LOCK_MS,
            keeps_ended=options.keeps_ended,
            rate=options.rate,
            concurrency=options.concurrency,
        )
        self.server = Server(settings, self.random, bug)
        self.records: list[AnyRecord] = []
        self.numbers = count()
        self._queue: list[tuple[float, int, Process | None, Callable[[], object]]] = []
        self._logged = 0
        self.harness, self.observer = self.process("harness"), self.process("observer")
        self.lost_spans: list[tuple[float, float]] = []

    def process(self, name: str) -> Process:
        return Process(name, self.random.uniform(-0.5, 0.5) * self.options.skew_ms)

    def clock(self, process: Process) -> float:
        return max(process.last_at, self.now + process.offset)

    def write(self, process: Process, record: R) -> R:
        process.last_at = self.clock(process)
        stamped = msgspec.structs.replace(record, at=process.last_at, process=process.name, seq=process.seq)
        process.seq += 1
        self.records.append(stamped)
        return stamped

    def later(self, delay: float, process: Process | None, do: Callable[[], object]) -> None:
        """Do something after a time, unless its process has died by then."""
        heapq.heappush(self._queue, (self.now + delay, next(self.numbers), process, do))

    def request(
        self,
        process: Process,
        execute: Callable[[], T],
        answer: Callable[[T], object],
        lost: Callable[[], object],
    ) -> None:
        """Send a request: it may be lost on the way, and so may its answer."""
        draw = self.random.random() / max(self.options.lost_answers, 1e-9)
        request_ms, answer_ms = self.random.uniform(0.1, 3.0), self.random.uniform(0.1, 3.0)
        if draw < 0.5:
            self.later(20.0, process, lost)
            return

        def arrive() -> None:
            value, epoch = execute(), self.epoch
            if draw < 1.0 and self.server.has("adds_twice"):
                execute()
            delivered = draw >= 1.0
            self.later(
                answer_ms if delivered else 20.0,
                process,
                lambda: answer(value) if delivered and epoch == self.epoch else lost(),
            )

        self.later(request_ms, None, arrive)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        while self._queue and not done():
            at, number, process, do = heapq.heappop(self._queue)
            if at > until:
                heapq.heappush(self._queue, (at, number, process, do))
                break
            if process is not None and not process.alive:
                continue
            if process is not None and process.frozen_until > at:
                heapq.heappush(self._queue, (process.frozen_until, number, process, do))
                continue
            self.now = at
            do()
            self._observe()
        self.now = max(self.now, until) if not done() else self.now

    def _observe(self) -> None:
        """Copy new entries of the event log to the history, some of them twice."""
        for entry in self.server.log[self._logged :]:
            for _ in range(1 + (self.random.random() < 0.1)):
                self._write_entry(entry)
        self._logged = len(self.server.log)

    def _write_entry(self, entry: Entry) -> None:
        if entry.tick is not None:
            self.write(self.observer, Tick(queue=QUEUE, job=entry.job, schedule="every", tick=entry.tick))
        event = Event(
            queue=QUEUE, job=entry.job, name=entry.name, event=entry.id, server_at=entry.at, value=entry.value
        )
        self.write(self.observer, event)

    def sweep(self) -> None:
        self.server.recover(self.now)
        self.later(SWEEP_MS, None, self.sweep)

    def ticks(self) -> list[float]:
        """Return the times of the schedule's ticks."""
        every = self.options.tick_ms
        return (
            []
            if every is None
            else [1000.0 + n * every for n in range(1, int(self.options.horizon_ms / every) + 1)]
        )

    def tick(self, at: float) -> None:
        self.server.tick(self.now, at)

    def invent(self) -> None:
        if self.server.has("invents_job"):
            self.server.add(self.now, id="invented")

    def freeze(self, worker: Process, ms: float) -> None:
        if worker.alive:
            worker.frozen_until = self.now + ms
            begin = self.clock(self.harness)
            self.write(self.harness, Fault(action="freeze", target=worker.name, begin=begin, end=begin + ms))

    def kill(self, worker: Process) -> None:
        worker.alive = False
        self.write(self.harness, Fault(action="kill", target=worker.name, begin=self.clock(self.harness)))
        self.server.worker_died(self.now, worker.name)

    def fail_over(self, lost_ms: float) -> None:
        """Copy the server now, and go on with the copy after a time."""
        copy, taken_at = deepcopy(self.server), self.now

        def switch() -> None:
            old, self.server = self.server, copy
            copy.random = self.random
            copy.receipts, copy.claim_numbers, copy.entries = old.receipts, old.claim_numbers, old.entries
            self._logged = len(copy.log)
            self.epoch += 1
            self.lost_spans.append((taken_at, self.now))
            fault = Fault(
                action="failover",
                target="server",
                begin=self.clock(self.harness),
                may_lose_ms=self.now - taken_at,
            )
            self.write(self.harness, fault)

        self.later(lost_ms, None, switch)

    def declare(self) -> None:
        """Write what the queue promises."""
        options, settings = self.options, self.server.settings
        promise = Promise(
            skew_ms=options.skew_ms,
            max_attempts=settings.max_attempts,
            max_stalls=settings.max_stalls,
            fifo="claim",
            priority="lower_first",
            reuse_ids=not options.keeps_ended,
            events=True,
            recovery_ms=options.recovery_ms,
        )
        self.write(self.harness, promise)
        if options.rate is not None:
            self.write(self.harness, Limit(queue=QUEUE, max=options.rate, per_ms=settings.rate_ms))
        if options.concurrency is not None:
            self.write(self.harness, Limit(queue=QUEUE, max=options.concurrency))

    def dump(self) -> None:
        """Write what is left on the server."""
        ticks = self.ticks()
        if ticks:
            lost = tuple(at for at in ticks if any(begin <= at <= end for begin, end in self.lost_spans))
            owed = tuple(at for at in ticks if at not in lost and at <= self.now)
            self.write(self.harness, Schedule(queue=QUEUE, schedule="every", ticks=owed, optional=lost))
        drained = not self.server.unfinished
        self.write(self.harness, Promise(drained=drained or None))
        self.write(self.harness, Dump(queue=QUEUE, keeps_ended=self.options.keeps_ended))
        self.write(self.harness, Key(queue=QUEUE, name="meta", role="queue"))
        for job in self.server.jobs.values():
            state = State(
                queue=QUEUE, job=job.id, places=self.server.places(job), result=job.result,
                attempts_made=job.attempts_made, tag=job.tag,
            )  # fmt: skip
            self.write(self.harness, state)
            self.write(self.harness, Key(queue=QUEUE, name=f"job:{job.id}", role="job", job=job.id))
            if job.place == "active":
                self.write(self.harness, Key(queue=QUEUE, name=f"lock:{job.id}", role="lock", job=job.id))
        for name, (role, owner) in self.server.stray_keys.items():
            self.write(self.harness, Key(queue=QUEUE, name=name, role=role, job=owner))

    def history(self) -> History:
        return History(sorted(self.records, key=lambda record: record.at))
