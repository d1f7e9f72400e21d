"""The contract's own interface: ask for a job, look at it, list jobs, cancel one."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.core.http_api import Admission, AdmissionVerdict, OwnedJob
from corral.core.job import Job, JobOptions
from corral.errors import InvalidOptions
from corral.gateway import headers
from corral.gateway.answers import json_answer
from corral.gateway.body import payload_size, read_json
from corral.gateway.callers import Caller, Role
from corral.gateway.describe import NEW_JOB, problems
from corral.gateway.hall import Hall, enter
from corral.gateway.models import Accepted, JobPage, JobView, NewJob, Status, Task
from corral.gateway.paths import NamedRoute
from corral.gateway.problems import Problem

router = APIRouter(tags=["jobs"], route_class=NamedRoute)

MOST_LISTED = 500


@router.post(
    "/v1/jobs",
    operation_id="createJob",
    status_code=202,
    response_model=Accepted,
    responses=problems(
        *(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
        more={200: {"model": JobView, "description": "Over within the preferred wait."}},
    ),
    openapi_extra=NEW_JOB,
)
async def create(request: Request) -> Response:
    """Ask for a job: 202 and where it is; with `Prefer: wait=N`, 200 and the job if it is over by then."""
    hall, caller = enter(request, Role.SUBMIT)
    key = headers.idempotency_key(request)
    asked, body = await read_json(request, NewJob, hall.settings)
    most = hall.settings.max_payload_bytes
    if len(body) > most and (size := payload_size(body)) > most:
        raise Problem(
            "payload-too-large",
            f"the payload has {size} bytes as sent, and may have {most}; "
            f"store the data elsewhere and send where it is",
        )
    job = _job(asked, key, hall)
    admission = await hall.ask(hall.http.admit(job, caller.name, hall.owner(caller), hall.bounds))
    told = headers.limits(admission, hall.bounds)
    _check_admitted(admission, hall, told)
    told["Location"] = f"/v1/jobs/{admission.job_id}"
    if admission.verdict is AdmissionVerdict.REPLAYED:
        told["Idempotent-Replayed"] = "true"
    seconds = headers.wait_s(request)
    if seconds is not None:
        seconds = min(seconds, hall.settings.max_wait_s)
        shown = await _over(hall, caller, admission.job_id, seconds)
        if shown is not None:
            told["Preference-Applied"] = f"wait={seconds}"
            return json_answer(shown.job, more=told)
    document = {
        "job_id": admission.job_id,
        "task": asked.task,
        "status": admission.status,
        "created_ts": admission.created_at,
        "ttl_s": job.options.extra["ttl_s"],
    }
    return json_answer(document, 202, told)


def _job(asked: NewJob, key: str | None, hall: Hall) -> Job:
    extra: dict[str, Any] = {"ttl_s": hall.settings.job_ttl_s if asked.ttl_s is None else asked.ttl_s}
    if key is not None:
        extra["idempotency_key"] = key
    return Job(
        name=asked.task,
        data=asked.payload,
        queue=hall.queue.name,
        options=JobOptions(attempts=1, backoff=None, extra=extra),
        created_at=hall.corral.clock(),
    )


def _check_admitted(admission: Admission, hall: Hall, told: dict[str, str]) -> None:
    if admission.verdict is AdmissionVerdict.FULL:
        raise Problem(
            "backlog-full",
            f"{admission.backlog} jobs wait or are in hand, of at most {hall.bounds.backlog}; ask later",
            headers={**told, "Retry-After": str(hall.settings.retry_after_s)},
        )
    if admission.verdict is AdmissionVerdict.RATE_LIMITED:
        seconds = max(-(-admission.wait_ms // 1000), 1)
        raise Problem(
            "client-limit",
            f"this client has had its {hall.settings.client_jobs} jobs for now; ask again in {seconds} s",
            headers={**told, "Retry-After": str(seconds)},
        )


async def _over(hall: Hall, caller: Caller, job_id: str, seconds: float) -> OwnedJob | None:
    """The job, if it is over within that time; a client with too many tails is not waited for."""
    if hall.is_stopping or not hall.has_protocol(caller):
        return None
    with hall.slot(caller), hall.tails.joined(job_id, headers.BEGINNING) as outlet:
        try:
            async with asyncio.timeout(seconds):
                while not outlet.has_ended:
                    await outlet.woken.wait()
                    outlet.take()
        except TimeoutError:
            return None
    shown = await hall.ask(hall.http.show(job_id))
    return shown if shown is not None and shown.job["status"] in ("done", "error", "canceled") else None


@router.get(
    "/v1/jobs", operation_id="listJobs", response_model=JobPage, responses=problems(400, 401, 403, 422, 503)
)
async def list_jobs(
    request: Request,
    status: Annotated[Status | None, Query(description="Only jobs that stand so.")] = None,
    task: Annotated[Task | None, Query(description="Only jobs of this task.")] = None,
    cursor: Annotated[str, Query(description="Where to go on, from a page's `next`.", max_length=300)] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
) -> Response:
    """List jobs, in no particular order; a page may be short and still have a next one."""
    hall, caller = enter(request, Role.READ)
    try:
        page = await hall.ask(hall.http.page(cursor, limit, status, task, hall.sight(caller)))
    except InvalidOptions as error:
        raise Problem("invalid-cursor", str(error)) from None
    more = None if page.following is None else {"Link": headers.next_link(request, page.following)}
    return json_answer({"jobs": page.jobs, "next": page.following}, more=more)


@router.get(
    "/v1/jobs/{job_id}",
    operation_id="getJob",
    response_model=JobView,
    responses=problems(401, 403, 404, 503),
)
async def show(request: Request, job_id: str) -> Response:
    """One job, as its hash has it."""
    hall, caller = enter(request, Role.READ)
    return json_answer((await seen(hall, caller, job_id)).job)


@router.post(
    "/v1/jobs/{job_id}/cancel",
    operation_id="cancelJob",
    response_model=JobView,
    responses=problems(401, 403, 404, 409, 503),
)
async def cancel(request: Request, job_id: str) -> Response:
    """Cancel a job that is not over; a running handler is told."""
    hall, caller = enter(request, Role.SUBMIT)
    await seen(hall, caller, job_id)
    canceled = await hall.ask(hall.queue.cancel([job_id]))
    shown = await seen(hall, caller, job_id)
    if not canceled:
        status = shown.job["status"]
        raise Problem("job-over", f"job {job_id} is over already: {status}", job_status=status)
    return json_answer(shown.job)


async def seen(hall: Hall, caller: Caller, job_id: str) -> OwnedJob:
    """The job, if it is there for this caller; another's is as if it were not."""
    shown = await hall.ask(hall.http.show(job_id))
    if shown is None or hall.sight(caller) not in (None, shown.owner):
        raise no_job(job_id)
    return shown


def no_job(job_id: str) -> Problem:
    """The problem that there is no such job."""
    return Problem("job-not-found", f"no job {job_id[:80]!a}: it never was, or its time to live has run out")
