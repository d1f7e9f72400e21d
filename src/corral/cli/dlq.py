"""`corral dlq`: list, show, replay and discard dead jobs."""

import asyncio
from typing import Annotated

import typer
from typer import Argument

from corral.cli.actions import REMOVE, REPLAY, act_on_dead, require_job, state_text
from corral.cli.job import print_job
from corral.cli.options import (
    BulkOptions,
    CountOption,
    IdArgument,
    JobSelection,
    OptionalQueue,
    QueueArgument,
)
from corral.cli.queue import list_jobs
from corral.cli.session import Session, at_server
from corral.cli.status import full_name
from corral.core.job import JobState
from corral.core.options import Capability
from corral.errors import CorralError

OptionalIds = Annotated[
    list[str] | None, Argument(metavar="ID", help="Ids of jobs; default: all that the options select.")
]

group = typer.Typer(help="List, show, replay and discard dead jobs (dead letters).", no_args_is_help=True)


@group.command("ls")
@at_server
async def list_dead(
    session: Session, selection: JobSelection, queue_name: OptionalQueue = None, count: CountOption = 20
) -> None:
    """List dead jobs with their reasons, latest first."""
    jobs = selection.filter(JobState.DEAD, count)
    queues = await session.queues(queue_name)
    lists = await asyncio.gather(*(queue.search(jobs) for queue in queues))
    dead = [(queue, job) for queue, listed in zip(queues, lists, strict=True) for job in listed]
    dead.sort(key=lambda pair: pair[1].finished_at or 0, reverse=True)
    list_jobs(session.output, dead[:count], f"no dead jobs{selection}")


@group.command("show")
@at_server
async def show(session: Session, queue_name: QueueArgument, job_id: IdArgument) -> None:
    """Show one dead job: reason, every traceback, data, log."""
    queue = await session.find_or_default(queue_name)
    job = await require_job(session, queue, job_id)
    if job.state is not JobState.DEAD:
        raise CorralError(
            f"job {job_id!a} of {full_name(queue)} is {state_text(job)}, not dead; `corral job show` shows it"
        )
    await print_job(session.output, queue, job, job.trace)


@group.command("replay")
@at_server
async def replay(
    session: Session,
    selection: JobSelection,
    bulk: BulkOptions,
    queue_name: OptionalQueue = None,
    ids: OptionalIds = None,
) -> int | None:
    """Put dead jobs back in their queues, with all their attempts anew."""
    queues = await session.queues(queue_name)
    if queue_name is None:
        # every queue that can do it is meant
        queues = [queue for queue in queues if Capability.RETRY in queue.protocol.spec.capabilities]
    return await act_on_dead(session, queues, selection, bulk.limit, REPLAY, bulk.is_confirmed, ids or [])


@group.command("discard")
@at_server
async def discard(
    session: Session,
    selection: JobSelection,
    bulk: BulkOptions,
    queue_name: OptionalQueue = None,
    ids: OptionalIds = None,
) -> int | None:
    """Delete dead jobs."""
    queues = await session.queues(queue_name)
    return await act_on_dead(session, queues, selection, bulk.limit, REMOVE, bulk.is_confirmed, ids or [])
