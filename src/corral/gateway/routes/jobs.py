"""Jobs of the HTTP contract: create, show, list, cancel."""

from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.core.http_api import Admission, AdmissionVerdict, OwnedJob, TailState
from corral.core.job import Job, JobOptions
from corral.errors import InvalidOptions
from corral.gateway import requests
from corral.gateway.models import (
    AcceptedJob,
    CancelledJob,
    JobRequest,
    Status,
    StreamsJob,
    StreamsJobPage,
    Task,
)
from corral.gateway.openapi import CREATE_JOB_HEADERS, problem_responses, with_body
from corral.gateway.problems import Problem
from corral.gateway.responses import json_response, page_response, rate_limit_headers
from corral.gateway.routes.dependencies import Cursor, NamedRoute, PageSize, authorize
from corral.gateway.security.auth import ApiClient, Role
from corral.gateway.state import GatewayState

Owned = TypeVar("Owned", OwnedJob, TailState)

router = APIRouter(tags=["jobs"], route_class=NamedRoute, responses=problem_responses(401, 403, 503))


BODY = with_body(JobRequest)


@router.post(
    "/v1/jobs",
    status_code=202,
    response_model=AcceptedJob,
    responses={
        **BODY["responses"],
        **problem_responses(409, 429),
        200: {"model": StreamsJob, "description": "Ended within the preferred wait."},
    },
    openapi_extra={**BODY["openapi_extra"], "parameters": CREATE_JOB_HEADERS},
)
async def create_job(request: Request) -> Response:
    """Create a job: 202 and its location; with `Prefer: wait=N`, 200 and the job if it ends in that time."""
    state, client = authorize(request, Role.SUBMIT)
    key = requests.idempotency_key(request)
    body, raw = await requests.read_json(request, JobRequest, state.settings)
    limit = state.settings.max_payload_bytes
    if len(raw) > limit and (size := requests.payload_size(raw)) > limit:
        raise Problem(
            "payload-too-large",
            f"the payload has {size} bytes as sent, and may have {limit}; "
            f"store the data elsewhere and send a reference",
        )
    job = _job(body, key, state)
    admission = await state.call(state.http.admit(job, client.name, state.owner_of(client), state.limits))
    headers = rate_limit_headers(admission, state.limits)
    _check_admitted(admission, state, headers)
    headers["Location"] = f"/v1/jobs/{admission.job_id}"
    if admission.verdict is AdmissionVerdict.REPLAYED:
        headers["Idempotent-Replayed"] = "true"
    wait_s = requests.preferred_wait_s(request)
    # the answer has the result, which is for readers
    if wait_s is not None and Role.READ in client.roles:
        wait_s = min(wait_s, state.settings.max_wait_s)
        ended = await _wait_for_end(request, state, client, admission.job_id, wait_s)
        if ended is not None:
            headers["Preference-Applied"] = f"wait={wait_s}"
            return json_response(ended.job, headers=headers)
    document = {
        "job_id": admission.job_id,
        "task": body.task,
        "status": admission.status,
        "created_ts": admission.created_at,
        "ttl_s": job.options.extra["ttl_s"],
    }
    return json_response(document, 202, headers)


def _job(body: JobRequest, key: str | None, state: GatewayState) -> Job:
    extra: dict[str, Any] = {"ttl_s": state.settings.job_ttl_s}
    job_type = state.corral.job_type(state.queue, body.task)
    if job_type is not None:
        job_type.signature.check(body.payload)
        extra |= state.queue.options(job_type.defaults).extra
    if body.ttl_s is not None:
        extra["ttl_s"] = body.ttl_s
    if key is not None:
        extra["idempotency_key"] = key
    return Job(
        name=body.task,
        data=body.payload,
        queue=state.queue.name,
        options=JobOptions(attempts=1, backoff=None, extra=extra),
        created_at=state.corral.clock(),
    )


def _check_admitted(admission: Admission, state: GatewayState, headers: dict[str, str]) -> None:
    if admission.verdict is AdmissionVerdict.FULL:
        raise Problem(
            "backlog-full",
            f"{admission.backlog} of at most {state.limits.backlog} jobs are waiting or active; try later",
            headers={**headers, "Retry-After": str(state.settings.retry_after_s)},
        )
    if admission.verdict is AdmissionVerdict.RATE_LIMITED:
        seconds = max(-(-admission.wait_ms // 1000), 1)
        raise Problem(
            "rate-limited",
            f"this client has used up its {state.settings.client_jobs} jobs; try again in {seconds} s",
            headers={**headers, "Retry-After": str(seconds)},
        )


async def _wait_for_end(
    request: Request, state: GatewayState, client: ApiClient, job_id: str, seconds: float
) -> OwnedJob | None:
    """Return the job if it ends in that time; do not wait for a client that may open no more tails."""
    if not state.may_tail(client):
        return None
    with state.tail_slot(client):
        if not await state.tails.wait_for_end(job_id, seconds, request.receive):
            return None
    job = await state.call(state.http.show(job_id))
    return job if job is not None and job.job["status"] in ("done", "error", "canceled") else None


@router.get("/v1/jobs", response_model=StreamsJobPage, responses=problem_responses(400, 422))
async def list_jobs(
    request: Request,
    status: Annotated[Status | None, Query(description="Only jobs of this status.")] = None,
    task: Annotated[Task | None, Query(description="Only jobs of this task.")] = None,
    cursor: Cursor = "",
    limit: PageSize = 100,
) -> Response:
    """List jobs, in no particular order; a page may be short and still have a next one."""
    state, client = authorize(request, Role.READ)
    try:
        page = await state.call(
            state.http.page(
                cursor, limit, status, task, state.visible_owner(client), state.settings.max_page_bytes
            )
        )
    except InvalidOptions as error:
        raise Problem("invalid-cursor", str(error)) from None
    return page_response(request, page.jobs, page.following)


@router.get("/v1/jobs/{job_id}", response_model=StreamsJob, responses=problem_responses(404))
async def get_job(request: Request, job_id: str) -> Response:
    """Return one job as its hash has it."""
    state, client = authorize(request, Role.READ)
    return json_response((await _show(state, client, job_id)).job)


@router.post("/v1/jobs/{job_id}/cancel", response_model=CancelledJob, responses=problem_responses(404, 409))
async def cancel_job(request: Request, job_id: str) -> Response:
    """Cancel a job that has not ended; a running handler is asked to end."""
    state, client = authorize(request, Role.SUBMIT)
    await _show(state, client, job_id)
    cancelled = await state.call(state.queue.cancel([job_id]))
    job = (await _show(state, client, job_id)).job
    if not cancelled:
        status = job["status"]
        raise Problem("job-ended", f"job {job_id} has ended already: {status}", job_status=status)
    if Role.READ not in client.roles:
        job = {name: job[name] for name in AcceptedJob.model_fields}
    return json_response(job)


async def _show(state: GatewayState, client: ApiClient, job_id: str) -> OwnedJob:
    return visible(state, client, job_id, await state.call(state.http.show(job_id)))


def visible(state: GatewayState, client: ApiClient, job_id: str, job: Owned | None) -> Owned:
    """Return the job; 404 where it does not exist or belongs to another client."""
    if job is None or state.visible_owner(client) not in (None, job.owner):
        raise no_job(job_id)
    return job


def no_job(job_id: str) -> Problem:
    """Return the problem of a job that does not exist."""
    return Problem("job-not-found", f"no job {job_id[:80]!a}: it does not exist, or its time to live is over")
