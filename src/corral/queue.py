"""Queue: what producers and operators hold."""

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from corral.core import naming, options
from corral.core.batch import encode_all, refused_at
from corral.core.job import Job, JobOptions
from corral.core.ports import EventLog, Inspector, Operator
from corral.errors import InvalidPayload, Refused
from corral.protocols import Protocol

if TYPE_CHECKING:
    from corral.app import Corral

NewJob = tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]
"""(name, data), or (name, data, options)."""

CHECKED_TOGETHER = 10_000
"""So many jobs of a generator are checked before the first of them is written; of a list, all."""


class _Draft(Job, frozen=True, gc=False):
    """A job of a list on its way in: nobody else gets hold of it, so the collector need not look at it."""


class Queue:
    """One queue of one protocol.

    >>> app.queue("mail")                                        # doctest: +SKIP
    Queue('mail', protocol='bullmq')
    """

    def __init__(self, app: "Corral", protocol: Protocol, name: str, *, is_read: bool = False) -> None:
        self._app = app
        self.protocol = protocol
        # a name found on the wire is taken as it is; one that is given must keep to the grammar
        self.name = app.queue_name(protocol, name if is_read else naming.check_queue(name))

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, protocol={self.protocol.name!r})"

    async def add(self, name: str, data: Any = None, *, id: str | None = None, **given: Any) -> Job:
        """The job as it was added, with its id.

        >>> job = await app.queue("mail").add("send-email", {"to": "…"}, delay=1000)   # doctest: +SKIP
        """
        job = self._job(name, data, self.options(given), id)
        [job_id] = await self._app.broker(self).submit([job])
        return replace(job, id=job_id)

    async def add_many(self, jobs: Iterable[NewJob], **given: Any) -> list[str]:
        """Ids of the jobs, in order; options given here hold for all of them.

        Where one job is refused, none of a list is written; of what comes from a generator, the jobs
        before the last 10,000 that were taken from it are.

        >>> await app.queue("mail").add_many([("send-email", {"to": to}) for to in people])   # doctest: +SKIP
        """
        shared = self.options(given)
        broker = self._app.broker(self)
        ids: list[str] = []
        together = len(jobs) if isinstance(jobs, Sized) else CHECKED_TOGETHER
        for batch in _batches(iter(jobs), together):
            try:
                made = encode_all(batch, self._maker(given, shared))
                ids += await broker.submit(made)
            except Refused as error:
                if error.position is None:
                    raise
                raise refused_at(len(ids) + error.position, error) from None
        return ids

    def options(self, given: Mapping[str, Any]) -> JobOptions:
        """Options checked against this protocol's contract; refused where they break a rule of it."""
        return options.build(self.protocol.name, self.protocol.capabilities, self.protocol.extras, given)

    def _maker(self, given: Mapping[str, Any], shared: JobOptions) -> Callable[[NewJob], Job]:
        """What makes a job of each item of a list: what they have in common is checked once."""
        queue, created_at = self.name, self._app.clock()
        known = ""

        def make(job: NewJob) -> Job:
            nonlocal known
            # the usual case first: this runs once for every job
            if type(job) is tuple and len(job) == 2:
                name, data = job
                if name is not known:
                    known = name = naming.check_job_name(name)
                return _Draft(
                    name=name,
                    data={} if data is None else data,
                    queue=queue,
                    options=shared,
                    created_at=created_at,
                )
            return self._new_job(job, given, shared)

        return make

    def _new_job(self, job: NewJob, given: Mapping[str, Any], shared: JobOptions) -> Job:
        match job:
            case (name, data):
                return self._job(name, data, shared, None)
            case (name, data, Mapping() as own):
                wanted = {**given, **own}
                job_id = wanted.pop("id", None)
                return self._job(name, data, self.options(wanted), job_id)
        raise InvalidPayload(f"{reprlib.repr(job)} is no job; give (name, data) or (name, data, options)")

    def _job(self, name: str, data: Any, checked: JobOptions, job_id: str | None) -> Job:
        return Job(
            name=naming.check_job_name(name),
            data={} if data is None else data,
            queue=self.name,
            id="" if job_id is None else naming.check_id(job_id),
            options=checked,
            created_at=self._app.clock(),
        )

    @property
    def inspector(self) -> Inspector:
        """Reads: counts, jobs, logs, workers."""
        return self.protocol.inspector(self._app.binding(self))

    @property
    def operator(self) -> Operator:
        """Writes: pause, resume, retry, promote, remove, cancel."""
        return self.protocol.operator(self._app.binding(self))

    @property
    def events(self) -> EventLog:
        """What happened in this queue."""
        return self.protocol.events(self._app.binding(self))


def _batches(jobs: Iterator[NewJob], size: int) -> Iterator[list[NewJob]]:
    while batch := list(islice(jobs, size)):
        yield batch
