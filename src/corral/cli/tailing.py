"""`corral job tail`: one job from its first event to its last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
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
    told = _own_story(here, found, job) if found.room.story else _among_others(found, job)
    state = last = None
    async with aclosing(told) as events:  # type: ignore[type-var]
        async for event in events:
            if event is not None:
                say_event(event, here.screen)
                last = end_of(event)
            # an end that was told may not be the last: dead jobs are put back
            elif state := await _end(found, job_id, last):
                break
    return None if state is JobState.COMPLETED else FAILED


def end_of(event: JobEvent) -> JobState | None:
    """The state that a job ends in by this event; None: it goes on."""
    return ENDS.get(EventKind(event.kind)) if event.kind in set(EventKind) else None


async def _end(queue: Queue, job_id: str, last: JobState | None = None) -> JobState | None:
    """How the job ended; None while it has not. `last` is the end that its last event told of."""
    job = await one_job(queue, job_id)
    if job is None:
        return last or JobState.CANCELLED  # it is gone, and nobody else can say how it ended
    return job.state if job.state in OVER else None


async def _own_story(here: Here, queue: Queue, job: Job) -> AsyncIterator[JobEvent | None]:
    """The job's events from its own log; None: look at the job itself."""
    assert queue.room.story is not None
    seen = 0
    while True:
        is_over = await _end(queue, job.id) is not None
        events = await queue.room.story(here.app.place(queue), job.id)
        for event in events[seen:]:
            yield event
        seen = len(events)
        if is_over:
            yield None
        await asyncio.sleep(LOOK_S)


async def _among_others(queue: Queue, job: Job) -> AsyncIterator[JobEvent | None]:
    """The job's events among those of its queue; None: look at the job itself."""
    after = f"{max(job.created_at - CLOCKS_APART_MS, 0)}-0"
    while True:
        page = await queue.events.range(after, PAGE)
        for event in page:
            if event.job_id == job.id:
                yield event
        after = page[-1].id if page else after
        if len(page) < PAGE:
            break
    yield None
    tail = queue.events.tail(after)
    coming = asyncio.ensure_future(anext(tail))
    try:
        looked = monotonic()
        while True:
            await asyncio.wait([coming], timeout=max(looked + DOUBT_S - monotonic(), 0))
            if monotonic() >= looked + DOUBT_S:
                yield None
                looked = monotonic()
            if not coming.done():
                continue
            event = coming.result()
            coming = asyncio.ensure_future(anext(tail))
            if event.job_id == job.id:
                yield event
                if end_of(event):
                    yield None
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
