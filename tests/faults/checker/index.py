"""A history by queue, job, attempt and operation."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from tests.faults.checker.model import (
    Addition,
    Attempt,
    Doubt,
    Job,
    Operation,
    Promises,
    Queue,
    Status,
    Window,
)
from tests.faults.checker.records import (
    REMOVALS,
    REOPENINGS,
    Dump,
    End,
    Event,
    Extended,
    Fault,
    Flow,
    Invoke,
    Key,
    Limit,
    Lost,
    OfAttempt,
    OfJob,
    Ok,
    Promise,
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


class Index:
    """The records by what they are about."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.queues: dict[str, Queue] = {}
        self.faults: list[Fault] = []
        self.dangling = 0
        """Records about an attempt or operation whose beginning is not in the history."""
        self.last_at = 0.0
        self._promises: list[Promise] = []
        self._operations: dict[str, Operation] = {}
        self._attempts: dict[tuple[str, str, str], Attempt] = {}
        readers: dict[type[Record], Callable[[Any], None]] = {
            Promise: self._promises.append, Invoke: self._invoke, Ok: self._answer, Refused: self._answer,
            Unknown: self._answer, Start: self._start, Extended: self._extended, Lost: self._lost,
            End: self._end, Settled: self._settled, Event: self._event, Result: self._result,
            Tick: self._tick,
            Schedule: self._schedule, Flow: self._flow, Limit: self._limit, Fault: self.faults.append,
            Dump: self._dump, State: self._state, Key: self._key,
        }  # fmt: skip
        for record in records:
            reader = readers.get(type(record))
            if reader is not None:
                reader(record)
            self.last_at = record.at
        self._attempts.clear()
        self._finish()

    @property
    def jobs(self) -> Iterator[Job]:
        for queue in self.queues.values():
            yield from queue.jobs.values()

    def queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name)
        return queue

    def kill_after_start(self, attempt: Attempt) -> float | None:
        """Return when the attempt's worker was killed next."""
        start = attempt.start
        begin = start.at - self.queues[start.queue].promises.skew_ms
        times = []
        for target in {start.worker, start.process}:
            kills = self._kills.get(target, ())
            place = bisect_left(kills, begin)
            if place < len(kills):
                times.append(kills[place])
        return min(times, default=None)

    def killed_at(self, attempt: Attempt) -> float | None:
        """Return when the attempt's worker was killed while the handler ran, if it was."""
        killed = self.kill_after_start(attempt)
        return None if killed is None or (attempt.end is not None and attempt.end.at <= killed) else killed

    def undone(self, at: float) -> bool:
        """Whether what was acknowledged at that time may have been undone by a fault."""
        return any(begin <= at <= end for begin, end, _ in self.doubts)

    def reopenings(self, job: Job) -> list[Window]:
        """Return when a job that had ended may have become one that has not."""
        if not job.operations and not job.queue.operations and len(job.additions) < 2:
            return []
        operations = [op for op in job.operations if op.invoke.verb in REOPENINGS]
        operations += (op for op in job.queue.operations if op.invoke.verb in REOPENINGS)
        if len(job.additions) > 1 and (job.queue.promises.reuse_ids or self.may_be_removed(job)):
            adds = [a.operation for a in job.all_additions if a.status != "refused" and not a.existed]
            operations += sorted(adds, key=lambda op: op.invoke.at)[1:]
        skew = job.queue.promises.skew_ms
        return sorted(Window(op.invoke.at - skew, op.latest + skew) for op in operations)

    def may_be_removed(self, job: Job) -> bool:
        """Whether an operation removed the job, or may have."""
        return any(op.invoke.verb in REMOVALS for op in (*job.operations, *job.queue.operations))

    def context(self, queue: Queue) -> list[Record]:
        """Return the records that are about no job: promises, limits, faults and the like."""
        promises = [record for record in self._promises if record.queue in ("*", queue.name)]
        operations = [record for operation in queue.operations for record in operation.records]
        dump = [] if queue.dump is None else [queue.dump]
        return [*promises, *queue.limits, *queue.schedules, *self.faults, *operations, *dump]

    def _invoke(self, record: Invoke) -> None:
        self._operations[record.op] = Operation(record)
        self.queue(record.queue)

    def _answer(self, record: Ok | Refused | Unknown) -> None:
        operation = self._operations.get(record.op)
        if operation is None:
            self.dangling += 1
        elif operation.answer is None or type(operation.answer) is Unknown:
            operation.answer = record

    def _start(self, record: Start) -> None:
        attempt = Attempt(record)
        job = self.queue(record.queue).job(record.job)
        job.attempts += (attempt,)
        if record.tag is not None:
            job.tags |= {record.tag}
        self._attempts[record.queue, record.job, record.receipt] = attempt

    def _attempt(self, record: OfAttempt) -> Attempt | None:
        attempt = self._attempts.get((record.queue, record.job, record.receipt))
        if attempt is None:
            self.dangling += 1
        return attempt

    def _extended(self, record: Extended) -> None:
        attempt = self._attempts.get((record.queue, record.job, record.receipt))
        if attempt is not None:  # else a lock of a job that was claimed and has not started
            attempt.extensions += (record,)

    def _lost(self, record: Lost) -> None:
        attempt = self._attempts.get((record.queue, record.job, record.receipt))
        if attempt is not None and attempt.lost is None:
            attempt.lost = record

    def _end(self, record: End) -> None:
        attempt = self._attempt(record)
        if attempt is not None:
            attempt.end = record

    def _settled(self, record: Settled) -> None:
        attempt = self._attempt(record)
        if attempt is not None:
            attempt.settle(record)

    def _job(self, record: OfJob) -> Job:
        return self.queue(record.queue).job(record.job)

    def _event(self, record: Event) -> None:
        job = self._job(record)
        job.queue.has_events = True
        if record.event is None or all(event.event != record.event for event in job.events):
            job.events += (record,)

    def _result(self, record: Result) -> None:
        self._job(record).results += (record,)

    def _tick(self, record: Tick) -> None:
        job = self._job(record)
        if all((tick.schedule, tick.tick) != (record.schedule, record.tick) for tick in job.ticks):
            job.ticks += (record,)
            job.queue.ticks.append(record)

    def _schedule(self, record: Schedule) -> None:
        self.queue(record.queue).schedules.append(record)

    def _flow(self, record: Flow) -> None:
        queue = self.queue(record.queue)
        queue.flows.append(record)
        queue.job(record.parent).flows += (record,)
        for name, child in record.children:
            self.queue(name).job(child).flows += (record,)

    def _limit(self, record: Limit) -> None:
        self.queue(record.queue).limits.append(record)

    def _dump(self, record: Dump) -> None:
        self.queue(record.queue).dump = record

    def _state(self, record: State) -> None:
        job = self._job(record)
        job.state = record
        if record.tag is not None:
            job.tags |= {record.tag}

    def _key(self, record: Key) -> None:
        queue = self.queue(record.queue)
        if record.job is not None:
            queue.job(record.job).keys += (record,)
        elif record.role != "queue":
            queue.strays.append(record)

    def _finish(self) -> None:
        """Link what could not be linked before every record was read."""
        self._kills: dict[str, list[float]] = {}
        for fault in sorted(self.faults, key=lambda fault: fault.begin):
            if fault.action == "kill":
                self._kills.setdefault(fault.target, []).append(fault.begin)
        self._resolve_promises()
        skew = max((queue.promises.skew_ms for queue in self.queues.values()), default=0.0)
        self.doubts = [
            Doubt(fault.begin - fault.may_lose_ms - skew, fault.begin + skew, fault.begin - skew)
            for fault in self.faults
            if fault.may_lose_ms > 0
        ]
        for operation in self._operations.values():
            operation.undone = operation.status == "ok" and self.undone(operation.latest)
            if operation.invoke.verb == "add":
                self._link_add(operation)
            elif operation.status != "refused":
                self._link(operation)
        if self.doubts:
            for job in self.jobs:
                for attempt in job.attempts:
                    settled = attempt.settled
                    attempt.undone = settled is not None and self.undone(settled.at)

    def _resolve_promises(self) -> None:
        for name, queue in self.queues.items():
            for record in sorted(self._promises, key=lambda record: record.queue != "*"):
                if record.queue in ("*", name):
                    values = {f: getattr(record, f) for f in Promises.__dataclass_fields__}
                    queue.promises = replace(
                        queue.promises, **{f: v for f, v in values.items() if v is not None}
                    )

    def _link_add(self, operation: Operation) -> None:
        queue, answer = self.queue(operation.invoke.queue), operation.answer
        ids = answer.ids if type(answer) is Ok else None
        existed = answer.existed if type(answer) is Ok else ()
        for place, spec in enumerate(operation.invoke.jobs):
            id = ids[place] if ids is not None and place < len(ids) else spec.id
            status: Status = "refused" if ids is not None and id is None else operation.status
            addition = Addition(operation, spec, status, place in existed)
            if spec.tag is not None:
                queue.tags.setdefault(spec.tag, []).append(addition)
            id = id or spec.id
            if id is not None:
                job = queue.job(id)
                job.additions += (addition,)
                if spec.tag is not None and status != "refused":
                    job.tags |= {spec.tag}
            elif spec.tag is None and status == "unknown":
                queue.anonymous.append(addition)

    def _link(self, operation: Operation) -> None:
        queue, answer = self.queue(operation.invoke.queue), operation.answer
        ids = answer.ids if type(answer) is Ok and answer.ids is not None else operation.invoke.ids
        for id in ids:
            if id is not None:
                queue.job(id).operations += (operation,)
        if not operation.invoke.ids and (type(answer) is not Ok or answer.ids is None):
            queue.operations.append(operation)
