"""Changes of single jobs and of queues: add, update, limits, obliterate; and search."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.core.filter import filter_of
from corral.core.ports import Flow, Limit
from corral.gateway import documents, models
from corral.gateway.openapi import problem_responses, with_body
from corral.gateway.problems import Problem
from corral.gateway.requests import read_json
from corral.gateway.responses import item_document, json_response
from corral.gateway.routes.dependencies import (
    ErasableQueue,
    OperableQueue,
    PageSize,
    QueueRoute,
    ReadableQueue,
    authorize,
    state_of,
)
from corral.gateway.routes.queues import QUEUE, existing_job, queue_view
from corral.gateway.search import count_matches, failure_groups, find_page
from corral.gateway.security.auth import Role
from corral.gateway.tasks import VERBS
from corral.protocols import protocol_named

QueryText = Annotated[
    str, Query(max_length=2000, description="Such as `state = dead and data.user.id = 17`.")
]
SearchCursor = Annotated[
    str, Query(description="The `next` of the page before.", pattern="^([0-9:]{1,80}(~[0-9]{1,9})?)?$")
]

router = APIRouter(
    tags=["operations"],
    route_class=QueueRoute,
    prefix=QUEUE,
    responses=problem_responses(401, 403, 404, 409, 503),
)


@router.post(
    "/jobs", status_code=201, response_model=documents.AddedJob, **with_body(documents.NewJobRequest)
)
async def add_job(request: Request, protocol: str, queue: str) -> Response:
    """Add a job to any queue; a queue that does not exist is created.

    Where the gateway knows an app with a handler of that name, its options hold and the data must fit it.
    """
    state, _ = authorize(request, Role.SUBMIT)
    body, _ = await read_json(request, documents.NewJobRequest, state.settings)
    target = state.corral.queue(queue, protocol_named(protocol).spec.name)
    own_id = {} if body.id is None else {"id": body.id}
    job = await target.add_by_name(body.name, body.data, {**body.options, **own_id})
    added = {"protocol": protocol, "queue": target.name, "id": job.id, "existed": job.existed}
    return json_response(added, 201)


@router.patch("/jobs/{job_id}", response_model=models.QueueJob, **with_body(documents.JobUpdate))
async def update_job(request: Request, queue: OperableQueue, job_id: str) -> Response:
    """Change a job's data, the delay of a delayed job, or its priority."""
    body, _ = await read_json(request, documents.JobUpdate, state_of(request).settings)
    await existing_job(queue, job_id)
    data = body.data if "data" in body.model_fields_set else msgspec.UNSET
    await queue.update(job_id, data=data, delay=body.delay, priority=body.priority)
    return json_response(item_document(await existing_job(queue, job_id)))


@router.put("/limits", response_model=documents.LimitsView, **with_body(documents.LimitsView))
async def set_limits(request: Request, queue: OperableQueue) -> Response:
    """Limit the whole queue: jobs active at a time, and claims in a time."""
    body, _ = await read_json(request, documents.LimitsView, state_of(request).settings)
    rate = None if body.rate is None else Limit(body.rate.count, body.rate.duration)
    await queue.set_limits(body.concurrency, rate)
    return json_response(msgspec.to_builtins(await queue.limits()))


@router.post("/obliterate", response_model=models.QueueView, **with_body(documents.ObliterateRequest))
async def obliterate_queue(request: Request, queue: ErasableQueue) -> Response:
    """Delete the queue and all its jobs; 409 where jobs are active, unless `force`."""
    body, _ = await read_json(request, documents.ObliterateRequest, state_of(request).settings)
    await queue.obliterate(body.force)
    return json_response(await queue_view(queue))


@router.get("/search", response_model=documents.SearchPage, responses=problem_responses(422))
async def search_jobs(
    request: Request,
    queue: ReadableQueue,
    query: QueryText = "",
    cursor: SearchCursor = "",
    limit: PageSize = 50,
) -> Response:
    """Search a part of the queue's jobs, for at most half a second; `next` goes on, null is the end."""
    jobs = filter_of(query, state_of(request).corral.clock())
    page = await find_page(queue, jobs, cursor, limit)
    total = sum((await queue.counts()).values())
    return json_response(
        {
            "jobs": [item_document(job) for job in page.jobs],
            "scanned": page.scanned,
            "total": total,
            "next": page.cursor,
        }
    )


@router.get("/matches", response_model=documents.MatchCount, responses=problem_responses(422))
async def count_jobs(
    request: Request, queue: ReadableQueue, verb: documents.TaskVerb, query: QueryText = ""
) -> Response:
    """Count the jobs that a bulk change would touch, of at most 20,000."""
    jobs = filter_of(query, state_of(request).corral.clock())
    count, is_complete = await count_matches(queue, jobs, VERBS[verb][1])
    return json_response({"count": count, "is_complete": is_complete})


@router.get("/dead-letters/groups", response_model=documents.FailureGroups)
async def group_dead_letters(queue: ReadableQueue) -> Response:
    """Group dead jobs by the class and the shape of their errors; the latest 20,000 are looked at."""
    groups, scanned, is_complete = await failure_groups(queue)
    documents_of_groups = [msgspec.to_builtins(group) for group in groups]
    return json_response({"groups": documents_of_groups, "scanned": scanned, "is_complete": is_complete})


# -- flows --------------------------------------------------------------------------------------------------

MAX_NODES = 3000


@router.get("/flows", response_model=documents.ParentPage)
async def list_parents(queue: ReadableQueue) -> Response:
    """List the jobs that wait for their children, the latest first; 409 where the protocol has no flows."""
    jobs = await queue.flows.parents()
    return json_response({"jobs": [item_document(job) for job in jobs], "next": None})


@router.get("/jobs/{job_id}/flow", response_model=documents.FlowView, responses=problem_responses(422))
async def get_flow(
    queue: ReadableQueue,
    job_id: str,
    depth: Annotated[int, Query(ge=1, le=20)] = 10,
    children: Annotated[int, Query(ge=1, le=3000, description="Of each kind, for each job.")] = 100,
) -> Response:
    """Return a job and the jobs it waits for, as a tree."""
    flow = await queue.flows.tree(job_id, depth, children)
    if flow is None or flow.job.state is None:
        raise Problem("job-not-found", f"no job {job_id[:80]!a} here")
    return json_response(_flow_document(flow, [MAX_NODES]))


def _flow_document(flow: Flow, left: list[int]) -> dict[str, Any]:
    """Return a tree of at most `left` jobs; each says how many of its children are left out."""
    job = flow.job
    shown = []
    for child in flow.children:
        if left[0] > 0:
            left[0] -= 1
            shown.append(_flow_document(child, left))
    return {
        "queue": job.queue,
        "id": job.id,
        "name": job.name,
        "state": job.state.value if job.state else None,
        "reason": job.reason,
        "progress": job.progress,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "children": shown,
        "hidden": len(flow.children) - len(shown),
    }
