"""`corral dlq`: jobs that ended dead, in every protocol; look at them, run them again, or let them go."""

import asyncio
from typing import Annotated

import typer

from corral.cli import deeds
from corral.cli.deeds import RetryLimit, act_on_dead
from corral.cli.looking import dead_jobs, words_of
from corral.cli.queues import CountOption, DataOption, NameOption, ReasonOption, show_jobs
from corral.cli.session import Here, QueuesArgument, YesOption, at_server
from corral.core.options import Capability
from corral.queue import Queue

SomeIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Ids of jobs; without any, all that are meant.")
]


async def _queues(here: Here, queue: str | None) -> list[Queue]:
    return await here.every() if queue is None else [await here.find(queue)]


@at_server
async def list_dead(
    here: Here,
    queue: QueuesArgument = None,
    name: NameOption = None,
    reason: ReasonOption = None,
    data: DataOption = None,
    count: CountOption = 20,
) -> None:
    """List dead jobs with their reasons, the last first; without a queue, those of every queue."""
    dead = dead_jobs(name, reason, data, count)
    queues = await _queues(here, queue)
    lists = await asyncio.gather(*(found.search(dead) for found in queues))
    jobs = [
        (found.protocol.spec.name, job) for found, listed in zip(queues, lists, strict=True) for job in listed
    ]
    jobs.sort(key=lambda pair: pair[1].finished_at or 0, reverse=True)
    show_jobs(here.screen, jobs[:count], f"no dead jobs{words_of(dead)} here")


@at_server
async def replay(
    here: Here,
    queue: QueuesArgument = None,
    ids: SomeIds = None,
    name: NameOption = None,
    reason: ReasonOption = None,
    data: DataOption = None,
    limit: RetryLimit = 1000,
    is_agreed: YesOption = False,
) -> int | None:
    """Put dead jobs back in their queues: these, or those that are meant; without a queue, in every one."""
    queues = await _queues(here, queue)
    if queue is None:
        # only where it can be done: a protocol without retry is none of those that were meant
        queues = [found for found in queues if Capability.RETRY in found.protocol.spec.capabilities]
    return await act_on_dead(
        here, queues, ids or [], dead_jobs(name, reason, data, limit), is_agreed, deeds.replay
    )


@at_server
async def discard(
    here: Here,
    queue: QueuesArgument = None,
    ids: SomeIds = None,
    name: NameOption = None,
    reason: ReasonOption = None,
    data: DataOption = None,
    limit: RetryLimit = 1000,
    is_agreed: YesOption = False,
) -> int | None:
    """Delete dead jobs: these, or those that are meant; without a queue, of every one."""
    queues = await _queues(here, queue)
    return await act_on_dead(
        here, queues, ids or [], dead_jobs(name, reason, data, limit), is_agreed, deeds.delete
    )
