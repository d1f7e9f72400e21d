"""The objects that the rules read: queues, jobs, attempts and operations."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tests.faults.checker.records import (
    ENDS,
    Dump,
    End,
    Event,
    Extended,
    Flow,
    Invoke,
    Key,
    Limit,
    Lost,
    NewJob,
    Ok,
    Record,
    Refused,
    Result,
    Schedule,
    Settled,
    Start,
    State,
    Tick,
    Unknown,
)

Status = Literal["ok", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Promises:
    """The promises of one queue, with defaults; `records.Promise` says what each means."""

    skew_ms: float = 5.0
    lock_ms: float | None = None
    max_attempts: int | None = None
    max_stalls: int | None = None
    stalls_are_attempts: bool = False
    early_recovery: bool = False
    fifo: str | None = None
    priority: str | None = None
    drained: bool = False
    reuse_ids: bool = False
    events: bool = False
    recovery_ms: float | None = None


@dataclass(slots=True, eq=False)
class Operation:
    """A request and its answer."""

    invoke: Invoke
    answer: Ok | Refused | Unknown | None = None
    undone: bool = False
    """It was acknowledged, and then a fault may have undone it."""

    @property
    def status(self) -> Status:
        if self.undone or self.answer is None or type(self.answer) is Unknown:
            return "unknown"
        return "ok" if type(self.answer) is Ok else "refused"

    @property
    def latest(self) -> float:
        """When it was carried out at the latest, if it was."""
        return self.answer.at if self.answer is not None and self.status == "ok" else math.inf

    @property
    def records(self) -> tuple[Record, ...]:
        return (self.invoke,) if self.answer is None else (self.invoke, self.answer)


@dataclass(slots=True, eq=False)
class Addition:
    """One job of an `add`."""

    operation: Operation
    spec: NewJob
    status: Status
    existed: bool = False


@dataclass(slots=True, eq=False)
class Attempt:
    """One run of a handler; `settled` is the settlement that decides, of those that were answered."""

    start: Start
    end: End | None = None
    lost: Lost | None = None
    extensions: tuple[Extended, ...] = ()
    settlements: tuple[Settled, ...] = ()
    settled: Settled | None = None
    undone: bool = False
    """Its settlement was applied, and then a fault may have undone it."""

    def settle(self, record: Settled) -> None:
        """Take in an answer: one `applied` decides; a refusal after a lost answer leaves it unknown."""
        self.settlements += (record,)
        if self.settled is None or record.verdict == "applied":
            self.settled = record

    @property
    def verdict(self) -> Literal["applied", "refused", "unknown", "none"]:
        if self.settled is None:
            return "none"
        return "unknown" if self.undone else self.settled.verdict

    @property
    def ends_job(self) -> bool:
        """Whether it surely ended its job."""
        return self.settled is not None and self.verdict == "applied" and self.settled.outcome in ENDS

    @property
    def may_end_job(self) -> bool:
        """Whether it ended its job, or nobody knows."""
        if self.settled is None:
            return self.end is not None
        return self.verdict in ("applied", "unknown") and self.settled.outcome in ENDS

    @property
    def stalled(self) -> bool:
        """Whether it surely ended without a settlement that counts."""
        return (self.end is None and self.settled is None) or self.verdict == "refused"

    @property
    def records(self) -> tuple[Record, ...]:
        ends = tuple(record for record in (self.end, self.lost) if record is not None)
        return (self.start, *self.extensions, *ends, *self.settlements)


@dataclass(slots=True, eq=False)
class Job:
    """All that the history has about one job."""

    queue: "Queue"
    id: str
    additions: tuple[Addition, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    operations: tuple[Operation, ...] = ()
    events: tuple[Event, ...] = ()
    results: tuple[Result, ...] = ()
    ticks: tuple[Tick, ...] = ()
    flows: tuple[Flow, ...] = ()
    keys: tuple[Key, ...] = ()
    state: State | None = None
    tags: frozenset[str] = frozenset()

    @property
    def all_additions(self) -> tuple[Addition, ...]:
        """Every `add` that may have made it: those of its id and those of its tags."""
        if not self.tags:
            return self.additions
        tagged = [addition for tag in sorted(self.tags) for addition in self.queue.tags.get(tag, ())]
        return (*self.additions, *(addition for addition in tagged if addition not in self.additions))

    @property
    def records(self) -> Iterator[Record]:
        for addition in self.all_additions:
            yield from addition.operation.records
        for attempt in self.attempts:
            yield from attempt.records
        for operation in self.operations:
            yield from operation.records
        yield from (*self.events, *self.results, *self.ticks, *self.flows, *self.keys)
        if self.state is not None:
            yield self.state


@dataclass(slots=True, eq=False)
class Queue:
    """All that the history has about one queue."""

    name: str
    promises: Promises = Promises()
    jobs: dict[str, Job] = field(default_factory=dict)
    tags: dict[str, list[Addition]] = field(default_factory=dict)
    anonymous: list[Addition] = field(default_factory=list)
    """Jobs without id and tag whose `add` was not answered."""
    operations: list[Operation] = field(default_factory=list)
    """Operations on the queue as a whole."""
    limits: list[Limit] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    strays: list[Key] = field(default_factory=list)
    dump: Dump | None = None
    has_events: bool = False

    def job(self, id: str) -> Job:
        job = self.jobs.get(id)
        if job is None:
            job = self.jobs[id] = Job(self, id)
        return job

    def tolerance(self, one: Record, other: Record) -> float:
        """How far the clocks behind two records may differ."""
        return 0.0 if one.process == other.process else self.promises.skew_ms


class Window(NamedTuple):
    """A span of time."""

    begin: float
    end: float


class Doubt(NamedTuple):
    """A span of time in which what the server acknowledged may have been undone, and when at the earliest."""

    begin: float
    end: float
    undone_at: float
