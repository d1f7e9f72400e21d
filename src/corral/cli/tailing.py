"""`corral job tail`: one job from its first event to its last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from time import monotonic

from corral.cli.deeds import no_job, one_job
from corral.cli.events import say_event
from corral.cli.jobs import IdArgument
from corral.cli.session import FAILED, Here, QueueArgument, at_server
from corral.core.event import EventKind, JobEvent
from corral.core.job import Job, JobState
from corral.errors import CorralError
from corral.queue import Queue

ENDS = {EventKind.COMPLETED: JobState.COMPLETED, EventKind.DEAD: JobState.DEAD,
        EventKind.CANCELLED: JobState.CANCELLED}  # fmt: skip
OVER = frozenset(ENDS.values())
CLOCKS_APART_MS = 5000
"""How far a producer's clock may be from the server's, by whose clock events are found."""
PAGE = 1000
LOOK_S = 0.25
"""How often a job with a log of its own is looked at."""
DOUBT_S = 5.0
"""A job that is silent for so long is looked at: its end may have been trimmed, or never written."""


@at_server
async def tail(here: Here, queue: QueueArgument, job_id: IdArgument) -> int | None:
    """Follow one job, from its first event that is kept until it ends; exit 1 where it does not end well."""
    found = await here.readable(queue)
    job = await one_job(found, job_id)
    if job is None:
        here.screen.fail(CorralError(no_job(here, found, job_id)))
        return FAILED
    told = _own_events(found, job) if found.protocol.spec.has_job_events else among_others(found, job)
    async with aclosing(told) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, JobState):
                break
            say_event(event, here.screen)
    return None if event is JobState.COMPLETED else FAILED


def end_of(event: JobEvent) -> JobState | None:
    """The state that a job ends in by this event; None: it goes on."""
    return ENDS.get(EventKind(event.kind)) if event.kind in set(EventKind) else None


async def _end(queue: Queue, job_id: str) -> JobState | None:
    """How the job ended; None while it has not."""
    job = await one_job(queue, job_id)
    if job is None:
        return JobState.CANCELLED  # it is gone, and only its events can say how it ended
    return job.state if job.state in OVER else None


async def _own_events(queue: Queue, job: Job) -> AsyncIterator[JobEvent | JobState]:
    """The job's events from its own log, then the state it ended in."""
    after = "-"
    while True:
        end = await _end(queue, job.id)
        for event in await queue.events.of_job(job, after):
            yield event
            after = event.id
        if end is not None:
            yield end
        await asyncio.sleep(LOOK_S)


async def among_others(queue: Queue, job: Job) -> AsyncIterator[JobEvent | JobState]:
    """The job's events among those of its queue, then the state it ended in."""
    after = f"{max(job.created_at - CLOCKS_APART_MS, 0)}-0"
    last = None
    while True:
        # looked at before its events are read: then those of an end that was seen are among them
        end = await _end(queue, job.id)
        while page := await queue.events.range(after, PAGE):
            after = page[-1].id
            for event in page:
                if event.job_id == job.id:
                    yield event
                    last = end_of(event)
        if end is not None:
            yield last or end
        async with aclosing(_until_in_doubt(queue, after)) as events:  # type: ignore[type-var]
            async for event in events:
                after = event.id
                if event.job_id == job.id:
                    yield event
                    last = end_of(event)
                    if last is not None:
                        break  # it may not be the last: dead jobs are put back


async def _until_in_doubt(queue: Queue, after: str) -> AsyncIterator[JobEvent]:
    """Events of the queue as they come, for so long as a silent job may be taken for a living one."""
    doubt = monotonic() + DOUBT_S
    async with aclosing(queue.events.tail(after)) as events:
        with suppress(TimeoutError):
            while True:
                yield await asyncio.wait_for(anext(events), max(doubt - monotonic(), 0))
