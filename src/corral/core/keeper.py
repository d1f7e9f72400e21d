"""Keeper: the door for whoever tidies a queue: many jobs at once, and its schedules."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from corral.core.job import Job, JobState
from corral.core.ports import Inspector, Operator

PAGE = 500


class Schedule(Struct, frozen=True, kw_only=True):
    """Jobs that come by themselves: what they are made of, and when the next one does (None: paused)."""

    id: str
    job: Job
    next_at: int | None


class Keeper(Protocol):
    """Writes to many jobs; what a protocol's contract has no word for is refused with `Unsupported`."""

    async def drain(self, delayed: bool = False) -> None:
        """Delete all jobs that wait, with `delayed` those too; active and ended ones stay."""

    async def clean(self, state: JobState, older_ms: int, most: int) -> list[str]:
        """Delete up to `most` jobs that ended so, longer than `older_ms` ago; ids of those."""

    async def replay(self, most: int) -> list[str]:
        """Put up to `most` dead jobs back in the queue; ids of those."""

    async def schedules(self) -> list[Schedule]:
        """The schedules of this queue, the next to fire first."""


class Timekeeper(Protocol):
    """Schedules of a protocol that fires them itself; an operator of such a protocol is one."""

    async def schedule(self, job: Job) -> str:
        """Add the schedule of this id, or change it: "added", "changed" or "kept"."""

    async def unschedule(self, schedule_id: str) -> bool:
        """Delete a schedule; what it fired stays. Was there one?"""

    async def pause_schedule(self, schedule_id: str) -> bool:
        """No firings until it is resumed; what falls between is not made up for. Is there one?"""

    async def resume_schedule(self, schedule_id: str) -> bool:
        """Firings again, from now on. Is there one?"""

    async def run_now(self, schedule_id: str) -> str | None:
        """Fire once, besides its own times; the id of that job, or None: there is no such schedule."""


async def remove_listed(
    inspector: Inspector, operator: Operator, state: JobState, chosen: Callable[[Job], bool], most: int | None
) -> list[str]:
    """Delete the chosen jobs of a state page by page; return their ids."""
    removed: list[str] = []
    start = 0
    while most is None or len(removed) < most:
        page = await inspector.jobs(state, start, PAGE)
        wanted = [job.id for job in page if chosen(job)]
        gone = await operator.remove(wanted if most is None else wanted[: most - len(removed)])
        removed += gone
        if len(page) < PAGE:
            break
        # what is gone lets the rest move up
        start += len(page) - len(gone)
    return removed
