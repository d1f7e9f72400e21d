"""The ports between a protocol and the rest of Corral.

Everything is a list, so bulk needs no second verb and a single job is a batch of one.
Each port is bound to one queue of one protocol.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import force_setattr

from corral.core.event import EventPage, Extent, JobEvent, Marks
from corral.core.filter import JobFilter
from corral.core.job import Claim, Job, JobState, Keep, R, RContra
from corral.core.outcome import Settlement
from corral.core.schedule import Schedule, ScheduleRule
from corral.errors import InvalidOptions, Refused, SettleError

Jobs = Sequence[str] | JobFilter
"""The jobs a write is about: their ids, or a filter that selects them."""


# -- Broker -------------------------------------------------------------------------------------------------


class Added(Struct, frozen=True, gc=False):
    """A submitted job: its id, and whether that id, its deduplication or its idempotency key was known."""

    id: str
    existed: bool = False


class Ledger(Struct, frozen=True):
    """The ids submitted by one write, so that repeating the write adds nothing."""

    name: str
    """Unique for one write (one batch of one query)."""
    seconds: int
    """How long it is kept unless it is dropped earlier."""


class RestReason(StrEnum):
    """The reason why a turn brought no more claims."""

    SATISFIED = "satisfied"
    """It brought as many as were wanted."""
    DRAINED = "drained"
    LIMITED = "limited"
    PAUSED = "paused"
    MAXED = "maxed"


class Rest(Struct, frozen=True):
    """Why a turn brought no more claims, and until when (ms since the epoch) it will stay so."""

    reason: RestReason
    until: int | None = None
    cursor: Any = None
    """The protocol's own mark of what the turn saw, for `wait`."""


class Turn(Struct, Generic[R], frozen=True):
    """The answer to one trip: a verdict per settlement (None: applied), new claims, and the rest."""

    verdicts: Sequence[SettleError | None]
    claims: Sequence[Claim[R]]
    rest: Rest
    unhandled: Sequence[str] = ()
    """Names of waiting jobs that were not claimed because the worker has no handler for them."""


class Extension(Struct, Generic[R], frozen=True):
    """The result of a renewal: claims that are lost, and claims that should be cancelled."""

    lost: Sequence[Claim[R]] = ()
    cancelled: Sequence[Claim[R]] = ()


class Recovery(Struct, Generic[R], frozen=True):
    """The result of a recovery: claims to adopt (for an owner), ids requeued, ids ended for good."""

    claims: Sequence[Claim[R]] = ()
    requeued: Sequence[str] = ()
    ended: Sequence[str] = ()
    is_skipped: bool = False
    """Whether nothing was searched, because another worker had searched within the interval."""
    next_ms: int | None = None
    """From now until the next search, where the protocol says so; None: the worker's own interval."""


class Limit(Struct, frozen=True):
    """At most `count` claims in `duration` ms (or a timedelta).

    >>> Limit(100, timedelta(minutes=1)).duration
    60000
    """

    count: int
    duration: int

    if TYPE_CHECKING:

        def __init__(self, count: int, duration: int | timedelta) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.duration, timedelta):
            force_setattr(self, "duration", self.duration // timedelta(milliseconds=1))


class StartLimiter(Protocol):
    """Counts the jobs of each name that begin, in all Corral workers of a queue; in every protocol alike."""

    async def take(self, name: str, limit: Limit, want: int) -> tuple[int, int]:
        """Return how many of `want` jobs may begin now, and after how many ms more may."""


GROUP_CONCURRENCY = "group_concurrency"
"""The setting of a worker (`Profile.extra`) that limits how many jobs of each group are active at a time."""
MOST_ACTIVE = 10_000


class QueueLimits(Struct, frozen=True):
    """The limits of a whole queue: jobs active at a time, and claims in a time; None: no limit."""

    concurrency: int | None = None
    rate: Limit | None = None


UNKNOWN_MS = 3_600_000


class Profile(Struct, frozen=True, kw_only=True):
    """A worker's settings as far as a protocol needs them; it ignores those it does not know."""

    name: str
    lock_ms: int = 30_000
    max_stalls: int = 1
    """How often a job may be found abandoned before it ends."""
    recover_ms: int = 30_000
    """The most time between two searches for abandoned jobs."""
    promote_ms: int | None = None
    """Between two searches for due jobs, where no turn searches; None: the protocol's own interval."""
    limit: Limit | None = None
    keep_completed: Keep | None = None
    keep_dead: Keep | None = None
    metrics_points: int | None = None
    serves: tuple[str, ...] | None = None
    """The names of jobs that the worker has handlers for; None: any."""
    unknown_ms: int = UNKNOWN_MS
    """How long jobs without a handler are left to other workers; 0: they end at once."""
    extra: dict[str, Any] = {}
    """Settings only one protocol knows (capabilities, region …)."""

    @property
    def sweep_ms(self) -> int:
        """From one search for abandoned jobs to the next: a little less than `recover_ms`, for its delays."""
        return self.recover_ms - self.recover_ms // 50

    def whole_numbers(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Return the named settings of `extra`, each a whole number from 1 to its limit."""
        settings = {name: self.extra[name] for name in limits if name in self.extra}
        for name, value in settings.items():
            if type(value) is not int or not 1 <= value <= limits[name]:
                raise InvalidOptions(f"{name}={value!r} is not a whole number from 1 to {limits[name]}")
        return settings


class Broker(Protocol[R]):
    """Submits, claims and settles jobs."""

    async def submit(
        self, jobs: Sequence[Job], ledger: Ledger | None = None, together: bool = True
    ) -> list[Added | Refused]:
        """Submit jobs; return for each, in order, what was added. A job whose id exists is left as it is.

        `together`: where one job is refused before anything is written, raise its error with `position` and
        write none of them; else its error stands in its place and the others are submitted. With a `ledger`
        every job needs an id, and one that the ledger knows is not submitted again.
        """

    async def drop_ledger(self, ledger: Ledger) -> None:
        """Delete a ledger whose write will not be repeated."""

    async def turn(self, settlements: Sequence[Settlement[R]], want: int) -> Turn[R]:
        """Settle jobs that ended, then claim up to `want` jobs, in one trip.

        A lost answer raises `RedisConnectionError`; the receipt of its claims is then in `unanswered`.
        A turn that only settles may run beside one that claims, but never two that claim.
        """

    async def wait(self, rest: Rest) -> None:
        """Return when there may be work again, at most 5 s from now; on a connection of its own."""

    async def extend(self, claims: Sequence[Claim[R]], receipts: Sequence[R] = ()) -> Extension[R]:
        """Renew the locks of these claims, and of all that was claimed under these receipts of trips."""

    async def promote(self) -> int:
        """Make due jobs claimable; return how many were moved."""

    async def recover(self, owner: R | None = None) -> Recovery[R]:
        """Requeue the jobs of dead workers; with an `owner` (a receipt), return what that trip claimed."""

    @property
    def unanswered(self) -> R | None:
        """The receipt of a trip that claims and has no answer: it is under way, or its answer was lost and
        `recover` was not called for it yet; else None. It may be read in another thread."""

    async def close(self) -> None:
        """Close the connections this broker opened for itself."""


# -- Reporter, EventLog -------------------------------------------------------------------------------------


class Reporter(Protocol[RContra]):
    """What a handler reports while it runs; each call checks that the claim is still held.

    A `mark` belongs to one line or event: a call that is repeated with it, because its reply was lost, writes
    nothing more.
    """

    async def progress(self, claim: Claim[RContra], value: Any) -> None:
        """Store the progress and emit it as an event."""

    async def log(self, claim: Claim[RContra], line: str, mark: str = "") -> int:
        """Append a line to the job's log; return how many lines it has."""

    async def emit(self, claim: Claim[RContra], step: str, data: Any, mark: str = "") -> None:
        """Emit an event of the handler's own."""

    async def children_results(
        self, claim: Claim[RContra], queue: str | None = None, name: str | None = None
    ) -> list[Any]:
        """Return the results of the job's children that completed, in the order of the flow.

        With `queue` and `name` those of that kind; of a child that was removed, the queue alone is known.
        """

    async def beat(self, stopping: bool = False) -> int | None:
        """Record a heartbeat of the worker; with `stopping`, deregister it.

        Return after how many ms the next is due; None: with the next renewal of locks.
        """


class JobEnd(Struct, frozen=True, kw_only=True):
    """How a job ended."""

    state: JobState
    result: Any = None
    reason: str | None = None
    trace: tuple[str, ...] = ()
    attempts_made: int = 0


class NotEnded(StrEnum):
    """Why there is no end of a job."""

    PENDING = "pending"
    """It waits or runs."""
    MISSING = "missing"
    """It does not exist."""


class EventWaiter(Protocol):
    """Waits for events, without reading them."""

    async def wait(self, after: str, seconds: float) -> None:
        """Return when there is an event later than `after`, at most so many seconds from now."""

    async def close(self) -> None:
        """Close its connection."""


class EventLog(Protocol):
    """The events of a queue, in order."""

    async def range(
        self, after: str = "-", count: int = 1000, max_bytes: int | None = None
    ) -> list[JobEvent]:
        """Return up to `count` events later than id `after` ("-": from the beginning).

        With `max_bytes`, only as many as fit into it, and at least one.
        """

    def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        """Yield events as they come, from later than `after` ("$": from now)."""

    async def of_job(self, job: Job, after: str = "-") -> list[JobEvent]:
        """Return the events of one job that are kept and later than `after`, oldest first."""

    async def position(self) -> str:
        """Return the id of the last event; "0-0" where there was none."""

    def waiter(self) -> EventWaiter:
        """Return what waits for further events, on a connection of its own."""

    async def ends_of(self, ids: Collection[str], after: str) -> dict[str, JobEnd]:
        """Return how jobs that do not exist any more ended, as far as events later than `after` say so."""

    async def extent(self) -> Extent:
        """Return how far the log reaches."""

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        """Return the events among the `count` entries after `after` and no later than `until`, as columns.

        A page that saw fewer than `count` entries is the last.
        """

    async def marks(self, after: str, until: str, first: int, step: int) -> Marks:
        """Count the events later than `after` and no later than `until`; marks at `first` and each `step` on.

        One call counts a bounded stretch only: go on after its last event until it is whole.
        """


# -- Inspector, Operator ------------------------------------------------------------------------------------


class CurrentJob(Struct, frozen=True):
    """A job that a worker runs."""

    id: str
    name: str
    since: int
    """When the attempt was claimed, in ms since the epoch."""


class WorkerRecord(Struct, frozen=True, kw_only=True):
    """What a Corral worker writes about itself on each beat, beside its protocol's own registry."""

    name: str
    host: str
    process: int
    since: int
    """When it started, in ms since the epoch."""
    at: int
    """When this was written."""
    concurrency: int
    running_count: int = 0
    running: list[CurrentJob] = []
    """The jobs that have run longest, at most `MOST_RUNNING`."""
    handlers: dict[str, Any] = {}
    """Job names, each with the JSON schema of its data; None where the handler takes any."""
    unhandled: dict[str, int] = {}
    """Job names without a handler here, and when such a job was last seen (ms since the epoch)."""
    schedules: list[str] | None = None
    """The schedules of this queue that its app declares; None: it was written by an older version."""
    keeps_all: bool = False
    """Whether it keeps all jobs that end, or end dead, and have no removal option of their own."""


MOST_RUNNING = 100
MINUTE_BOUNDS_MS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
"""The upper bounds of the histograms of a minute; the last bucket has none."""


class Minute(Struct, frozen=True, kw_only=True):
    """What the Corral workers of a queue did in one minute; the histograms are of samples."""

    at: int
    """Its begin, in ms since the epoch."""
    added: int | None = None
    """Computed from what ended and how the number of unfinished jobs changed; None where that is unknown."""
    completed: int = 0
    dead: int = 0
    retried: int = 0
    cancelled: int = 0
    waiting: int | None = None
    """How many jobs were waiting, by the last beat within the minute."""
    waits: tuple[int, ...] = ()
    """How many jobs waited so long from being due to their first attempt, by `MINUTE_BOUNDS_MS`."""
    runs: tuple[int, ...] = ()
    """How many attempts ran so long, by `MINUTE_BOUNDS_MS`."""


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker as the server sees it."""

    name: str
    address: str | None = None
    seen_at: int | None = None
    extra: dict[str, Any] = {}
    record: WorkerRecord | None = None
    """What it wrote about itself; None for the workers of other clients."""


class WorkerRecords(Protocol):
    """What Corral workers write about themselves: keys of Corral's own, which expire.

    They are the same in every protocol, and no other client reads them.
    """

    async def write(
        self, record: WorkerRecord, counts: Mapping[int, Mapping[str, int]], keep_ms: int
    ) -> None:
        """Write a worker's record, and add to the counts of minutes: by name, by the minute's begin in ms."""

    async def forget(self, worker: str) -> None:
        """Delete a worker's record."""

    async def workers(self) -> dict[str, WorkerRecord]:
        """Return the records of the workers that are alive, by their names."""

    async def declare_schedules(self, ids: Sequence[str]) -> None:
        """Note that an app declares these schedules."""

    async def declared_schedules(self) -> set[str]:
        """Return the schedules that an app has declared at some time."""

    async def minutes(self, count: int = 60) -> list[Minute]:
        """Return what workers did in the last minutes (at most a day), the oldest first."""


class Gauge(Struct, frozen=True):
    """A number that a protocol reports about itself: its metric name, help text and labels."""

    name: str
    text: str
    value: float
    labels: dict[str, str] = {}


class JobPage(Struct, frozen=True):
    """Some jobs in a state, and the cursor for more (None: there are no more)."""

    jobs: Sequence[Job]
    cursor: str | None


class Notice(Struct, frozen=True):
    """What an operator should know of a queue's keys, and where something is wrong how to mend it."""

    finding: str
    mend: str = ""


class Inspector(Protocol):
    """Reads."""

    async def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state this protocol counts."""

    async def page(self, state: JobState, cursor: str = "", count: int = 100) -> JobPage:
        """Return jobs in a state: the next to run first, the last to end first.

        Jobs that move between two pages are neither left out nor repeated, as long as they stay in the state.
        The work is bounded, so a page may be short and still have a next one.
        """

    async def jobs(self, state: JobState, count: int = 100) -> list[Job]:
        """Return the first jobs in a state."""

    async def job(self, job_id: str) -> Job | None:
        """Return one job with its state; None where it does not exist."""

    async def ends(self, ids: Sequence[str]) -> list[JobEnd | NotEnded]:
        """Return how each of these jobs ended; what it costs does not grow with the data of the others."""

    async def search(self, jobs: JobFilter) -> list[Job]:
        """Return the jobs that a filter selects, state by state, each in the order of `jobs`."""

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        """Return lines of a job's log."""

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are alive now."""

    async def is_paused(self) -> bool:
        """Return whether the queue is paused."""

    async def limits(self) -> QueueLimits:
        """Return the limits of the whole queue."""

    async def gauges(self) -> list[Gauge]:
        """Return the metrics that the protocol defines about itself, of its whole namespace."""

    async def notices(self) -> list[Notice]:
        """Return what an operator should know of this queue's keys."""


class Operator(Protocol):
    """Writes on demand. What a protocol cannot do raises `Unsupported` with the way out.

    Verbs over jobs take ids or a filter, and return the ids of the jobs for which it was done.
    """

    async def pause(self) -> None:
        """Stop claims until `resume`."""

    async def resume(self) -> None:
        """Allow claims again."""

    async def retry(self, jobs: Jobs) -> list[str]:
        """Put ended jobs back in the queue with the attempts they have made; a filter selects dead jobs."""

    async def replay(self, jobs: Jobs) -> list[str]:
        """Put ended jobs back in the queue with all their attempts anew; a filter selects dead jobs."""

    async def promote(self, jobs: Jobs) -> list[str]:
        """Make delayed jobs claimable now."""

    async def remove(self, jobs: Jobs) -> list[str]:
        """Delete jobs that are not active."""

    async def cancel(self, jobs: Jobs) -> list[str]:
        """End waiting jobs, and ask the workers of active ones to end them."""

    async def update(
        self, job_id: str, *, data: Any = UNSET, delay: int | None = None, priority: int | None = None
    ) -> None:
        """Change a job's data, the delay of a delayed job from now on, or its priority."""

    async def drain(self, delayed: bool = False) -> None:
        """Delete all waiting jobs, with `delayed` the delayed ones too; active and ended ones stay."""

    async def clean(self, jobs: JobFilter) -> list[str]:
        """Delete ended jobs that a filter selects; completed ones where it names no states."""

    async def keep_events(self, count: int) -> None:
        """Keep about the last `count` events, where the queue itself has such a setting."""

    async def set_limits(self, concurrency: int | None = None, rate: Limit | None = None) -> None:
        """Limit the whole queue: jobs active at a time, and claims in a time; None lifts a limit."""

    async def obliterate(self, force: bool = False) -> None:
        """Delete the queue and all its jobs; `QueueInUse` where jobs are active, unless `force`."""


# -- Schedules, Flows, Snapshot -----------------------------------------------------------------------------


class Schedules(Protocol):
    """Jobs that are added repeatedly by a rule."""

    async def list(self) -> "list[Schedule]":
        """Return the schedules of this queue, the next to fire first."""

    async def upsert(self, job: Job, rule: ScheduleRule) -> str:
        """Add the schedule whose id is the job's, or change it: "added", "changed" or "kept"."""

    async def remove(self, schedule_id: str) -> bool:
        """Delete a schedule; jobs it has added stay. Return whether it existed."""

    async def pause(self, schedule_id: str) -> bool:
        """Stop firings until it is resumed; those in between are skipped. Return whether it exists."""

    async def resume(self, schedule_id: str) -> bool:
        """Fire again, from now on. Return whether it exists."""

    async def run_now(self, schedule_id: str) -> str | None:
        """Fire once, besides its own times; return the id of that job, None without such a schedule."""

    def firing_id(self, schedule_id: str, at: int) -> str:
        """Return the id of the job that a schedule adds for this time (ms since the epoch)."""


class Flow(Struct, frozen=True):
    """A job and its children, which run before it; each job names its own queue.

    `namespace` is the key prefix of this job's queue, where it differs from the others'.
    """

    job: Job
    children: tuple["Flow", ...] = ()
    namespace: str | None = None
    first: str | None = None
    """The field of its data that takes the result of its only child ("": all its data)."""


class AddedFlow(Struct, frozen=True):
    """What became of the first job of a flow, and of those below it."""

    answer: Added | Refused
    created_at: int
    children: "tuple[AddedFlow, ...]" = ()


class Children(Struct, frozen=True):
    """A job's children by the names of their keys, and how each ended."""

    processed: dict[str, Any]
    """Completed, with their results."""
    unprocessed: list[str]
    """Not ended."""
    ignored: dict[str, str]
    """Failed, with their reasons; the parent goes on without them."""
    failed: list[str]
    """Failed, and with them the parent."""


class Flows(Protocol):
    """Trees of jobs in which parents wait for their children."""

    async def add(self, flow: Flow) -> Flow:
        """Add a flow at once or not at all; return it with the ids of its jobs."""

    async def add_many(self, flows: Sequence[Flow]) -> list[AddedFlow]:
        """Add flows at once or not at all; return what became of each job."""

    async def tree(self, job_id: str, depth: int = 10, most_children: int = 20) -> Flow | None:
        """Return a job of this queue with its children, `depth` levels; None where it does not exist."""

    async def parents(self, start: int = 0, count: int = 100) -> list[Job]:
        """Return the jobs that wait for their children, the latest first."""

    async def children(self, job_id: str) -> Children:
        """Return all children of a job."""

    async def remove_unprocessed(self, job_id: str) -> None:
        """Delete the job's children, and theirs, that nobody holds and that have not failed."""


class Location(Struct, frozen=True):
    """Where a job is listed at one moment: it should have a record, and stand in one place."""

    id: str
    has_record: bool
    places: tuple[str, ...] = ()
    """The protocol's own names of where its id is listed; a place that lists it twice is here twice."""


class Leak(Struct, frozen=True):
    """Something left behind that belongs to no job."""

    kind: str
    """`lock`, `counter` or `mark`."""
    subject: str
    detail: str


class Snapshot(Protocol):
    """Every job of a queue, while it goes on working."""

    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        """Return some ids, and the cursor for more ("0": that was all).

        A job that exists all the while is among them once or more often; others may be or may not.
        """

    async def read(self, ids: Sequence[str], jobs: JobFilter) -> list[Job]:
        """Return those of these jobs that exist and pass the filter, each with its state at that moment."""

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        """Return some (place, id) of all places that list jobs, and the cursor for more ("0": all)."""

    async def locate(self, ids: Sequence[str]) -> list[Location]:
        """Return where each of these is, exactly; dearer than `read`."""

    async def leaks(self) -> list[Leak]:
        """Return locks, counters and marks that belong to no job."""

    async def memory(self, ids: Sequence[str]) -> int:
        """Return how many bytes of the server's memory these jobs take together."""
