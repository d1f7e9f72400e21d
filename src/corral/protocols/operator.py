"""What the operators of all protocols share: jobs by their ids or by a filter."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET
from msgspec.structs import replace

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.options import Lack
from corral.core.ports import Inspector, Jobs, Limit
from corral.protocols.base import BoundPort
from corral.protocols.inspector import selected_states
from corral.protocols.wire import pack

PAGE = 500
"""Jobs read or changed in one step."""


class BaseOperator(BoundPort):
    """An operator whose verbs take ids or a filter; those that a protocol lacks are refused."""

    protocol: ClassVar[str] = ""
    lacks: ClassVar[Mapping[str, Lack]] = {}

    @property
    @abstractmethod
    def _inspector(self) -> Inspector:
        """The inspector of the same queue."""

    @abstractmethod
    async def remove(self, jobs: Jobs) -> list[str]:
        """Delete jobs that are not active."""

    async def keep_events(self, count: int) -> None:
        """Do nothing: what workers write, they trim by their own `max_events`."""

    async def clean(self, jobs: JobFilter) -> list[str]:
        return await self.remove(replace(jobs, states=jobs.states or frozenset({JobState.COMPLETED})))

    async def update(
        self, job_id: str, *, data: Any = UNSET, delay: int | None = None, priority: int | None = None
    ) -> None:
        raise self.lacks["update"].error(self.protocol)

    async def set_limits(self, concurrency: int | None = None, rate: Limit | None = None) -> None:
        raise self.lacks["limits"].error(self.protocol)

    async def obliterate(self, force: bool = False) -> None:
        raise self.lacks["obliterate"].error(self.protocol)

    async def _for_jobs(
        self,
        jobs: Jobs,
        states: Iterable[JobState],
        act: Callable[[Sequence[str]], Awaitable[list[str]]],
    ) -> list[str]:
        """Call `act` page by page with the ids, or with those a filter selects, in `states` if it names none.

        Return the ids for which it was done. No job is acted on twice, however often it comes back.
        """
        if not isinstance(jobs, JobFilter):
            chunks = [jobs[start : start + PAGE] for start in range(0, len(jobs), PAGE)]
            return [job_id for chunk in chunks for job_id in await act(chunk)]
        done: dict[str, None] = {}
        for state in selected_states(jobs, states):
            cursor: str | None = ""
            while cursor is not None and (jobs.limit is None or len(done) < jobs.limit):
                page = await self._inspector.page(state, cursor, PAGE)
                ids = [job.id for job in page.jobs if job.id not in done and jobs.has(job)]
                acted = await act(ids if jobs.limit is None else ids[: jobs.limit - len(done)]) if ids else []
                done.update(dict.fromkeys(acted))
                cursor = page.cursor
        return list(done)


def encode_filter(jobs: JobFilter, states: Mapping[str, JobState]) -> bytes:
    """Return the criteria that the snapshot scripts check, in the wire's names of the states."""
    words = None if jobs.states is None else [word for word, state in states.items() if state in jobs.states]
    names = None if jobs.names is None else sorted(jobs.names)
    packed: bytes = pack([False if part is None else part for part in (words, names, jobs.since, jobs.until)])
    return packed
