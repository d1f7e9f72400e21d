"""Histories written by hand, for tests: one line for each thing that happens."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Literal, TypeVar

import msgspec

from tests.faults.checker.check import Report, check
from tests.faults.checker.history import History
from tests.faults.checker.records import (
    AnyRecord,
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
    NewJob,
    Ok,
    Outcome,
    Promise,
    Refused,
    Result,
    Schedule,
    Settled,
    Start,
    State,
    Tick,
    Unknown,
    Verb,
)

Q = "mail"
LOCK_MS = 1000.0

R = TypeVar("R", bound=AnyRecord)
Verdict = Literal["applied", "refused", "unknown"]


class Written:
    """A history; times are milliseconds, and jobs belong to one queue."""

    def __init__(self, **promises: Any) -> None:
        self.records: list[AnyRecord] = []
        self._seqs: dict[str, int] = {}
        self._ops = count(1)
        self.write(0, "harness", Promise(**promises))

    def write(self, at: float, process: str, record: R) -> R:
        seq = self._seqs[process] = self._seqs.get(process, -1) + 1
        stamped = msgspec.structs.replace(record, at=float(at), process=process, seq=seq)
        self.records.append(stamped)
        return stamped

    def call(
        self,
        at: float,
        verb: Verb,
        *ids: str,
        jobs: Sequence[NewJob] = (),
        answer: Literal["ok", "refused", "unknown"] | None = "ok",
        answered_at: float | None = None,
        result: Sequence[str | None] | None = None,
        existed: Sequence[int] = (),
        process: str = "client",
    ) -> None:
        """A request and its answer, 1 ms later where nothing else is said."""
        op = f"op-{next(self._ops)}"
        self.write(at, process, Invoke(op=op, verb=verb, queue=Q, jobs=tuple(jobs), ids=ids))
        answered_at = at + 1 if answered_at is None else answered_at
        if answer == "ok":
            affected = None if result is None else tuple(result)
            self.write(answered_at, process, Ok(op=op, ids=affected, existed=tuple(existed)))
        elif answer is not None:
            self.write(answered_at, process, (Refused if answer == "refused" else Unknown)(op=op))

    def add(self, at: float, id: str | None = None, *, job: NewJob | None = None, **options: Any) -> None:
        """The add of one job."""
        self.call(at, "add", jobs=[job or NewJob(id=id)], **options)

    def start(
        self,
        at: float,
        job: str,
        receipt: str = "r1",
        worker: str = "w1",
        lock_ms: float | None = LOCK_MS,
        **fields: Any,
    ) -> None:
        until = None if lock_ms is None else at + lock_ms
        self.write(
            at, worker, Start(queue=Q, job=job, receipt=receipt, worker=worker, lock_until=until, **fields)
        )

    def end(
        self,
        at: float,
        job: str,
        receipt: str = "r1",
        worker: str = "w1",
        outcome: Literal["returned", "raised", "abandoned"] = "returned",
        value: str | None = "MQ==",
    ) -> None:
        value = value if outcome == "returned" else None
        self.write(at, worker, End(queue=Q, job=job, receipt=receipt, outcome=outcome, value=value))

    def settled(
        self, at: float, job: str, receipt: str = "r1", worker: str = "w1", outcome: Outcome = "completed",
        verdict: Verdict = "applied", delay: float = 0.0,
    ) -> None:  # fmt: skip
        record = Settled(queue=Q, job=job, receipt=receipt, outcome=outcome, verdict=verdict, delay=delay)
        self.write(at, worker, record)

    def run(
        self,
        begin: float,
        end: float,
        job: str,
        receipt: str = "r1",
        worker: str = "w1",
        outcome: Outcome = "completed",
        verdict: Verdict | None = "applied",
        value: str = "MQ==",
        delay: float = 0.0,
        **fields: Any,
    ) -> None:
        """An attempt from its start to its settlement, which is answered 1 ms after the handler's end."""
        self.start(begin, job, receipt, worker, **fields)
        ends: dict[str, Literal["returned", "raised"]] = {"completed": "returned"}
        self.end(end, job, receipt, worker, ends.get(outcome, "raised"), value)
        if verdict is not None:
            self.settled(end + 1, job, receipt, worker, outcome, verdict, delay)

    def extended(self, at: float, job: str, until: float, receipt: str = "r1", worker: str = "w1") -> None:
        self.write(at, worker, Extended(queue=Q, job=job, receipt=receipt, until=until))

    def lost(self, at: float, job: str, receipt: str = "r1", worker: str = "w1") -> None:
        self.write(at, worker, Lost(queue=Q, job=job, receipt=receipt))

    def event(self, at: float, job: str, name: str, event: str | None = None, **fields: Any) -> None:
        self.write(at, "observer", Event(queue=Q, job=job, name=name, event=event, **fields))

    def result(self, at: float, job: str, value: str) -> None:
        self.write(at, "client", Result(queue=Q, job=job, value=value))

    def fault(self, at: float, action: Any = "kill", target: str = "w1", may_lose_ms: float = 0.0) -> None:
        self.write(
            at, "harness", Fault(action=action, target=target, begin=float(at), may_lose_ms=may_lose_ms)
        )

    def schedule(self, *ticks: float, optional: Sequence[float] = ()) -> None:
        record = Schedule(queue=Q, schedule="every", ticks=ticks, optional=tuple(optional))
        self.write(0, "harness", record)

    def tick(self, at: float, tick: float, job: str) -> None:
        self.write(at, "observer", Tick(queue=Q, job=job, schedule="every", tick=tick))

    def flow(self, parent: str, *children: str, after: Literal["completed", "ended"] = "completed") -> None:
        pairs = tuple((Q, child) for child in children)
        self.write(0, "harness", Flow(queue=Q, parent=parent, children=pairs, after=after))

    def limit(self, most: int, per_ms: float | None = None, **fields: Any) -> None:
        self.write(0, "harness", Limit(queue=Q, max=most, per_ms=per_ms, **fields))

    def dump(
        self,
        at: float,
        places: Mapping[str, str] = {},
        *,
        keeps_ended: bool = False,
        keys: Sequence[Key] = (),
        **fields: Any,
    ) -> None:
        """What is left: the places of each job, separated by spaces, and keys."""
        self.write(at, "harness", Dump(queue=Q, keeps_ended=keeps_ended))
        for job, names in (places or {}).items():
            self.write(at, "harness", State(queue=Q, job=job, places=tuple(names.split()), **fields))
        for key in keys:
            self.write(at, "harness", key)

    def history(self) -> History:
        return History(sorted(self.records, key=lambda record: record.at))

    def check(self) -> Report:
        return check(self.history())

    @property
    def broken(self) -> set[str]:
        """What is broken, as `rule/code`."""
        return {f"{violation.rule}/{violation.code}" for violation in self.check().violations}

    def judged(self, rule: str) -> int:
        """How many cases a rule judged."""
        return next(verdict.cases for verdict in self.check().verdicts if verdict.rule == rule)


def key(name: str, role: Literal["queue", "job", "lock", "stray"], job: str | None = None) -> Key:
    """A key in the dump."""
    return Key(queue=Q, name=name, role=role, job=job)
