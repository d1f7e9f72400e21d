"""Verbs for several jobs: how many they would touch, whether that is meant, and what came of it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NamedTuple

import typer

from corral.cli.looking import PAGE, name_of, words_of
from corral.cli.session import FAILED, Here
from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.naming import RESERVED_IDS
from corral.errors import CorralError, Unsupported
from corral.queue import Queue

RetryLimit = Annotated[int, typer.Option("--limit", min=1, help="At most so many jobs of each queue.")]


class Deed(NamedTuple):
    """Something that can be done to jobs."""

    verb: str
    """As a question begins with it."""
    done: str
    act: Callable[[Queue, Sequence[str]], Awaitable[list[str]]]


put_back = Deed("put back", "put back", lambda queue, ids: queue.retry(ids))
replay = Deed("put back", "put back", lambda queue, ids: queue.replay(ids))
delete = Deed("delete", "deleted", lambda queue, ids: queue.remove(ids))
promote = Deed("promote", "promoted", lambda queue, ids: queue.promote(ids))
cancel = Deed("cancel", "cancelled", lambda queue, ids: queue.cancel(ids))


async def act_on_dead(
    here: Here,
    queues: Sequence[Queue],
    ids: Sequence[str],
    jobs: JobFilter,
    is_agreed: bool,
    deed: Deed,
) -> int | None:
    """Do it to dead jobs: these, or those that are meant; the exit code."""
    work = [(queue, await _dead(queue, ids, jobs)) for queue in queues]
    missing = [job_id for job_id in ids if not any(job_id in found for _, found in work)]
    if missing:
        told = ", ".join(f"{job_id!a}" for job_id in missing)
        here.screen.fail(CorralError(f"no dead jobs {told} in queue {queues[0].name!a}; nothing was changed"))
        return FAILED
    work = [(queue, found) for queue, found in work if found]
    count = sum(len(found) for _, found in work)
    if count:
        names = ", ".join(
            f"{queue.name!a} ({queue.protocol.spec.name}: {len(found):,})" for queue, found in work
        )
        what = "dead job" if count == 1 else "dead jobs"
        if not here.agree(f"{deed.verb} {count:,} {what}{words_of(jobs)} of {names}", is_agreed):
            return FAILED
    elif not here.screen.as_json:
        here.screen.line(f"no dead jobs{words_of(jobs)} here; nothing to be {deed.done}")
    codes = [await do(here, queue, found, deed) for queue, found in work]
    return FAILED if any(codes) else None


async def _dead(queue: Queue, ids: Sequence[str], jobs: JobFilter) -> list[str]:
    if not ids:
        return [job.id for job in await queue.search(jobs)]
    named = [await one_job(queue, job_id) for job_id in dict.fromkeys(ids)]
    return [job.id for job in named if job is not None and job.state is JobState.DEAD]


async def do_given(here: Here, queue: Queue, ids: Sequence[str], deed: Deed) -> int | None:
    """Do it to the jobs that somebody named; those that are not of this queue are left alone."""
    named = list(dict.fromkeys(ids))
    strangers = [job_id for job_id in named if await one_job(queue, job_id) is None]
    return await do(here, queue, [job_id for job_id in named if job_id not in strangers], deed, strangers)


async def do(
    here: Here, queue: Queue, ids: Sequence[str], deed: Deed, strangers: Sequence[str] = ()
) -> int | None:
    """Do it to these jobs of a queue, say for which it was done, and return the exit code."""
    done: list[str] = []
    try:
        for start in range(0, len(ids), PAGE):
            done += await deed.act(queue, ids[start : start + PAGE])
    except Unsupported as error:
        here.screen.fail(error)
        return FAILED
    not_done = [*strangers, *(job_id for job_id in ids if job_id not in set(done))]
    if here.screen.as_json:
        place = {"protocol": queue.protocol.spec.name, "queue": queue.name}
        here.screen.document({**place, "done": done, "not_done": not_done})
    elif done:
        jobs = f"job {done[0]!a}" if len(done) == 1 else f"{len(done):,} jobs"
        here.screen.line(f"{deed.done} {jobs} of {name_of(queue)}")
    for job_id in not_done[:20]:
        here.screen.fail(CorralError(await _why(here, queue, job_id, deed)))
    if len(not_done) > 20:
        here.screen.fail(CorralError(f"and {len(not_done) - 20:,} more"))
    return FAILED if not_done else None


async def _why(here: Here, queue: Queue, job_id: str, deed: Deed) -> str:
    job = await one_job(queue, job_id)
    if job is None:
        return no_job(here, queue, job_id)
    state = job.state.value if job.state else "in no state that is known"
    return f"job {job_id!a} of queue {queue.name!a} is {state} now, and cannot be {deed.done}"


async def one_job(queue: Queue, job_id: str) -> Job | None:
    """The job, if it is there."""
    # such an id would show one of the queue's own keys as if it were a job
    job = None if job_id in RESERVED_IDS else await queue.job(job_id)
    # where queues share their lists, an id finds the jobs of all
    return job if job is not None and job.queue == queue.name else None


def no_job(here: Here, queue: Queue, job_id: str) -> str:
    """The sentence that there is no such job."""
    return (
        f"no job {job_id!a} in {name_of(queue)} at {here.dialled}; "
        f"`corral queue ls` lists the queues, and a finished job may have been removed"
    )
