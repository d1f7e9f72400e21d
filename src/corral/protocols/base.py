"""What a protocol is to the rest of Corral, and what the protocols share."""

import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgpack

from corral.core.event import JobEvent
from corral.core.filter import JobFilter
from corral.core.http_api import HttpApi
from corral.core.job import Job, JobOptions, JobState
from corral.core.options import Capability
from corral.core.ports import (
    Added,
    Broker,
    EventLog,
    Flows,
    Inspector,
    Jobs,
    Operator,
    Profile,
    Reporter,
    Schedules,
    Snapshot,
)
from corral.errors import InvalidName, Refused, Unsupported
from corral.store.client import Store

PAGE = 500
"""Jobs read or changed in one step of a search."""
EVENT_PAGE, MOST_EVENT_PAGES = 1000, 20
"""Events read for one job's, in one step and in how many."""
CLOCKS_APART_MS = 5000
"""How far a producer's clock may be from the server's, which makes the ids of events."""

Rows = TypeVar("Rows")


@dataclass(frozen=True, kw_only=True)
class ProtocolSpec:
    """What the rest of Corral knows of a protocol without calling it."""

    name: str
    summary: str
    """One line for help texts."""
    capabilities: frozenset[Capability]
    options: Mapping[str, str]
    """Job options only this protocol knows, each with its help text."""
    default_queue: str
    default_namespace: str
    tags_queues: bool = False
    """Whether a hash tag around a queue's name puts all of its keys into one slot of a cluster."""
    promote_ms: int | None = None
    """How often workers search for due jobs, where the contract defines it."""
    priority: str = ""
    """Which priorities run first."""
    metric_states: Mapping[JobState, str] | None = None
    """The states as the contract's own metric names them, where it has one."""
    metric_names: Mapping[str, str] = field(default_factory=dict)
    """Names in the contract of worker metrics, by Corral's names of them (both without `_total`)."""
    has_http: bool = False
    """Whether the contract has an HTTP interface of its own."""
    has_job_events: bool = False
    """Whether each job has an event log of its own."""


@dataclass(frozen=True)
class Binding:
    """One queue of one protocol on one server, the clock, and (for workers) the profile."""

    store: Store
    queue: str
    namespace: str
    """What the protocol's keys begin with: `bull`, `bridge`, or nothing."""
    clock: Callable[[], int]
    """Milliseconds since the epoch."""
    profile: Profile = field(default_factory=lambda: Profile(name="producer"))


class Ports(typing.Protocol):
    """The ports of one queue, each made when first used; None where the protocol has no such port."""

    @property
    def broker(self) -> Broker: ...
    @property
    def reporter(self) -> Reporter: ...
    @property
    def events(self) -> EventLog: ...
    @property
    def inspector(self) -> Inspector: ...
    @property
    def operator(self) -> Operator: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def schedules(self) -> Schedules | None: ...
    @property
    def flows(self) -> Flows | None: ...
    @property
    def http(self) -> HttpApi | None: ...


class Protocol(typing.Protocol):
    """A wire protocol; each package below exports one as `PROTOCOL`."""

    @property
    def spec(self) -> ProtocolSpec: ...

    def check(self, options: JobOptions, now: int) -> None:
        """Refuse options that only this protocol can tell to be wrong."""

    async def queues(self, store: Store, namespace: str) -> list[str]:
        """Return the names of the queues in a namespace."""

    def bind(self, binding: Binding) -> Ports:
        """Return the ports of one queue."""


def unsupported(protocol: str, what: str, way_out: str) -> Unsupported:
    """Return the error for what a protocol has not.

    >>> unsupported("streams", "pause", "stop its workers instead")
    Unsupported("protocol 'streams' has no pause; stop its workers instead")
    """
    return Unsupported(f"protocol {protocol!r} has no {what}; {way_out}")


# -- submitting ---------------------------------------------------------------------------------------------


def encode_apart(
    jobs: Sequence[Job], encode: Callable[[Sequence[Job]], Rows], together: bool
) -> tuple[Rows, dict[int, Refused]]:
    """Return the rows of these jobs, and the refusals by position: none where they stand together."""
    try:
        return encode(jobs), {}
    except Refused:
        if together:
            raise
    refusals: dict[int, Refused] = {}
    for position, job in enumerate(jobs):
        try:
            encode([job])
        except Refused as error:
            error.position = position
            refusals[position] = error
    return encode([job for position, job in enumerate(jobs) if position not in refusals]), refusals


def with_refusals(
    answers: Sequence[Added | Refused], refusals: Mapping[int, Refused]
) -> list[Added | Refused]:
    """Return the answers with the refusals in their places."""
    if not refusals:
        return list(answers)
    left = iter(answers)
    return [refusals.get(n) or next(left) for n in range(len(answers) + len(refusals))]


def raise_refusal(answers: Sequence[Added | Refused]) -> None:
    """Raise the first refusal with its position."""
    for position, answer in enumerate(answers):
        if isinstance(answer, Refused):
            answer.position = position
            raise answer


def check_ids(jobs: Sequence[Job]) -> None:
    """Refuse jobs without an id, by which a ledger knows them."""
    for position, job in enumerate(jobs):
        if not job.id:
            error = InvalidName(f"job {job.name!r} has no id by which a ledger could know it; give it one")
            error.position = position
            raise error


# -- jobs by ids or by a filter -----------------------------------------------------------------------------


async def search(inspector: Inspector, jobs: JobFilter) -> list[Job]:
    """Return the jobs that a filter selects, state by state."""
    found: list[Job] = []
    for state in _states(jobs, JobState):
        start = 0
        while jobs.limit is None or len(found) < jobs.limit:
            page = await inspector.jobs(state, start, PAGE)
            found += filter(jobs.has, page)
            start += len(page)
            if len(page) < PAGE:
                break
    return found[: jobs.limit]


async def for_jobs(
    inspector: Inspector,
    jobs: Jobs,
    states: Iterable[JobState],
    act: Callable[[Sequence[str]], Awaitable[list[str]]],
) -> list[str]:
    """Call `act` page by page with the ids, or with those a filter selects, in `states` where it names none.

    Return the ids for which it was done. No job is acted on twice, however often it comes back.
    """
    if not isinstance(jobs, JobFilter):
        chunks = [jobs[start : start + PAGE] for start in range(0, len(jobs), PAGE)]
        return [job_id for chunk in chunks for job_id in await act(chunk)]
    done: dict[str, None] = {}
    for state in _states(jobs, states):
        start = 0
        while jobs.limit is None or len(done) < jobs.limit:
            page = await inspector.jobs(state, start, PAGE)
            ids = [job.id for job in page if job.id not in done and jobs.has(job)]
            acted = await act(ids if jobs.limit is None else ids[: jobs.limit - len(done)]) if ids else []
            done.update(dict.fromkeys(acted))
            if len(page) < PAGE:
                break
            # those that left their place let the rest move up
            start += len(page) - len(acted)
    return list(done)


def encode_filter(jobs: JobFilter, states: Mapping[str, JobState]) -> bytes:
    """Return the criteria that the snapshot scripts check, in the wire's names of the states."""
    words = None if jobs.states is None else [word for word, state in states.items() if state in jobs.states]
    names = None if jobs.names is None else sorted(jobs.names)
    criteria = [False if part is None else part for part in (words, names, jobs.since, jobs.until)]
    packed: bytes = msgpack.packb(criteria, use_bin_type=False)
    return packed


# -- events -------------------------------------------------------------------------------------------------


async def events_of(log: EventLog, job: Job, after: str = "-") -> list[JobEvent]:
    """Return the events of one job among those of its queue, as far as a bounded read finds them."""
    if after == "-":
        after = f"{max(job.created_at - CLOCKS_APART_MS, 0)}-0"
    events: list[JobEvent] = []
    for _ in range(MOST_EVENT_PAGES):
        page = await log.range(after, EVENT_PAGE)
        events += [event for event in page if event.job_id == job.id]
        if len(page) < EVENT_PAGE:
            break
        after = page[-1].id
    return events


def _states(jobs: JobFilter, usual: Iterable[JobState]) -> list[JobState]:
    return [state for state in JobState if state in (jobs.states if jobs.states is not None else set(usual))]
