"""A Corral at work, as its users have it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from corral import Corral, Job, JobState, Queue

OVER = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)


@asynccontextmanager
async def working(app: Corral, **options: Any) -> AsyncIterator[None]:
    """`app.run` beside the block, which ends with it."""
    options.setdefault("concurrency", 10)
    running = asyncio.create_task(app.run(**options))
    try:
        yield
        assert not running.done(), f"the app stopped working: {running}"
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def ended(queue: Queue, job_id: str, seconds: float = 20.0) -> Job:
    """The job, once it is over."""
    return await reached(queue, job_id, *OVER, seconds=seconds)


async def reached(queue: Queue, job_id: str, *states: JobState, seconds: float = 20.0) -> Job:
    """The job, once it is in one of these states."""
    deadline = time.monotonic() + seconds
    while True:
        job = await queue.job(job_id)
        if job is not None and job.state in states:
            return job
        assert time.monotonic() < deadline, f"job {job_id} is not {states} after {seconds} s: {job}"
        await asyncio.sleep(0.01)
