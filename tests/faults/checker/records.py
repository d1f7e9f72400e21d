"""The records of a job queue's history: what clients, workers, the server and the test harness write down."""

from typing import Literal

import msgspec

FORMAT = 1
"""The version of the format, written in each process's first record."""

UNSTAMPED = -1.0

Verb = Literal[
    "add", "cancel", "remove", "retry", "replay", "promote", "pause", "resume", "drain", "clean", "obliterate"
]
Outcome = Literal["completed", "dead", "cancelled", "retry", "released", "waiting_children"]

ENDS = frozenset({"completed", "dead", "cancelled"})
"""Outcomes, events and places that are the end of a job."""
RECOVERIES = frozenset({"stalled", "recovered"})
"""Events by which the server says that it took a job back from a worker."""
REMOVALS = frozenset({"remove", "drain", "clean", "obliterate"})
REOPENINGS = frozenset({"retry", "replay"})
"""Operations by which a job that has ended becomes one that has not."""


class Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """What every record has; a writer fills in the first three fields."""

    at: float = UNSTAMPED
    """Wall-clock time in milliseconds since 1970; within a process it never decreases."""
    process: str = ""
    """The process that wrote it: a name that no other process of this history has."""
    seq: int = -1
    """The number of the record within its process, from 0 without a gap."""
    note: str | None = None
    """Free text for people; no rule reads it."""


class Process(Record, frozen=True, tag_field="kind", tag="process"):
    """A process began to write."""

    role: str
    format: int
    pid: int | None = None
    host: str | None = None


class Promise(Record, frozen=True, tag_field="kind", tag="promise"):
    """What the queue promises in this run; `*` is every queue. A later record overrides single fields."""

    queue: str = "*"
    skew_ms: float | None = None
    """How far the clocks of two processes may differ; 5 where nobody says."""
    lock_ms: float | None = None
    """How long a lock lives, for starts that have no `lock_until`."""
    max_attempts: int | None = None
    max_stalls: int | None = None
    """How often an attempt that ended without a settlement may be followed by another."""
    stalls_are_attempts: bool | None = None
    early_recovery: bool | None = None
    """The jobs of a worker that was killed may start again before its locks have run out."""
    fifo: Literal["start", "claim"] | None = None
    """Jobs of one priority start in the order of their adds: by start time (for one worker that runs one job
    at a time) or by the `claim` number of each start."""
    priority: Literal["lower_first", "higher_first"] | None = None
    drained: bool | None = None
    """Every job has ended when the dump is taken."""
    reuse_ids: bool | None = None
    """An id may be added again after its job has ended, and is then a new job."""
    events: bool | None = None
    """The server's event log is recorded completely."""
    recovery_ms: float | None = None
    """How long after a kill the jobs of the killed worker start again at the latest."""


class NewJob(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """One job of an `add`."""

    id: str | None = None
    """The id that the client chose; absent: the server chooses."""
    tag: str | None = None
    """A value in the job's data by which a job without a known id is recognised. A tag names one job: two
    adds with the same tag make one job, as with an idempotency key."""
    priority: int = 0
    delay: float = 0.0
    max_attempts: int | None = None


class Invoke(Record, frozen=True, tag_field="kind", tag="invoke"):
    """A client is about to send a request."""

    op: str
    """A value that no other operation of this history has; the answer carries it too."""
    verb: Verb
    queue: str
    jobs: tuple[NewJob, ...] = ()
    """For `add`: the jobs."""
    ids: tuple[str, ...] = ()
    """For the other verbs: the jobs, none for the whole queue."""


class Ok(Record, frozen=True, tag_field="kind", tag="ok"):
    """The request was carried out."""

    op: str
    ids: tuple[str | None, ...] | None = None
    """For `add`: the id of each job, null for one that was refused; else the jobs on which it took effect:
    for `cancel` those that it ended, not those that were only requested to stop. Absent: as invoked."""
    existed: tuple[int, ...] = ()
    """For `add`: the places, from 0, of jobs whose id existed already, so that nothing was added."""


class Refused(Record, frozen=True, tag_field="kind", tag="refused"):
    """The request was refused and must have changed nothing."""

    op: str
    reason: str = ""


class Unknown(Record, frozen=True, tag_field="kind", tag="unknown"):
    """The answer was lost: the request may have been carried out or not."""

    op: str
    reason: str = ""


class OfJob(Record, frozen=True):
    """What every record about one job has."""

    queue: str
    job: str


class Start(OfJob, frozen=True, tag_field="kind", tag="start"):
    """A worker is about to call the handler."""

    receipt: str
    """The attempt's token; no other attempt of this job has it at the same time."""
    worker: str
    attempt: int | None = None
    """The number that the handler is given, from 1."""
    lock_until: float | None = None
    """Until when the lock is surely held: the time before the claim was sent, plus the life of a lock."""
    requested_at: float | None = None
    """When the request was sent that claimed the job."""
    claim: int | None = None
    """The place of this claim in the order in which the server made them."""
    group: str | None = None
    tag: str | None = None


class OfAttempt(OfJob, frozen=True):
    """What every later record about one attempt has."""

    receipt: str


class Extended(OfAttempt, frozen=True, tag_field="kind", tag="extended"):
    """The server confirmed that the lock was extended."""

    until: float
    """The time before the request was sent, plus the life of a lock."""


class Lost(OfAttempt, frozen=True, tag_field="kind", tag="lost"):
    """The server answered that the worker does not hold the lock any more."""


class End(OfAttempt, frozen=True, tag_field="kind", tag="end"):
    """The handler ended, and nothing was sent to the server yet."""

    outcome: Literal["returned", "raised", "abandoned"]
    value: str | None = None
    """What it returned: the bytes in base64, or a digest of them. Values are compared as strings."""
    error: str | None = None


class Settled(OfAttempt, frozen=True, tag_field="kind", tag="settled"):
    """A settlement was answered; one that is sent again has several."""

    outcome: Outcome
    verdict: Literal["applied", "refused", "unknown"]
    delay: float = 0.0
    """For `retry`: the time until the next attempt may start."""


class Event(OfJob, frozen=True, tag_field="kind", tag="event"):
    """An entry of the server's event log; reading it twice is no harm."""

    name: str
    """`completed`, `dead`, `cancelled`, `stalled`, `recovered`, or another name, which no rule reads."""
    event: str | None = None
    """The id of the entry in the log."""
    server_at: float | None = None
    value: str | None = None


class Result(OfJob, frozen=True, tag_field="kind", tag="result"):
    """A client read a job's result."""

    value: str


class Tick(OfJob, frozen=True, tag_field="kind", tag="tick"):
    """A job of a schedule was seen, by anyone and as often as it is seen."""

    schedule: str
    tick: float
    """The nominal time of the tick in milliseconds."""


class Schedule(Record, frozen=True, tag_field="kind", tag="schedule"):
    """A schedule and the ticks that it owes in this run."""

    queue: str
    schedule: str
    ticks: tuple[float, ...]
    optional: tuple[float, ...] = ()
    """Ticks that may be left out, as those within an outage; none may come twice."""


class Flow(Record, frozen=True, tag_field="kind", tag="flow"):
    """A parent that starts after its children."""

    queue: str
    parent: str
    children: tuple[tuple[str, str], ...]
    """Queue and id of each child."""
    after: Literal["completed", "ended"] = "completed"
    """Whether a child that ended as dead or cancelled holds its parent back."""


class Limit(Record, frozen=True, tag_field="kind", tag="limit"):
    """A limit on starts in a time, or, without `per_ms`, on attempts at the same time."""

    queue: str
    max: int
    per_ms: float | None = None
    by: Literal["queue", "worker", "group"] = "queue"
    """What has the limit: the queue, each worker, or each group of the starts."""
    window: Literal["sliding", "fixed"] = "sliding"
    """`fixed`: time is cut into windows, so that the jobs of two windows may come close together."""
    tolerance_ms: float = 0.0
    """How much later than its claim a start may be recorded where `requested_at` is absent."""


class Fault(Record, frozen=True, tag_field="kind", tag="fault"):
    """The harness did harm."""

    action: Literal["kill", "freeze", "cut", "restart", "failover", "other"]
    target: str
    """The worker, the process, or `server`."""
    begin: float
    end: float | None = None
    may_lose_ms: float = 0.0
    """What the server acknowledged within this time before `begin` may be undone."""


class Dump(Record, frozen=True, tag_field="kind", tag="dump"):
    """The `state` and `key` records of this queue are the whole keyspace after every process stopped."""

    queue: str
    keeps_ended: bool = False
    """Jobs that have ended stay in the keyspace until they are removed."""


class State(OfJob, frozen=True, tag_field="kind", tag="state"):
    """A job in the dump."""

    places: tuple[str, ...]
    """Each structure that lists the job, as often as it does: `waiting`, `delayed`, `active`,
    `waiting_children`, `completed`, `dead`, `cancelled`, or another name for a place that is no end."""
    result: str | None = None
    attempts_made: int | None = None
    tag: str | None = None


class Key(Record, frozen=True, tag_field="kind", tag="key"):
    """A key in the dump."""

    queue: str
    name: str
    role: Literal["queue", "job", "lock", "stray"]
    """Of the queue as a whole, of one job, the lock of one job, or of nobody."""
    job: str | None = None


AnyRecord = (
    Process | Promise | Invoke | Ok | Refused | Unknown | Start | Extended | Lost | End | Settled | Event
    | Result | Tick | Schedule | Flow | Limit | Fault | Dump | State | Key
)  # fmt: skip
Answer = Ok | Refused | Unknown


def kind(record: Record) -> str:
    """Return the record's kind as it stands in the file."""
    return str(type(record).__struct_config__.tag)
