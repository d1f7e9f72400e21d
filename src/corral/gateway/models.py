"""The documents of the interface: request bodies, which are checked, and responses, which are described."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from corral.core.job import JobState

Task = Literal["chat", "plan", "code", "tool", "rag", "embed"]
Status = Literal["queued", "running", "done", "error", "canceled"]
Next = Annotated[str | None, Field(description="The cursor of the next page; null at the end.")]

JOB_ID = "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55"
NEW_YEAR = 1_767_225_600_000
CURSOR = "k6d3YWl0aW5nAMA"


def example(document: JsonDict) -> JsonDict:
    """Return the part of a schema that shows an example."""
    return {"examples": [document]}


# -- jobs of the streams contract ---------------------------------------------------------------------------

DONE_JOB: JsonDict = {
    "job_id": JOB_ID,
    "task": "embed",
    "payload": {"text": "the herd is home"},
    "status": "done",
    "created_ts": NEW_YEAR,
    "updated_ts": NEW_YEAR + 1000,
    "ttl_s": 600,
    "result": {"vector": [0.5, 0.25]},
    "error": None,
}


class JobRequest(
    BaseModel,
    extra="forbid",
    strict=True,
    json_schema_extra=example({"task": "embed", "payload": {"text": "home"}, "ttl_s": 600}),
):
    """A job to create."""

    task: Task
    payload: Annotated[dict[str, Any], Field(description="A JSON object of at most 204,800 bytes as sent.")]
    ttl_s: Annotated[
        int | None,
        Field(strict=True, ge=1, le=2_147_483_647, description="Seconds to live; without it, JOB_TTL_S."),
    ] = None


class AcceptedJob(
    BaseModel,
    json_schema_extra=example(
        {"job_id": JOB_ID, "task": "embed", "status": "queued", "created_ts": NEW_YEAR, "ttl_s": 600}
    ),
):
    """A job that was created."""

    job_id: str
    task: str
    status: str
    created_ts: int
    ttl_s: int


class StreamsJob(AcceptedJob, json_schema_extra=example(DONE_JOB)):
    """A job as its hash has it."""

    payload: Any
    updated_ts: int
    result: Any = None
    error: Any = None


class CancelledJob(AcceptedJob, json_schema_extra=example(DONE_JOB)):
    """A job that was cancelled; with the role `read` also what a job has besides."""

    payload: Any = None
    updated_ts: int | None = None
    result: Any = None
    error: Any = None


class StreamsJobPage(BaseModel, json_schema_extra=example({"jobs": [DONE_JOB], "next": None})):
    """Some jobs, and the cursor for more."""

    jobs: list[StreamsJob]
    next: Next = None


# -- problems and health ------------------------------------------------------------------------------------


class InvalidField(BaseModel, populate_by_name=True):
    """One fault of a request."""

    location: Annotated[str, Field(alias="in", description="body, query, path or header")]
    pointer: Annotated[str, Field(description="JSON Pointer to the value")]
    detail: str


class ProblemDocument(
    BaseModel,
    extra="allow",
    json_schema_extra=example(
        {
            "type": "urn:corral:problem:job-not-found",
            "title": "There is no such job",
            "status": 404,
            "detail": f"no job {JOB_ID}: it does not exist, or its time to live is over",
        }
    ),
):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[InvalidField] | None = None


class Liveness(BaseModel, json_schema_extra=example({"status": "alive"})):
    """The process runs."""

    status: Literal["alive"]


class Readiness(
    BaseModel,
    json_schema_extra=example({"status": "ready", "checks": {"redis": "ok", "scripts": "ok", "group": "ok"}}),
):
    """The checks of readiness and their results."""

    status: Literal["ready"]
    checks: dict[str, str]


# -- queues of every protocol -------------------------------------------------------------------------------

MAIL_QUEUE: JsonDict = {
    "protocol": "bullmq",
    "queue": "mail",
    "counts": {"waiting": 2, "delayed": 1, "active": 1, "completed": 40, "dead": 0},
    "is_paused": False,
    "capabilities": ["delay", "pause", "priority", "retry"],
    "lacks": {"pause-schedule": "protocol 'bullmq' has no paused schedules; pause the whole queue"},
    "limits": {"concurrency": None, "rate": None},
    "oldest_at": NEW_YEAR,
}
MAIL_JOB: JsonDict = {
    "id": "17",
    "name": "send",
    "data": {"to": "daisy@farm.example"},
    "queue": "mail",
    "state": "completed",
    "attempts_made": 2,
    "created_at": NEW_YEAR,
    "started_at": NEW_YEAR + 1000,
    "finished_at": NEW_YEAR + 1200,
    "result": {"sent": True},
    "reason": None,
    "worker": "mailer-1",
    "failed_attempts": [
        {
            "number": 1,
            "started_at": NEW_YEAR,
            "ended_at": NEW_YEAR + 40,
            "worker": "mailer-2",
            "error": "ConnectionError",
            "message": "mail.example: connection refused",
        }
    ],
}
COMPLETED_EVENT: JsonDict = {
    "id": f"{NEW_YEAR + 1200}-0",
    "protocol": "bullmq",
    "queue": "mail",
    "at": NEW_YEAR + 1200,
    "kind": "completed",
    "job_id": "17",
}
NIGHTLY: JsonDict = {
    "id": "nightly",
    "job": {"id": "nightly", "name": "report", "data": {}, "queue": "reports", "state": "delayed"},
    "next_at": NEW_YEAR,
}


class QueueView(BaseModel, json_schema_extra=example(MAIL_QUEUE)):
    """A queue with its counts."""

    protocol: str
    queue: str
    counts: dict[str, int]
    is_paused: bool
    capabilities: list[str]
    lacks: Annotated[dict[str, str], Field(description="Verbs that the protocol has no word for: why.")]
    limits: Annotated[
        dict[str, Any] | None, Field(description="Of the whole queue; only where one queue is requested.")
    ] = None
    oldest_at: Annotated[int | None, Field(description="When the next job to run was added.")] = None
    error: Annotated[str | None, Field(description="Why the queue cannot be read; its counts are empty.")] = (
        None
    )


class QueueList(BaseModel, json_schema_extra=example({"queues": [MAIL_QUEUE]})):
    """Queues."""

    queues: list[QueueView]


class QueueJob(BaseModel, extra="allow", json_schema_extra=example(MAIL_JOB)):
    """A job in the words all protocols share."""

    id: str
    name: str
    data: Any
    queue: str
    state: JobState | None
    failed_attempts: Annotated[
        list[dict[str, Any]], Field(description="The last attempts made in vain, the oldest first.")
    ] = []


class QueueJobPage(BaseModel, json_schema_extra=example({"jobs": [MAIL_JOB], "next": CURSOR})):
    """Some jobs of a queue, and the cursor for more."""

    jobs: list[QueueJob]
    next: Next = None


class EventView(BaseModel, extra="allow", json_schema_extra=example(COMPLETED_EVENT)):
    """An event in the words all protocols share."""

    id: str
    protocol: str
    queue: str
    at: int
    kind: str
    job_id: str | None = None


class QueueJobDetail(
    QueueJob, json_schema_extra=example({**MAIL_JOB, "logs": ["handed over"], "events": [COMPLETED_EVENT]})
):
    """A job with its log and its events."""

    logs: list[str]
    events: list[EventView]


class QueueWorker(BaseModel, extra="allow"):
    """A worker that is alive."""

    name: str
    address: str | None = None
    seen_at: int | None = None


class QueueWorkerList(
    BaseModel,
    json_schema_extra=example(
        {"workers": [{"name": "mailer-1", "address": "10.0.0.7:51234", "seen_at": None}]}
    ),
):
    """The workers of a queue."""

    workers: list[QueueWorker]


class QueueSchedule(BaseModel, json_schema_extra=example(NIGHTLY)):
    """A schedule and the job it adds."""

    id: str
    job: QueueJob
    next_at: Annotated[int | None, Field(description="Milliseconds since the epoch; null while paused.")]


class QueueScheduleList(BaseModel, json_schema_extra=example({"schedules": [NIGHTLY]})):
    """The schedules of a queue."""

    schedules: list[QueueSchedule]


class ScheduleRun(
    BaseModel, json_schema_extra=example({"schedule": "nightly", "job_id": f"nightly@{NEW_YEAR}"})
):
    """A schedule that was run now, and the job it added."""

    schedule: str
    job_id: str


# -- changes ------------------------------------------------------------------------------------------------


class ChangeResult(BaseModel, json_schema_extra=example({"done": ["17"], "not_done": ["18"]})):
    """The ids of the jobs that were changed, and of those that were not."""

    done: list[str]
    not_done: list[str]


class JobIds(BaseModel, extra="forbid", strict=True, json_schema_extra=example({"ids": ["17", "18"]})):
    """The jobs to change."""

    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=512)]], Field(min_length=1, max_length=1000)
    ]


class DrainRequest(BaseModel, extra="forbid", strict=True, json_schema_extra=example({"delayed": False})):
    """Whether a drain deletes delayed jobs too."""

    delayed: bool = False


class CleanRequest(
    BaseModel,
    extra="forbid",
    strict=True,
    json_schema_extra=example({"state": "completed", "older_than_s": 86400}),
):
    """Which ended jobs to delete."""

    state: Literal["completed", "dead"]
    older_than_s: Annotated[int, Field(ge=0, le=2_147_483_647)] = 0
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000


class ReplayRequest(BaseModel, extra="forbid", strict=True, json_schema_extra=example({"limit": 100})):
    """Which dead jobs to replay: these, or so many."""

    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=512)]] | None, Field(min_length=1, max_length=1000)
    ] = None

    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
