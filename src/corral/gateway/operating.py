"""Changing queues: pause and resume, retry, promote, remove and cancel jobs, drain, clean, replay."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.gateway.answers import json_answer
from corral.gateway.body import read_json
from corral.gateway.callers import Role
from corral.gateway.describe import body_of, problems
from corral.gateway.hall import Hall, enter
from corral.gateway.models import Cleaned, Done, Drained, Ids, QueueView, Replayed
from corral.gateway.paths import NamedRoute
from corral.gateway.problems import Problem
from corral.gateway.queues import is_plausible, one_job, view
from corral.queue import Queue

router = APIRouter(tags=["operations"], route_class=NamedRoute)

Verb = Literal["retry", "promote", "remove", "cancel"]
Act = Callable[[Sequence[str]], Awaitable[list[str]]]

CHANGES = problems(401, 403, 404, 409, 503)
CHANGES_WITH_BODY = problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 503)


async def queue_to_change(request: Request, protocol: str, name: str) -> tuple[Hall, Queue]:
    """The hall and a queue, for callers who may change it."""
    hall, _ = enter(request, Role.OPERATE)
    return hall, await hall.ask(hall.directory.queue(protocol, name))


def _act(queue: Queue, verb: Verb) -> Act:
    acts: dict[Verb, Act] = {
        "retry": queue.retry,
        "promote": queue.promote,
        "remove": queue.remove,
        "cancel": queue.cancel,
    }
    return acts[verb]


@router.post(
    "/v1/queues/{protocol}/{queue}/pause",
    operation_id="pauseQueue",
    response_model=QueueView,
    responses=CHANGES,
)
async def pause(request: Request, protocol: str, queue: str) -> Response:
    """No claims until the queue is resumed."""
    hall, found = await queue_to_change(request, protocol, queue)
    await hall.ask(found.pause())
    return json_answer(await hall.ask(view(found)))


@router.post(
    "/v1/queues/{protocol}/{queue}/resume",
    operation_id="resumeQueue",
    response_model=QueueView,
    responses=CHANGES,
)
async def resume(request: Request, protocol: str, queue: str) -> Response:
    """Claims again."""
    hall, found = await queue_to_change(request, protocol, queue)
    await hall.ask(found.resume())
    return json_answer(await hall.ask(view(found)))


@router.post(
    "/v1/queues/{protocol}/{queue}/drain",
    operation_id="drainQueue",
    response_model=QueueView,
    responses=CHANGES_WITH_BODY,
    openapi_extra=body_of(Drained),
)
async def drain(request: Request, protocol: str, queue: str) -> Response:
    """Delete all jobs that wait."""
    hall, found = await queue_to_change(request, protocol, queue)
    asked, _ = await read_json(request, Drained, hall.settings)
    await hall.ask(found.drain(asked.delayed))
    return json_answer(await hall.ask(view(found)))


@router.post(
    "/v1/queues/{protocol}/{queue}/clean",
    operation_id="cleanQueue",
    response_model=Done,
    responses=CHANGES_WITH_BODY,
    openapi_extra=body_of(Cleaned),
)
async def clean(request: Request, protocol: str, queue: str) -> Response:
    """Delete jobs that ended long ago."""
    hall, found = await queue_to_change(request, protocol, queue)
    asked, _ = await read_json(request, Cleaned, hall.settings)
    ended_until = hall.corral.clock() - asked.older_than_s * 1000
    jobs = JobFilter(states=frozenset({JobState(asked.state)}), ended_until=ended_until, limit=asked.limit)
    done = await hall.ask(found.clean(jobs))
    return json_answer({"done": done, "not_done": []})


@router.post(
    "/v1/queues/{protocol}/{queue}/replay",
    operation_id="replayQueue",
    response_model=Done,
    responses=CHANGES_WITH_BODY,
    openapi_extra=body_of(Replayed),
)
async def replay(request: Request, protocol: str, queue: str) -> Response:
    """Put dead jobs back in the queue."""
    hall, found = await queue_to_change(request, protocol, queue)
    asked, _ = await read_json(request, Replayed, hall.settings)
    done = await hall.ask(found.replay(JobFilter(limit=asked.limit)))
    return json_answer({"done": done, "not_done": []})


@router.post(
    "/v1/queues/{protocol}/{queue}/{verb}",
    operation_id="changeJobs",
    response_model=Done,
    responses=CHANGES_WITH_BODY,
    openapi_extra=body_of(Ids),
)
async def change_many(request: Request, protocol: str, queue: str, verb: Verb) -> Response:
    """Retry, promote, remove or cancel these jobs; which it was done for, and which not."""
    hall, found = await queue_to_change(request, protocol, queue)
    asked, _ = await read_json(request, Ids, hall.settings)
    ids = list(dict.fromkeys(filter(is_plausible, asked.ids)))
    done = set(await hall.ask(_act(found, verb)(ids)))
    document = {
        "done": [job_id for job_id in ids if job_id in done],
        "not_done": [job_id for job_id in dict.fromkeys(asked.ids) if job_id not in done],
    }
    return json_answer(document)


@router.post(
    "/v1/queues/{protocol}/{queue}/jobs/{job_id}/{verb}",
    operation_id="changeJob",
    response_model=Done,
    responses=problems(401, 403, 404, 409, 422, 503),
)
async def change_one(request: Request, protocol: str, queue: str, job_id: str, verb: Verb) -> Response:
    """Retry, promote, remove or cancel one job; 409 where its state does not allow it."""
    hall, found = await queue_to_change(request, protocol, queue)
    job = await one_job(hall, found, job_id)
    done = await hall.ask(_act(found, verb)([job_id]))
    if not done:
        state = job.state.value if job.state else "gone"
        detail = f"{verb} cannot be done: job {job_id!a} is {state}"
        raise Problem("not-possible-now", detail, job_state=state)
    return json_answer({"done": done, "not_done": []})
