"""What the inspectors of all protocols share: pages of jobs that stay put while jobs move, and search."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.ports import JobPage, Notice
from corral.protocols.base import BoundPort
from corral.protocols.cursors import Cursor, IdSource, parse_cursor

PAGE = 500
"""Ids looked at in one step, and jobs of a page where no other number is given."""
LOOKED = 5000
"""Entries looked at for one page: it ends there, however few jobs it has."""


class BaseInspector(BoundPort):
    """An inspector whose states are lists of ids, read one after the other."""

    @abstractmethod
    def _sources(self, state: JobState) -> Sequence[IdSource]:
        """Return the lists of a state, in order."""

    @abstractmethod
    async def _listed(self, ids: Sequence[bytes], state: JobState) -> Mapping[bytes, Job]:
        """Return those of these jobs that are of this queue, and in this state."""

    async def notices(self) -> list[Notice]:
        """Return none, unless a protocol has some."""
        return []

    async def page(self, state: JobState, cursor: str = "", count: int = 100) -> JobPage:
        at = parse_cursor(cursor, state)
        sources = self._sources(state)
        jobs: dict[bytes, Job] = {}
        following = at
        source, place, looked, size = at.source, at.place, 0, min(count + 1, PAGE)
        while 0 <= source < len(sources):
            chunk = await sources[source].read(place, size)
            found = await self._listed(chunk.ids, state) if chunk.ids else {}
            for number, job_id in enumerate(chunk.ids, 1):
                if job_id not in found or job_id in jobs:
                    continue
                if len(jobs) == count:
                    return JobPage(list(jobs.values()), str(following))
                jobs[job_id] = found[job_id]
                if len(jobs) == count:
                    following = Cursor(state, source, chunk.place(number, found))
            looked += chunk.looked
            if chunk.is_last:
                source, place = source + 1, None
            else:
                place = chunk.place(len(chunk.ids), found)
                if looked >= LOOKED:
                    rest = following if len(jobs) == count else Cursor(state, source, place)
                    return JobPage(list(jobs.values()), str(rest))
            size = min(2 * size, PAGE)
        return JobPage(list(jobs.values()), None)

    async def jobs(self, state: JobState, count: int = 100) -> list[Job]:
        page = await self.page(state, "", count)
        jobs = list(page.jobs)
        while page.cursor is not None and len(jobs) < count:
            page = await self.page(state, page.cursor, count - len(jobs))
            jobs += page.jobs
        return jobs

    async def search(self, jobs: JobFilter) -> list[Job]:
        found: dict[str, Job] = {}
        for state in selected_states(jobs, JobState):
            cursor: str | None = ""
            while cursor is not None and (jobs.limit is None or len(found) < jobs.limit):
                page = await self.page(state, cursor, PAGE)
                found.update((job.id, job) for job in page.jobs if jobs.has(job))
                cursor = page.cursor
        return list(found.values())[: jobs.limit]


def selected_states(jobs: JobFilter, usual: Iterable[JobState]) -> list[JobState]:
    """Return the states that a filter is about: its own, or the usual ones of the operation."""
    selected = set(usual) if jobs.states is None else jobs.states
    return [state for state in JobState if state in selected]
