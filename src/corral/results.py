"""ResultListener: waits for the ends of jobs, of one queue and for one event loop, on one connection."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from corral.core.ports import EventWaiter, JobEnd, NotEnded
from corral.errors import RedisError, RedisResponseError, ResultGone
from corral.store.client import Reconnect

if TYPE_CHECKING:
    from corral.queue import Queue

BLOCK_S = 1.0
"""How long a wait for events may take: an end that a foreign client did not announce is found after it."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.025
"""Between two looks at the awaited jobs; it doubles while events are about other jobs."""
PAUSE_PER_JOB_S = 0.00005
LINGER_S = 1.0
"""How long the connection is kept when nobody waits."""
CLOCKS_APART_MS = 5000


class _Awaited(Struct, eq=False):
    """A job that is awaited."""

    futures: list["asyncio.Future[JobEnd]"]
    seen_at: str
    """The last event before the last look that found the job: its end is later."""


class ResultListener:
    """Looks at the awaited jobs when the queue has an event, at most every few milliseconds.

    An event only says that there is something to look for: it is not read. So what this costs depends on how
    many results are awaited, and hardly on how many events other jobs write. A job that was removed is looked
    for among the events since it was last seen.
    """

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue
        self._awaited: dict[str, _Awaited] = {}
        self._new: list[str] = []
        """Ids that were added while the watch goes on."""
        self._wake = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def end_of(self, job_id: str, created_at: int) -> JobEnd:
        """Return how a job ended, when it has; `ResultGone` where that is not known any more."""
        future: asyncio.Future[JobEnd] = asyncio.get_running_loop().create_future()
        awaited = self._awaited.get(job_id)
        if awaited is None:
            start = f"{max(created_at - CLOCKS_APART_MS, 0)}-0"
            awaited = self._awaited[job_id] = _Awaited([], start)
            self._start(job_id)
        awaited.futures.append(future)
        try:
            return await future
        finally:
            awaited.futures.remove(future)
            if not awaited.futures and self._awaited.get(job_id) is awaited:
                del self._awaited[job_id]

    def _start(self, job_id: str) -> None:
        """Look at a job now, and whenever there are events."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
            return
        self._wake.set()
        self._new.append(job_id)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_at_new())

    async def close(self) -> None:
        """Stop listening."""
        for task in (self._watching, self._looking):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    # -- the watch --------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        waiter = self._queue.events.waiter()
        try:
            await self._look_at_all(waiter)
        except Exception as error:
            for job_id in list(self._awaited):
                self._fail(job_id, error)
        finally:
            await waiter.close()

    async def _look_at_all(self, waiter: EventWaiter) -> None:
        loop, reconnect = asyncio.get_running_loop(), Reconnect()
        pause, tries = FIRST_PAUSE_S, 0
        while await self._is_awaited():
            looked_at = loop.time()
            try:
                position, is_any_found = await self._look(list(self._awaited))
                tries = 0
            except RedisResponseError:
                raise
            except RedisError:
                await asyncio.sleep(reconnect.delay(tries))
                tries += 1
                continue
            if not self._awaited:
                continue
            pause = FIRST_PAUSE_S if is_any_found else min(pause * 2, LONGEST_PAUSE_S)
            await waiter.wait(position, BLOCK_S)
            next_look = looked_at + pause + len(self._awaited) * PAUSE_PER_JOB_S
            await asyncio.sleep(max(next_look - loop.time(), 0))

    async def _is_awaited(self) -> bool:
        """Return whether anybody waits; where nobody does, after some time."""
        if not self._awaited:
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LINGER_S)
        return bool(self._awaited)

    async def _look_at_new(self) -> None:
        while self._new:
            ids, self._new = self._new, []
            # the watch goes on looking; a server that is unavailable is its concern
            with suppress(RedisError):
                await self._look(ids)

    # -- one look ---------------------------------------------------------------------------------------

    async def _look(self, ids: Sequence[str]) -> tuple[str, bool]:
        """Look at these jobs; return the last event before that, and whether one of them has ended."""
        ports = self._queue.ports
        # sent together and answered in this order: what happens to a job later has a later event
        position, ends = await asyncio.gather(ports.events.position(), ports.inspector.ends(ids))
        missing: list[str] = []
        is_any_found = False
        for job_id, end in zip(ids, ends, strict=True):
            if isinstance(end, JobEnd):
                is_any_found = True
                self._resolve(job_id, end)
            elif end is NotEnded.MISSING:
                missing.append(job_id)
            elif job_id in self._awaited:
                self._awaited[job_id].seen_at = position
        if missing:
            await self._look_among_events(missing)
        return position, is_any_found or bool(missing)

    async def _look_among_events(self, ids: Sequence[str]) -> None:
        """Find the ends of jobs that do not exist any more."""
        starts = [self._awaited[job_id].seen_at for job_id in ids if job_id in self._awaited]
        if not starts:
            return
        ends = await self._queue.events.ends_of(frozenset(ids), min(starts, key=moment))
        for job_id in ids:
            if job_id in ends:
                self._resolve(job_id, ends[job_id])
            else:
                gone = f"job {job_id} was removed, and no event tells how it ended; keep ended jobs longer"
                self._fail(job_id, ResultGone(gone))

    def _resolve(self, job_id: str, end: JobEnd) -> None:
        awaited = self._awaited.pop(job_id, None)
        for future in awaited.futures if awaited is not None else ():
            if not future.done():
                future.set_result(end)

    def _fail(self, job_id: str, error: Exception) -> None:
        awaited = self._awaited.pop(job_id, None)
        for future in awaited.futures if awaited is not None else ():
            if not future.done():
                future.set_exception(error)


def moment(event_id: str) -> tuple[int, int]:
    """Return the id of an event, to compare it with others; "-" is the first."""
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds or 0), int(number or 0)
