"""JobAction: a verb over several jobs, with its confirmation and its report."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from corral.cli.options import JobSelection
from corral.cli.session import FAILED, Session
from corral.cli.status import full_name, identity
from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.naming import RESERVED_IDS
from corral.errors import CorralError, Unsupported
from corral.queue import Queue

MAX_ERRORS = 20
"""Errors printed one by one; the others are counted."""


class JobAction(NamedTuple):
    """A verb over jobs."""

    verb: str
    participle: str
    act: Callable[[Queue, Sequence[str]], Awaitable[list[str]]]


RETRY = JobAction("retry", "retried", Queue.retry)
REPLAY = JobAction("replay", "replayed", Queue.replay)
REMOVE = JobAction("delete", "deleted", Queue.remove)
PROMOTE = JobAction("promote", "promoted", Queue.promote)
CANCEL = JobAction("cancel", "cancelled", Queue.cancel)


async def act_on_dead(
    session: Session,
    queues: Sequence[Queue],
    selection: JobSelection,
    limit: int,
    action: JobAction,
    is_confirmed: bool,
    ids: Sequence[str] = (),
) -> int | None:
    """Act on dead jobs: on these ids, else on those that are selected; return the exit code."""
    jobs = selection.filter(JobState.DEAD, limit)
    selected = [(queue, await _dead_ids(queue, ids, jobs)) for queue in queues]
    missing = [f"{job_id!a}" for job_id in ids if not any(job_id in dead for _, dead in selected)]
    if missing:
        raise CorralError(
            f"no dead jobs {', '.join(missing)} in queue {queues[0].name!a}; nothing was changed"
        )
    selected = [(queue, dead) for queue, dead in selected if dead]
    count = sum(len(dead) for _, dead in selected)
    if count:
        noun = "dead job" if count == 1 else "dead jobs"
        names = ", ".join(
            f"{queue.name!a} ({queue.protocol.spec.name}: {len(dead):,})" for queue, dead in selected
        )
        session.confirm(f"{action.verb} {count:,} {noun}{selection} of {names}", is_confirmed)
    else:
        session.output.line(f"no dead jobs{selection} to {action.verb}")
    codes = [await _act(session, queue, dead, action) for queue, dead in selected]
    return FAILED if any(codes) else None


async def _dead_ids(queue: Queue, ids: Sequence[str], jobs: JobFilter) -> list[str]:
    if not ids:
        return [job.id for job in await queue.search(jobs)]
    named = [await find_job(queue, job_id) for job_id in dict.fromkeys(ids)]
    return [job.id for job in named if job is not None and job.state is JobState.DEAD]


async def act_on_ids(session: Session, queue: Queue, ids: Sequence[str], action: JobAction) -> int | None:
    """Act on jobs by their ids; ids that are not of this queue are reported and left alone."""
    named = list(dict.fromkeys(ids))
    unknown = [job_id for job_id in named if await find_job(queue, job_id) is None]
    existing = [job_id for job_id in named if job_id not in unknown]
    return await _act(session, queue, existing, action, unknown)


async def _act(
    session: Session, queue: Queue, ids: Sequence[str], action: JobAction, unknown: Sequence[str] = ()
) -> int | None:
    """Act on these jobs, print for which it was done, and return the exit code."""
    try:
        done = await action.act(queue, ids) if ids else []
    except Unsupported as error:
        session.output.error(error)
        return FAILED
    acted = set(done)
    not_done = [*unknown, *(job_id for job_id in ids if job_id not in acted)]
    session.output.document({**identity(queue), "done": done, "not_done": not_done})
    if done:
        noun = f"job {done[0]!a}" if len(done) == 1 else f"{len(done):,} jobs"
        session.output.line(f"{action.participle} {noun} of {full_name(queue)}")
    for job_id in not_done[:MAX_ERRORS]:
        session.output.error(await _failure(session, queue, job_id, action))
    if len(not_done) > MAX_ERRORS:
        session.output.error(CorralError(f"and {len(not_done) - MAX_ERRORS:,} more"))
    return FAILED if not_done else None


async def _failure(session: Session, queue: Queue, job_id: str, action: JobAction) -> CorralError:
    job = await find_job(queue, job_id)
    if job is None:
        return _no_job(session, queue, job_id)
    return CorralError(
        f"job {job_id!a} of queue {queue.name!a} is {state_text(job)} now, and cannot be {action.participle}"
    )


async def require_job(session: Session, queue: Queue, job_id: str) -> Job:
    """Return the job; raise an error where it does not exist."""
    job = await find_job(queue, job_id)
    if job is None:
        raise _no_job(session, queue, job_id)
    return job


def _no_job(session: Session, queue: Queue, job_id: str) -> CorralError:
    return CorralError(
        f"no job {job_id!a} in {full_name(queue)} at {session.address}; "
        f"`corral queue ls` lists the queues, and a finished job may have been removed"
    )


async def find_job(queue: Queue, job_id: str) -> Job | None:
    """Return the job; None where it does not exist."""
    # a reserved id would show one of the queue's own keys as if it were a job
    job = None if job_id in RESERVED_IDS else await queue.job(job_id)
    # where queues share their lists, an id finds the jobs of all of them
    return job if job is not None and job.queue == queue.name else None


def state_text(job: Job) -> str:
    """Return the state of a job as messages write it."""
    return job.state.value if job.state else "in an unknown state"
