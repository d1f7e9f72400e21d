"""Queue: adding jobs, reading them, and operating on them."""

import reprlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from datetime import timedelta
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from msgspec import UNSET
from msgspec.structs import replace

from corral.core import naming, options
from corral.core.batch import encode_all, refused_at
from corral.core.conversion import Conversion
from corral.core.filter import JobFilter
from corral.core.http_api import HttpApi
from corral.core.job import Job, JobOptions, JobState
from corral.core.options import AddOptions, Durability, strongest
from corral.core.ports import (
    Added,
    EventLog,
    Flows,
    JobPage,
    Jobs,
    Limit,
    Minute,
    QueueLimits,
    Schedules,
    WorkerInfo,
)
from corral.errors import (
    AddInterrupted,
    InvalidOptions,
    InvalidPayload,
    NotDurable,
    RedisError,
    RedisResponseError,
    Refused,
)
from corral.handle import JobHandle, with_stored
from corral.protocols.base import Ports, Protocol, unsupported
from corral.results import ResultListener

if TYPE_CHECKING:
    from corral.app import Corral
    from corral.protocols.records import QueueRecords

T = TypeVar("T")

NewJob = tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]
"""(name, data), or (name, data, options)."""

Check = Callable[[Any], None]
"""Raises `InvalidArguments` for data that a handler could not be called with."""

CHECKED_TOGETHER = 10_000
"""How many jobs of a generator are checked before the first of them is written; of a list, all."""


class _Draft(Job, frozen=True, gc=False):
    """A job of a list that is being added; nothing else refers to it, so it is not tracked for collection."""


class Queue:
    """One queue of one protocol.

    >>> app.queue("mail")                                        # doctest: +SKIP
    Queue('mail', protocol='bullmq')
    """

    def __init__(self, app: "Corral", protocol: Protocol, name: str, *, is_read: bool = False) -> None:
        self.app = app
        self.protocol = protocol
        # a name read from the wire is used as it is; a user's must keep to the grammar
        self.name = app.queue_name(protocol, name if is_read else naming.check_queue(name))

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, protocol={self.protocol.spec.name!r})"

    async def add(self, name: str, data: Any = None, **values: Unpack[AddOptions]) -> JobHandle[Any]:
        """Add a job; where the app has a handler of that name, its options hold and the data must fit it.

        >>> job = await app.queue("mail").add("send-email", {"to": "…"}, delay=1000)   # doctest: +SKIP
        """
        return await self.add_by_name(name, data, values)

    async def add_by_name(self, name: str, data: Any, values: Mapping[str, Any]) -> JobHandle[Any]:
        """Add a job as `add` does, with options that come from elsewhere."""
        own, check = self._kind(name, values, True)
        if check is not None:
            check({} if data is None else data)
        return await self.add_one(name, data, own)

    async def add_many(self, jobs: Iterable[NewJob], **values: Unpack[AddOptions]) -> list[str]:
        """Add jobs; return their ids, in order. The options are for all of them.

        Where one job is refused, none of a list is written; of what comes from a generator, the jobs
        before the last 10,000 that were taken from it are. Where Redis becomes unavailable half-way, the
        error is `AddInterrupted`, which says which jobs were added and which are in doubt.

        >>> await app.queue("mail").add_many([("send-email", {"to": to}) for to in people])   # doctest: +SKIP
        """
        return [added.id async for _, batch in self._add_batches(jobs, values, True) for added in batch]

    async def add_one(
        self, name: str, data: Any, values: Mapping[str, Any], result: Conversion | None = None
    ) -> JobHandle[Any]:
        """Add a job with these options and no others; `result` is the type of its result."""
        job = self.new_job(name, data, values)
        if await self.app.check_clock():
            job = replace(job, created_at=self.app.clock())
        level = self.durability([values.get("durability")])
        [job], [added], is_durable = await self._submit([job], level)
        handle = JobHandle[Any](self, job, added.id, added.existed, result)
        if not is_durable:
            raise NotDurable([handle], level, self.app.durability.timeout_s)
        return (await with_stored([handle]))[0]

    def durability(self, requested: Iterable[Durability | None]) -> Durability:
        """Return the durability of jobs that ask for these."""
        return strongest([level or self.app.durability.default for level in requested])

    def new_job(self, name: str, data: Any, values: Mapping[str, Any]) -> Job:
        """Return a job to be added, with these options and no others."""
        options = dict(values)
        job_id = options.pop("id", None)
        return self._job(name, data, self.options(options), job_id)

    async def add_all(
        self, jobs: Iterable[NewJob], values: Mapping[str, Any], result: Conversion | None = None
    ) -> list[JobHandle[Any]]:
        """Add jobs with these options and no others; `result` is the type of their results."""
        handles: list[JobHandle[Any]] = []
        async for batch, all_added in self._add_batches(jobs, values, False, result):
            for job, added in zip(batch, all_added, strict=True):
                handles.append(JobHandle(self, job, added.id, added.existed, result))
        return await with_stored(handles)

    async def _add_batches(
        self,
        jobs: Iterable[NewJob],
        values: Mapping[str, Any],
        is_by_name: bool,
        result: Conversion | None = None,
    ) -> AsyncIterator[tuple[Sequence[Job], Sequence[Added]]]:
        """Add jobs; yield each batch with what became of it."""
        if values.get("id") is not None:
            raise InvalidOptions(
                f"id={values['id']!r} is for one job; give each job its own: (name, data, {{'id': …}})"
            )
        values = {name: value for name, value in values.items() if name != "id"}
        self.options(values)
        ids: list[str] = []
        in_doubt: list[JobHandle[Any]] = []
        requested: set[Durability | None] = {values.get("durability")}
        together = len(jobs) if isinstance(jobs, Sized) else CHECKED_TOGETHER
        for batch in _batches(iter(jobs), together):
            try:
                new = encode_all(batch, self._maker(values, is_by_name, requested))
                if not ids and await self.app.check_clock():
                    new = encode_all(batch, self._maker(values, is_by_name, requested))
                submitted, all_added, is_durable = await self._submit(new, self.durability(requested))
            except Refused as error:
                if error.position is None:
                    raise
                raise refused_at(len(ids) + error.position, error) from None
            except AddInterrupted as error:
                raise error.after(ids) from error.reason
            except RedisError as error:
                # the last job of a generator was submitted by itself
                if not ids:
                    raise
                raise AddInterrupted(error, {}, [0], []).after(ids) from error
            ids += [added.id for added in all_added]
            if not is_durable:
                added_jobs = zip(submitted, all_added, strict=True)
                in_doubt += [
                    JobHandle(self, job, added.id, added.existed, result) for job, added in added_jobs
                ]
            yield submitted, all_added
        if in_doubt:
            raise NotDurable(in_doubt, self.durability(requested), self.app.durability.timeout_s)

    async def _submit(
        self, jobs: Sequence[Job], level: Durability
    ) -> tuple[Sequence[Job], Sequence[Added], bool]:
        """Submit jobs; return them as they were submitted, what was added, and whether that is durable."""
        submitted = jobs

        async def submit(jobs: Sequence[Job]) -> Sequence[Added]:
            nonlocal submitted
            submitted = jobs
            # submitted together, so a refusal is raised and every answer is a job
            return [added for added in await self.ports.broker.submit(jobs) if isinstance(added, Added)]

        run = self.app.around_add(self, submit) if self.app.has_on_add else submit
        added, is_durable = await self.app.durability.kept(self, level, lambda: run(jobs))
        return submitted, added, is_durable

    def options(self, values: Mapping[str, Any]) -> JobOptions:
        """Return checked options; refused where they break a rule of this protocol."""
        spec = self.protocol.spec
        return options.build(spec.name, spec.capabilities, spec.options, values, spec.priority)

    def _maker(
        self, values: Mapping[str, Any], is_by_name: bool, requested: set[Durability | None]
    ) -> Callable[[NewJob], Job]:
        """Return a function that makes a job of each item of a list; what they share is checked once.

        `is_by_name`: where the app has a handler of a name, its options hold and the data must fit it.
        The durability that a job asks for is added to `requested`.
        """
        queue, created_at = self.name, self.app.clock()
        known: str | None = None
        shared = JobOptions()
        check: Check | None = None

        def make(job: NewJob) -> Job:
            nonlocal known, shared, check
            # the usual case first: this runs once for every job
            if type(job) is tuple and len(job) == 2:
                name, data = job
                if name is not known:
                    own, check = self._kind(name, values, is_by_name)
                    known, shared = naming.check_job_name(name), self.options(own)
                    requested.add(own.get("durability"))
                if data is None:
                    data = {}
                if check is not None:
                    check(data)
                return _Draft(name=name, data=data, queue=queue, options=shared, created_at=created_at)
            return self._new_job(job, values, is_by_name, requested)

        return make

    def _new_job(
        self, job: NewJob, values: Mapping[str, Any], is_by_name: bool, requested: set[Durability | None]
    ) -> Job:
        match job:
            case (name, data, Mapping() as own):
                shared, check = self._kind(name, values, is_by_name)
                if check is not None:
                    check({} if data is None else data)
                own = {**shared, **own}
                requested.add(own.get("durability"))
                return self.new_job(name, data, own)
        raise InvalidPayload(f"{reprlib.repr(job)} is no job; give (name, data) or (name, data, options)")

    def _kind(
        self, name: str, values: Mapping[str, Any], is_by_name: bool
    ) -> tuple[Mapping[str, Any], Check | None]:
        """Return the options of jobs of that name, and the check of their data; None: all is allowed."""
        job_type = self.app.job_type(self, naming.check_job_name(name)) if is_by_name else None
        if job_type is None:
            return values, None
        return {**job_type.defaults, **values}, job_type.signature.check

    def _job(self, name: str, data: Any, checked: JobOptions, job_id: str | None) -> Job:
        return Job(
            name=naming.check_job_name(name),
            data={} if data is None else data,
            queue=self.name,
            id="" if job_id is None else naming.check_id(job_id),
            options=checked,
            created_at=self.app.clock(),
        )

    # -- the protocol's ports ---------------------------------------------------------------------------

    @cached_property
    def ports(self) -> Ports:
        """The ports of this queue, for whichever event loop calls them."""
        return self.protocol.bind(self.app.binding(self))

    @property
    def events(self) -> EventLog:
        """The events of this queue."""
        return self.ports.events

    @property
    def results(self) -> ResultListener:
        """What waits for the ends of jobs, in the running event loop."""
        return self.app.results(self)

    @property
    def schedules(self) -> Schedules:
        """The schedules of this queue; `Unsupported` where its protocol has none."""
        return self._has(self.ports.schedules, "cron, so there are no schedules")

    @property
    def flows(self) -> Flows:
        """Trees of jobs; `Unsupported` where the protocol has none."""
        return self._has(self.ports.flows, "flows")

    @property
    def http(self) -> HttpApi:
        """The protocol's own HTTP contract; `Unsupported` where it has none."""
        return self._has(self.ports.http, "HTTP contract")

    def _has(self, port: T | None, what: str) -> T:
        if port is None:
            raise unsupported(self.protocol.spec.name, what, "use a protocol that has it")
        return port

    # -- reads ------------------------------------------------------------------------------------------

    async def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state this protocol counts."""
        return await self.ports.inspector.counts()

    async def jobs(self, state: JobState, count: int = 100) -> list[Job]:
        """Return the first jobs in a state: the next to run first, the last to end first."""
        return await self.ports.inspector.jobs(state, count)

    async def page(self, state: JobState, cursor: str = "", count: int = 100) -> JobPage:
        """Return some jobs in a state and the cursor for more, which is None at the end.

        Jobs that move between two pages are neither left out nor repeated, as long as they stay in the state.
        A page may be short and still have a next one.

        >>> page = await queue.page(JobState.DEAD)                                      # doctest: +SKIP
        >>> page = await queue.page(JobState.DEAD, page.cursor)                         # doctest: +SKIP
        """
        return await self.ports.inspector.page(state, cursor, count)

    async def job(self, job_id: str) -> Job | None:
        """Return one job with its state; None where it does not exist."""
        return await self.ports.inspector.job(job_id)

    async def search(self, jobs: JobFilter) -> list[Job]:
        """Return the jobs that a filter selects, state by state.

        >>> await queue.search(JobFilter(names=frozenset({"send-email"}), limit=10))    # doctest: +SKIP
        """
        return await self.ports.inspector.search(jobs)

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        """Return lines of a job's log."""
        return await self.ports.inspector.logs(job_id, start, count)

    @cached_property
    def _records(self) -> "QueueRecords":
        from corral.protocols.records import QueueRecords

        return QueueRecords(self.app.binding(self), self.protocol.spec.name, self.ports.inspector)

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are alive now; those of Corral with what they run."""
        workers = await self.ports.inspector.workers()
        try:
            records = await self._records.workers()
        except RedisResponseError:
            records = {}  # this user may read the protocol's own keys only
        return [replace(worker, record=records.get(worker.name)) for worker in workers]

    async def minutes(self, count: int = 60) -> list[Minute]:
        """Return what Corral workers did in the last minutes (at most a day), the oldest first."""
        return await self._records.minutes(count)

    async def undeclared_schedules(self) -> list[str]:
        """Return the schedules that an app has declared once, and no app whose worker is alive does now."""
        if self.ports.schedules is None:
            return []
        declared = await self._records.declared_schedules()
        records = (await self._records.workers()).values()
        alive = {schedule_id for record in records for schedule_id in record.schedules or ()}
        return [each.id for each in await self.schedules.list() if each.id in declared - alive]

    async def is_paused(self) -> bool:
        """Return whether the queue is paused."""
        return await self.ports.inspector.is_paused()

    async def limits(self) -> QueueLimits:
        """Return the limits of the whole queue."""
        return await self.ports.inspector.limits()

    # -- writes: over ids or a filter; they return the ids of the jobs for which it was done -----------------

    async def pause(self) -> None:
        """Stop claims until `resume`; jobs that run go on."""
        await self.ports.operator.pause()

    async def resume(self) -> None:
        """Allow claims again."""
        await self.ports.operator.resume()

    async def retry(self, jobs: Jobs) -> list[str]:
        """Put ended jobs back in the queue with the attempts they have made; a filter selects dead jobs."""
        return await self.ports.operator.retry(jobs)

    async def replay(self, jobs: Jobs) -> list[str]:
        """Put ended jobs back in the queue with all their attempts anew; a filter selects dead jobs.

        >>> await queue.replay(JobFilter(reason="timed out", limit=100))                # doctest: +SKIP
        """
        return await self.ports.operator.replay(jobs)

    async def promote(self, jobs: Jobs) -> list[str]:
        """Make delayed jobs claimable now."""
        return await self.ports.operator.promote(jobs)

    async def remove(self, jobs: Jobs) -> list[str]:
        """Delete jobs that are not active."""
        return await self.ports.operator.remove(jobs)

    async def cancel(self, jobs: Jobs) -> list[str]:
        """End waiting jobs, and ask the workers of active ones to end them."""
        return await self.ports.operator.cancel(jobs)

    async def update(
        self,
        job_id: str,
        *,
        data: Any = UNSET,
        delay: int | timedelta | None = None,
        priority: int | None = None,
    ) -> None:
        """Change a job's data, the delay of a delayed job from now on (ms or timedelta), or its priority."""
        delay_ms = options.milliseconds(delay)
        await self.ports.operator.update(job_id, data=data, delay=delay_ms, priority=priority)

    async def drain(self, delayed: bool = False) -> None:
        """Delete all waiting jobs, with `delayed` the delayed ones too; active and ended ones stay."""
        await self.ports.operator.drain(delayed)

    async def clean(self, jobs: JobFilter) -> list[str]:
        """Delete ended jobs that a filter selects; completed ones where it names no states."""
        return await self.ports.operator.clean(jobs)

    async def set_limits(self, concurrency: int | None = None, rate: Limit | None = None) -> None:
        """Limit the whole queue: jobs active at a time, and claims in a time; None lifts a limit."""
        await self.ports.operator.set_limits(concurrency, rate)

    async def obliterate(self, force: bool = False) -> None:
        """Delete the queue and all its jobs; `QueueInUse` where jobs are active, unless `force`."""
        await self.ports.operator.obliterate(force)


def _batches(jobs: Iterator[NewJob], size: int) -> Iterator[list[NewJob]]:
    while batch := list(islice(jobs, size)):
        yield batch
