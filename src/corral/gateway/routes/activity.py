"""What happens in all queues, summed up: as server-sent events, and by the minute; and the workers."""

import asyncio
from contextlib import ExitStack
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.core.job import JobState
from corral.errors import CorralError
from corral.gateway import documents
from corral.gateway.activity import Activity
from corral.gateway.openapi import problem_responses, text_response
from corral.gateway.requests import parse_event_id
from corral.gateway.responses import json_response
from corral.gateway.routes.dependencies import NamedRoute, QueueRoute, authorize_all_jobs
from corral.gateway.routes.events import LastEventId
from corral.gateway.sse.frames import gateway_frame
from corral.gateway.sse.response import TailResponse
from corral.queue import Queue

MAX_ACTIVE = 200
"""Active jobs of one queue that are shown with their workers."""

DESCRIPTION = """`event: hello`, then at most five times a second `event: activity`: for each queue with
events since the frame before, how many of each kind (`kinds`), the last kind of each job (`jobs`, at most 100
of a queue; `has_more` where there were others); comments as heartbeats. A feed that resumes after
`Last-Event-ID` gets the frames of the last minutes."""
EXAMPLE = """id: 1767225600000-0
event: activity
data: {"at":1767225600000,"queues":{"bullmq/mail":{"kinds":{"dead":1},"jobs":{"17":"dead"},"has_more":false}}}

"""

router = APIRouter(responses=problem_responses(401, 403, 503))
feed = APIRouter(tags=["events"], route_class=NamedRoute, responses=problem_responses(401, 403, 503))
queues = APIRouter(tags=["queues"], route_class=QueueRoute, responses=problem_responses(401, 403, 503))


@feed.get(
    "/v1/activity",
    description=DESCRIPTION,
    response_class=Response,
    responses=problem_responses(
        *(400, 429), more=text_response("Server-sent events.", "text/event-stream", EXAMPLE)
    ),
)
async def tail_activity(request: Request, last_event_id: LastEventId = None) -> Response:
    state, client = authorize_all_jobs(request)
    position = parse_event_id(last_event_id)
    with ExitStack() as slot:
        slot.enter_context(state.tail_slot(client))
        state.activity.want()
        positions = {Activity.KEY: position or state.activity.last_id}
        hello = gateway_frame("hello", retry_ms=state.settings.retry_ms)
        return TailResponse(state.activity_tails, state.settings, hello, positions, slot.pop_all())


@queues.get("/v1/rates", response_model=documents.RatesView)
async def list_rates(request: Request) -> Response:
    """Return the last hour of every queue by the minute, as far back as its events are kept."""
    state, _ = authorize_all_jobs(request)
    documents_by_queue = await state.activity.documents(await state.queue_cache.queues())
    return json_response({"queues": documents_by_queue})


@queues.get("/v1/workers", response_model=documents.WorkerList)
async def list_all_workers(request: Request) -> Response:
    """List the workers of all queues with the jobs that they run, and the queues that have none."""
    state, _ = authorize_all_jobs(request)
    queues = await state.queue_cache.queues()
    rows = await asyncio.gather(*map(_read, queues))
    workers: dict[tuple[str, str], dict[str, Any]] = {}
    unattended = []
    for queue, (infos, jobs, counts) in zip(queues, rows, strict=True):
        protocol = queue.protocol.spec.name
        for info in infos:
            entry = workers.setdefault(
                (protocol, info.name or str(info.address)),
                {**msgspec.to_builtins(info), "protocol": protocol, "queues": [], "jobs": []},
            )
            if info.record is not None:
                entry["jobs"] += [
                    {"queue": queue.name, "id": job.id, "name": job.name, "started_at": job.since}
                    for job in info.record.running
                ]
            if queue.name not in entry["queues"]:
                entry["queues"].append(queue.name)
        recorded = {info.name for info in infos if info.record is not None}
        for job in jobs:
            # a worker of another client: only the jobs themselves say who runs them
            if job.worker not in recorded and (protocol, job.worker) in workers:
                document = {"queue": queue.name, "id": job.id, "name": job.name, "started_at": job.started_at}
                workers[protocol, str(job.worker)]["jobs"].append(document)
        if not infos:
            unattended.append({"protocol": protocol, "queue": queue.name, "counts": counts})
    return json_response({"workers": list(workers.values()), "unattended": unattended})


async def _read(queue: Queue) -> tuple[Any, Any, dict[str, int]]:
    try:
        infos, counts = await asyncio.gather(queue.workers(), queue.counts())
        jobs = await queue.jobs(JobState.ACTIVE, MAX_ACTIVE) if counts.get(JobState.ACTIVE) else []
    except CorralError:
        # one odd queue must not hide the workers of the others
        return [], [], {}
    return infos, jobs, {state.value: count for state, count in counts.items()}


router.include_router(feed)
router.include_router(queues)
