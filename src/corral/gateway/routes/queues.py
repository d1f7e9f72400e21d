"""Queues of every protocol: their counts, jobs and workers, and the operations on them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi import APIRouter, Query, Request
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.responses import Response

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.naming import is_job_id
from corral.core.ports import JobPage
from corral.errors import InvalidOptions, RedisWrongTypeError
from corral.gateway import models
from corral.gateway.openapi import problem_responses, with_body
from corral.gateway.problems import Problem
from corral.gateway.requests import read_json
from corral.gateway.responses import encode_item, item_document, json_response, page_response
from corral.gateway.routes.dependencies import (
    ChangeableQueue,
    Cursor,
    ErasableQueue,
    OperableQueue,
    PageSize,
    QueueRoute,
    ReadableQueue,
    authorize_all_jobs,
    state_of,
)
from corral.gateway.routes.jobs import no_job
from corral.queue import Queue

QUEUE = "/v1/queues/{protocol}/{queue}"
MAX_LOG_LINES = 1000
FIRST_JOBS = 20
"""Jobs read at first for a page: few, because their size is not known yet."""
WRONG_TYPE = "a key of this queue has a value of another type, which another program wrote; see corral doctor"

Item = TypeVar("Item")
Verb = Literal["retry", "replay", "promote", "remove", "cancel"]
VERBS: dict[Verb, Callable[[Queue, Sequence[str]], Awaitable[list[str]]]] = {
    "retry": Queue.retry,
    "replay": Queue.replay,
    "promote": Queue.promote,
    "remove": Queue.remove,
    "cancel": Queue.cancel,
}


class VerbConvertor(StringConvertor):
    """Lets only verbs match, so that another path is not found instead of invalid."""

    regex = "|".join(VERBS)


register_url_convertor("verb", VerbConvertor())

WITH_PARAMETERS = problem_responses(400, 422)

router = APIRouter(tags=["queues"], route_class=QueueRoute, responses=problem_responses(401, 403, 404, 503))
operations = APIRouter(
    tags=["operations"],
    route_class=QueueRoute,
    prefix=QUEUE,
    responses=problem_responses(401, 403, 404, 409, 503),
)


# -- reads --------------------------------------------------------------------------------------------------


@router.get("/v1/queues", response_model=models.QueueList)
async def list_queues(
    request: Request,
    protocol: Annotated[str | None, Query(description="Only queues of this protocol.")] = None,
) -> Response:
    """List all queues with their counts."""
    state, _ = authorize_all_jobs(request)
    queues = await state.queue_cache.queues(protocol)
    return json_response({"queues": await asyncio.gather(*map(queue_view, queues))})


@router.get(QUEUE, response_model=models.QueueView)
async def get_queue(queue: ReadableQueue) -> Response:
    """Return one queue with its counts and its limits."""
    return json_response(await queue_with_limits(queue))


async def queue_with_limits(queue: Queue) -> dict[str, Any]:
    """Return the same with the queue's limits."""
    view, limits = await asyncio.gather(queue_view(queue), queue.limits())
    return {**view, "limits": item_document(limits)}


async def queue_view(queue: Queue) -> dict[str, Any]:
    """Return a queue as the interface shows it."""
    spec = queue.protocol.spec
    view = {
        "protocol": spec.name,
        "queue": queue.name,
        "capabilities": sorted(spec.capabilities),
        "lacks": {verb: lack.reason(spec.name) for verb, lack in spec.lacks.items()},
    }
    try:
        counts, is_paused = await asyncio.gather(queue.counts(), queue.is_paused())
        oldest = await queue.jobs(JobState.WAITING, 1) if counts.get(JobState.WAITING) else []
    except RedisWrongTypeError:
        # the other queues are listed all the same
        return {**view, "counts": {}, "is_paused": False, "error": WRONG_TYPE}
    return {
        **view,
        "counts": {state.value: count for state, count in counts.items()},
        "is_paused": is_paused,
        "oldest_at": oldest[0].created_at if oldest else None,
    }


@router.get(QUEUE + "/jobs", response_model=models.QueueJobPage, responses=WITH_PARAMETERS)
async def list_queue_jobs(
    request: Request, queue: ReadableQueue, state: JobState, cursor: Cursor = "", limit: PageSize = 100
) -> Response:
    """List jobs in a state: the next to run first, the last to end first."""
    most = left = state_of(request).settings.max_page_bytes
    documents: list[Any] = []
    following: str | None = cursor
    count = FIRST_JOBS
    is_full = False
    while following is not None and len(documents) < limit and not is_full:
        page = await _page(queue, state, following, min(count, limit - len(documents)))
        encoded = list(map(encode_item, page.jobs))
        fitting = sum(size <= left for size in accumulate(map(len, encoded)))
        is_full = fitting < len(encoded)
        if is_full and documents and not fitting:
            break
        if is_full:
            # read again, for the cursor behind the last that fits
            page = await _page(queue, state, following, max(fitting, 1))
            encoded = list(map(encode_item, page.jobs))
        documents += map(orjson.Fragment, encoded)
        left -= sum(map(len, encoded))
        following = page.cursor
        if not encoded:
            break  # it has looked at many records of other queues
        # as many as should fit, if they are like those before
        count = max(left * len(documents) // max(most - left, 1), 1)
    return page_response(request, documents, following)


async def _page(queue: Queue, state: JobState, cursor: str, count: int) -> JobPage:
    try:
        return await queue.page(state, cursor, count)
    except InvalidOptions as error:
        raise Problem("invalid-cursor", str(error)) from None


@router.get(QUEUE + "/dead-letters", response_model=models.QueueJobPage, responses=WITH_PARAMETERS)
async def list_dead_letters(
    request: Request, queue: ReadableQueue, cursor: Cursor = "", limit: PageSize = 100
) -> Response:
    """List dead jobs, the last first, with their reasons and stack traces."""
    return await list_queue_jobs(request, queue, JobState.DEAD, cursor, limit)


@router.get(QUEUE + "/jobs/{job_id}", response_model=models.QueueJobDetail)
async def get_queue_job(queue: ReadableQueue, job_id: str) -> Response:
    """Return one job with its attempts, its log, and those of its events that are kept."""
    job = await existing_job(queue, job_id)
    logs, events = await asyncio.gather(
        _or_nothing(queue.logs(job_id, 0, MAX_LOG_LINES)), _or_nothing(queue.events.of_job(job))
    )
    return json_response({**item_document(job), "logs": logs, "events": list(map(item_document, events))})


async def _or_nothing(items: Awaitable[list[Item]]) -> list[Item]:
    """Return the items; none where their key is of another type, so that the rest of the job is shown."""
    try:
        return await items
    except RedisWrongTypeError:
        return []


async def existing_job(queue: Queue, job_id: str) -> Job:
    """Return the job; 404 where it does not exist."""
    job = None
    if is_job_id(job_id):
        with suppress(RedisWrongTypeError):  # the name of another key of the queue
            job = await queue.job(job_id)
    if job is None or job.state is None:
        raise no_job(job_id)
    return job


@router.get(QUEUE + "/workers", response_model=models.QueueWorkerList)
async def list_workers(queue: ReadableQueue) -> Response:
    """List the workers that are alive now."""
    return json_response({"workers": list(map(item_document, await queue.workers()))})


# -- operations ---------------------------------------------------------------------------------------------


@operations.post("/pause", response_model=models.QueueView)
async def pause_queue(queue: OperableQueue) -> Response:
    """Stop claims until the queue is resumed."""
    await queue.pause()
    return json_response(await queue_view(queue))


@operations.post("/resume", response_model=models.QueueView)
async def resume_queue(queue: OperableQueue) -> Response:
    """Allow claims again."""
    await queue.resume()
    return json_response(await queue_view(queue))


@operations.post("/drain", response_model=models.QueueView, **with_body(models.DrainRequest))
async def drain_queue(request: Request, queue: ErasableQueue) -> Response:
    """Delete all waiting jobs."""
    body, _ = await read_json(request, models.DrainRequest, state_of(request).settings)
    await queue.drain(body.delayed)
    return json_response(await queue_view(queue))


@operations.post("/clean", response_model=models.ChangeResult, **with_body(models.CleanRequest))
async def clean_queue(request: Request, queue: ErasableQueue) -> Response:
    """Delete jobs that ended long ago."""
    state = state_of(request)
    body, _ = await read_json(request, models.CleanRequest, state.settings)
    ended_until = state.corral.clock() - body.older_than_s * 1000
    jobs = JobFilter(states=frozenset({JobState(body.state)}), ended_until=ended_until, limit=body.limit)
    return _changed(await queue.clean(jobs))


@operations.post("/replay", response_model=models.ChangeResult, **with_body(models.ReplayRequest))
async def replay_queue(request: Request, queue: OperableQueue) -> Response:
    """Put dead jobs back in the queue, with all their attempts anew."""
    body, _ = await read_json(request, models.ReplayRequest, state_of(request).settings)
    if body.ids is not None:
        return await _change(queue, "replay", body.ids)
    return _changed(await queue.replay(JobFilter(limit=body.limit)))


@operations.post("/{verb:verb}", response_model=models.ChangeResult, **with_body(models.JobIds))
async def change_jobs(request: Request, queue: ChangeableQueue, verb: Verb) -> Response:
    """Retry, replay, promote, remove or cancel these jobs; say for which it was done, and for which not."""
    body, _ = await read_json(request, models.JobIds, state_of(request).settings)
    return await _change(queue, verb, body.ids)


async def _change(queue: Queue, verb: Verb, requested_ids: Sequence[str]) -> Response:
    ids = dict.fromkeys(requested_ids)
    done = set(await VERBS[verb](queue, list(filter(is_job_id, ids))))
    return _changed([one for one in ids if one in done], [one for one in ids if one not in done])


@operations.post(
    "/jobs/{job_id}/{verb:verb}", response_model=models.ChangeResult, responses=problem_responses(422)
)
async def change_job(queue: ChangeableQueue, job_id: str, verb: Verb) -> Response:
    """Retry, replay, promote, remove or cancel one job; 409 where its state does not allow it."""
    job = await existing_job(queue, job_id)
    done = await VERBS[verb](queue, [job_id])
    if not done:
        state = job.state.value if job.state else "gone"
        raise Problem("invalid-state", f"cannot {verb} job {job_id!a}: it is {state}", job_state=state)
    return _changed(done)


def _changed(done: Sequence[str], not_done: Sequence[str] = ()) -> Response:
    return json_response({"done": done, "not_done": not_done})


router.include_router(operations)
