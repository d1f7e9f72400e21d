"""Search: jobs of a queue that match a filter, in pages that take a bounded time."""

import asyncio
from time import monotonic

from msgspec import Struct

from corral.core.failures import FailureGroup, group_failures
from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.queue import Queue

PAGE_S = 0.4
"""After so long a page ends, whatever it has found."""
READ = 100
"""Records read by one script call, which takes well under 5 ms."""
PAUSE_SHARE = 6.0
"""After each call, wait so many times as long as it took: nine tenths of the server are for others."""
GROUPED = 20_000
"""Dead jobs that are looked at for their groups, and jobs for a count of matches."""
PAGE = 500


class FoundPage(Struct, frozen=True):
    """Jobs that were found, how many records were looked at, and the cursor for more (None: the end)."""

    jobs: list[Job]
    scanned: int
    cursor: str | None


async def find_page(queue: Queue, jobs: JobFilter, cursor: str, limit: int) -> FoundPage:
    """Return the matches among the next records, in no particular order.

    The cursor is the snapshot's, and how many ids of its page were read before.
    """
    scan, _, read = cursor.partition("~")
    scan, skipped = scan or "0", int(read or 0)
    found: list[Job] = []
    scanned, ends_at = 0, monotonic() + PAGE_S
    while True:
        began = monotonic()
        ids, following = await queue.ports.snapshot.ids(scan)
        ids = list(dict.fromkeys(ids))
        await _pause(began)
        for start in range(skipped, len(ids), READ):
            chunk = ids[start : start + READ]
            began = monotonic()
            found += await queue.ports.snapshot.read(chunk, jobs)
            scanned += len(chunk)
            await _pause(began)
            if len(found) >= limit or monotonic() > ends_at:
                is_whole = start + READ >= len(ids)
                if not is_whole:
                    return FoundPage(found, scanned, f"{scan}~{start + READ}")
                return FoundPage(found, scanned, None if following == "0" else following)
        skipped, scan = 0, following
        if scan == "0":
            return FoundPage(found, scanned, None)
        if monotonic() > ends_at:
            return FoundPage(found, scanned, scan)


async def _pause(began: float) -> None:
    await asyncio.sleep(min((monotonic() - began) * PAUSE_SHARE, PAGE_S))


async def failure_groups(queue: Queue) -> tuple[list[FailureGroup], int, bool]:
    """Return the groups of dead jobs, how many were looked at, and whether those are all."""
    dead: list[Job] = []
    cursor: str | None = ""
    while cursor is not None and len(dead) < GROUPED:
        page = await queue.page(JobState.DEAD, cursor, PAGE)
        dead += page.jobs
        cursor = page.cursor
    return group_failures(dead), len(dead), cursor is None


async def count_matches(queue: Queue, jobs: JobFilter, states: tuple[JobState, ...]) -> tuple[int, bool]:
    """Return how many jobs of these states match, and whether all were looked at."""
    selected = jobs.states or states
    if not [one for one in jobs.where if one.field != "state"]:
        counts = await queue.counts()
        if all(state in counts for state in selected):
            return sum(counts[state] for state in selected), True
    count = scanned = 0
    for state in selected:
        cursor: str | None = ""
        while cursor is not None:
            if scanned >= GROUPED:
                return count, False
            page = await queue.page(state, cursor, PAGE)
            count += sum(map(jobs.has, page.jobs))
            scanned += len(page.jobs)
            cursor = page.cursor
    return count, True
