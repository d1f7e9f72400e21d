"""History, from the lake: series and sums over days, and jobs that the server has forgotten."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.core.query import parse_query
from corral.gateway import history_documents as documents
from corral.gateway.history import DAY_MS, HistoryScope
from corral.gateway.openapi import problem_responses
from corral.gateway.problems import Problem, of_validation
from corral.gateway.responses import json_response
from corral.gateway.routes.changes import QueryText
from corral.gateway.routes.dependencies import NamedRoute, PageSize, authorize_all_jobs

MAX_DAYS = 400
DEFAULT_MS = 7 * DAY_MS

Since = Annotated[
    int | None,
    Query(ge=0, le=2**52, description="Milliseconds since the epoch; default: a week before `until`."),
]
Until = Annotated[int | None, Query(ge=0, le=2**52, description="The same, default: now.")]
QueueKey = Annotated[
    str,
    Query(
        max_length=600, pattern="^([a-z]+/.+)?$", description="`{protocol}/{queue}`; default: of all queues."
    ),
]
Text = Annotated[str, Query(max_length=1000)]
LakeCursor = Annotated[
    str, Query(description="The `next` of the page before.", pattern="^([0-9]{1,18}-[0-9]{1,9})?$")
]

router = APIRouter(
    tags=["history"],
    route_class=NamedRoute,
    prefix="/v1/history",
    responses=problem_responses(401, 403, 404, 422, 503),
)


@router.get("", response_model=documents.HistoryView)
async def get_history(
    request: Request,
    since: Since = None,
    until: Until = None,
    queue: QueueKey = "",
    name: Text = "",
    worker: Text = "",
) -> Response:
    """Return throughput, failures, waits and runs over days; and by queue, by name and by worker."""
    state, _ = authorize_all_jobs(request)
    first, last = _span(state.corral.clock(), since, until)
    protocol, _, queue_name = queue.partition("/")
    scope = HistoryScope(
        since=first, until=last, protocol=protocol, queue=queue_name, name=name, worker=worker
    )
    return json_response(await state.history.overview(scope))


@router.get("/rates", response_model=documents.HistoryRates)
async def list_history_rates(request: Request, since: Since = None, until: Until = None) -> Response:
    """Return what was added and what ended in each queue over days."""
    state, _ = authorize_all_jobs(request)
    return json_response(await state.history.rates(*_span(state.corral.clock(), since, until)))


@router.get("/jobs", response_model=documents.HistoryJobPage)
async def search_history(
    request: Request,
    query: QueryText = "",
    queue: QueueKey = "",
    cursor: LakeCursor = "",
    limit: PageSize = 50,
) -> Response:
    """Search the jobs that the lake knows, also those that the server has forgotten."""
    state, _ = authorize_all_jobs(request)
    where = parse_query(query, state.corral.clock())
    protocol, _, name = queue.partition("/")
    jobs, following = await state.history.jobs(where, protocol, name, cursor, limit)
    return json_response({"jobs": jobs, "next": following})


@router.get("/jobs/{protocol}/{queue}/{job_id}", response_model=documents.HistoryJobDetail)
async def get_history_job(request: Request, protocol: str, queue: str, job_id: str) -> Response:
    """Return a job as the lake knows it, with its attempts and its events."""
    state, _ = authorize_all_jobs(request)
    job = await state.history.job(protocol, queue, job_id)
    if job is None:
        raise Problem("job-not-found", f"the lake knows no job {job_id[:80]!a} of this queue")
    return json_response(job)


def _span(now: int, since: int | None, until: int | None) -> tuple[int, int]:
    last = now if until is None else until
    first = max(last - DEFAULT_MS, 0) if since is None else since
    if not 0 < last - first <= MAX_DAYS * DAY_MS:
        fault = {"loc": ("query", "since"), "msg": f"not before `until`, or by more than {MAX_DAYS} days"}
        raise of_validation([fault])
    return first, last
