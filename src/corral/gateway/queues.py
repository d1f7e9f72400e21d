"""Queues of every protocol: how much is in them, their jobs, workers and dead letters."""

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.core.job import Job, JobState
from corral.core.naming import RESERVED_IDS
from corral.errors import RedisResponseError
from corral.gateway import headers
from corral.gateway.answers import event_document, job_document, json_answer, read_offset, write_offset
from corral.gateway.callers import Role
from corral.gateway.describe import problems
from corral.gateway.hall import Hall, enter
from corral.gateway.jobs import no_job
from corral.gateway.models import (
    QueueJobDetail,
    QueueJobPage,
    QueueList,
    QueueView,
    WorkerList,
)
from corral.gateway.paths import NamedRoute
from corral.queue import Queue

router = APIRouter(tags=["queues"], route_class=NamedRoute)

MOST_LISTED = 500
SHOWN_LOGS = 1000

READS = problems(401, 403, 404, 503)
Cursor = Annotated[str, Query(description="Where to go on, from a page's `next`.", max_length=300)]
Limit = Annotated[int, Query(ge=1, le=MOST_LISTED)]


async def look(request: Request) -> Hall:
    """The hall, for callers who may look at every job of a queue."""
    hall, _ = enter(request, Role.READ)
    if hall.settings.ownership:
        enter(request, Role.OPERATE)
    return hall


@router.get("/v1/queues", operation_id="listQueues", response_model=QueueList, responses=READS)
async def list_queues(
    request: Request,
    protocol: Annotated[str | None, Query(description="Only queues of this protocol.")] = None,
) -> Response:
    """All queues with their counts."""
    hall = await look(request)
    queues = await hall.ask(hall.directory.queues(protocol))
    views = await hall.ask(asyncio.gather(*map(view, queues)))
    return json_answer({"queues": views})


@router.get(
    "/v1/queues/{protocol}/{queue}", operation_id="getQueue", response_model=QueueView, responses=READS
)
async def show_queue(request: Request, protocol: str, queue: str) -> Response:
    """One queue with its counts."""
    hall = await look(request)
    found = await hall.ask(hall.directory.queue(protocol, queue))
    return json_answer(await hall.ask(view(found)))


async def view(queue: Queue) -> dict[str, Any]:
    """A queue and how much is in it."""
    counts, is_paused = await asyncio.gather(queue.counts(), queue.is_paused())
    return {
        "protocol": queue.protocol.spec.name,
        "queue": queue.name,
        "counts": {state.value: count for state, count in counts.items()},
        "is_paused": is_paused,
        "capabilities": sorted(queue.protocol.spec.capabilities),
    }


# -- jobs ---------------------------------------------------------------------------------------------------


@router.get(
    "/v1/queues/{protocol}/{queue}/jobs",
    operation_id="listQueueJobs",
    response_model=QueueJobPage,
    responses=problems(400, 401, 403, 404, 422, 503),
)
async def list_jobs(
    request: Request, protocol: str, queue: str, state: JobState, cursor: Cursor = "", limit: Limit = 100
) -> Response:
    """Jobs in a state: the next to run first, the last to end first."""
    return await _listed(request, protocol, queue, state, cursor, limit)


@router.get(
    "/v1/queues/{protocol}/{queue}/dead-letters",
    operation_id="listDeadLetters",
    response_model=QueueJobPage,
    responses=problems(400, 401, 403, 404, 422, 503),
)
async def list_dead(
    request: Request, protocol: str, queue: str, cursor: Cursor = "", limit: Limit = 100
) -> Response:
    """Jobs that ended dead, the last first, with their reasons and traces."""
    return await _listed(request, protocol, queue, JobState.DEAD, cursor, limit)


async def _listed(
    request: Request, protocol: str, queue: str, state: JobState, cursor: str, limit: int
) -> Response:
    hall = await look(request)
    start = read_offset(cursor)
    found = await hall.ask(hall.directory.queue(protocol, queue))
    jobs = await hall.ask(found.jobs(state, start, limit + 1))
    following = write_offset(start + limit) if len(jobs) > limit else None
    more = {"Link": headers.next_link(request, following)} if following else None
    return json_answer({"jobs": [job_document(job) for job in jobs[:limit]], "next": following}, more=more)


@router.get(
    "/v1/queues/{protocol}/{queue}/jobs/{job_id}",
    operation_id="getQueueJob",
    response_model=QueueJobDetail,
    responses=READS,
)
async def show_job(request: Request, protocol: str, queue: str, job_id: str) -> Response:
    """One job with its attempts, its log and its events, as far back as those are kept."""
    hall = await look(request)
    found = await hall.ask(hall.directory.queue(protocol, queue))
    job = await one_job(hall, found, job_id)
    logs, events = await asyncio.gather(
        hall.ask(found.logs(job_id, 0, SHOWN_LOGS)), hall.ask(found.events.of_job(job))
    )
    return json_answer({**job_document(job), "logs": logs, "events": list(map(event_document, events))})


async def one_job(hall: Hall, queue: Queue, job_id: str) -> Job:
    """The job, if that id can be one and it is there."""
    job = None
    if is_plausible(job_id):
        try:
            job = await hall.ask(queue.job(job_id))
        except RedisResponseError as error:
            # another key of the queue stands under that name
            if "WRONGTYPE" not in str(error):
                raise
    if job is None or job.state is None:
        raise no_job(job_id)
    return job


def is_plausible(job_id: str) -> bool:
    """Can this be a job's id, and not the name of another key beside the jobs?

    >>> is_plausible("17"), is_plausible("repeat:nightly:1767225600000"), is_plausible("17:lock")
    (True, True, False)
    """
    if job_id in RESERVED_IDS or not 0 < len(job_id) <= 512:
        return False
    return ":" not in job_id or (job_id.startswith("repeat:") and job_id.rpartition(":")[2].isdigit())


# -- workers -----------------------------------------------------------------------------------------------


@router.get(
    "/v1/queues/{protocol}/{queue}/workers",
    operation_id="listWorkers",
    response_model=WorkerList,
    responses=READS,
)
async def list_workers(request: Request, protocol: str, queue: str) -> Response:
    """Workers of a queue that are alive now."""
    hall = await look(request)
    found = await hall.ask(hall.directory.queue(protocol, queue))
    workers = await hall.ask(found.workers())
    return json_answer({"workers": [msgspec.to_builtins(worker) for worker in workers]})
