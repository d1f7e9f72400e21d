"""Where jobs come from: a queue of a protocol, through its ports."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.ports import Flow, Schedules
from corral.core.transfer import HeldJob, HoldingPort, Transfer
from corral.errors import Unsupported
from corral.migrate.report import MOST_EXAMPLES
from corral.protocols.base import Ports

UNENDED = (JobState.WAITING, JobState.DELAYED)
ENDED = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
MOST_DEPTH, MOST_CHILDREN = 100, 100_000


class Source(Protocol):
    """A queue whose jobs can be listed and held."""

    @property
    def holding(self) -> HoldingPort:
        """Holds jobs, and ends the holds."""

    @property
    def schedules(self) -> Schedules | None:
        """Its schedules, where it has any."""

    async def page(self, state: JobState, cursor: str, count: int) -> tuple[list[HeldJob], str | None]:
        """Return jobs in a state, the next to run first, and the cursor for more (None: there are no more).

        They are not held yet. Jobs that move between two pages may be left out, and are in the next sweep.
        """

    def every(self, states: Sequence[JobState]) -> AsyncIterator[list[HeldJob]]:
        """Yield all jobs in these states, page by page, as they are."""

    async def flows(self) -> list[list[HeldJob]]:
        """Return the jobs of each flow that have not ended, the parent first."""

    async def active(self) -> tuple[int, list[str]]:
        """Return how many jobs are active, and cannot be moved, and the ids of some."""

    async def unreadable(self) -> dict[str, list[str]]:
        """Return the ids of jobs that cannot be read, by the reason."""

    async def pause(self) -> None:
        """Let nobody claim its jobs."""


class QueueSource:
    """A queue of one of Corral's protocols."""

    def __init__(self, ports: Ports, protocol: str, queue: str) -> None:
        self._ports = ports
        self._protocol = protocol
        self._queue = queue
        self.holding: Transfer = transfer_of(ports, protocol)
        self.schedules = ports.schedules

    async def page(self, state: JobState, cursor: str, count: int) -> tuple[list[HeldJob], str | None]:
        page = await self._ports.inspector.page(state, cursor, count)
        return list(map(self._unheld, page.jobs)), page.cursor

    async def every(self, states: Sequence[JobState]) -> AsyncIterator[list[HeldJob]]:
        snapshot, cursor = self._ports.snapshot, "0"
        wanted = JobFilter(states=frozenset(states))
        seen: set[str] = set()
        firings = await self._firings()
        while True:
            ids, cursor = await snapshot.ids(cursor)
            fresh = [job_id for job_id in ids if job_id not in seen and job_id not in firings]
            seen.update(fresh)
            jobs = await snapshot.read(fresh, wanted)
            if jobs:
                yield list(map(self._unheld, jobs))
            if cursor == "0":
                return

    async def _firings(self) -> set[str]:
        """Return the ids of schedules, and of the jobs that they will fire next."""
        if self.schedules is None:
            return set()
        schedules = await self.schedules.list()
        firings = {
            self.schedules.firing_id(schedule.id, schedule.next_at)
            for schedule in schedules
            if schedule.next_at is not None
        }
        return firings | {schedule.id for schedule in schedules}

    def _unheld(self, job: Job) -> HeldJob:
        return HeldJob(receipt=b"", batch="", job=job, protocol=self._protocol, due=0)

    async def flows(self) -> list[list[HeldJob]]:
        flows = self._ports.flows
        if flows is None:
            return []
        roots: dict[str, list[Job]] = {}
        below: set[str] = set()
        start, count = 0, 500
        while True:
            parents = await flows.parents(start, count)
            for parent in parents:
                tree = await flows.tree(parent.id, MOST_DEPTH, MOST_CHILDREN)
                if tree is None or tree.job.state in ENDED:
                    continue
                jobs = list(_unended(tree))
                roots[parent.id] = jobs
                below.update(job.id for job in jobs[1:])
            start += len(parents)
            if len(parents) < count:
                break
        return [[self._unheld(job) for job in jobs] for root, jobs in roots.items() if root not in below]

    async def active(self) -> tuple[int, list[str]]:
        count = (await self._ports.inspector.counts()).get(JobState.ACTIVE, 0)
        jobs = await self._ports.inspector.jobs(JobState.ACTIVE, MOST_EXAMPLES) if count else []
        return count, [job.id for job in jobs]

    async def unreadable(self) -> dict[str, list[str]]:
        return {}

    async def pause(self) -> None:
        await self._ports.operator.pause()


def transfer_of(ports: Ports, protocol: str) -> Transfer:
    """Return the port that moves jobs."""
    if ports.transfer is None:
        raise Unsupported(f"protocol {protocol!r} cannot move jobs; use another")
    return ports.transfer


def _unended(flow: Flow) -> list[Job]:
    """Return the jobs of a flow that have not ended, the parent first."""
    jobs = [flow.job]
    for child in flow.children:
        if child.job.state not in ENDED:
            jobs += _unended(child)
    return jobs
