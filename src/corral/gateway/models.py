"""The interface's documents: what is checked on the way in, and described for both ways."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from corral.core.job import JobState

Task = Literal["chat", "plan", "code", "tool", "rag", "embed"]
Status = Literal["queued", "running", "done", "error", "canceled"]

JOB_ID = "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55"
NEW_YEAR = 1_767_225_600_000


class NewJob(BaseModel):
    """What a client asks for."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"task": "embed", "payload": {"text": "home"}, "ttl_s": 600}]},
    )

    task: Task
    payload: Annotated[dict[str, Any], Field(description="A JSON object of at most 204,800 bytes as sent.")]
    ttl_s: Annotated[
        int | None,
        Field(strict=True, ge=1, le=2_147_483_647, description="Seconds to live; else JOB_TTL_S."),
    ] = None


class Accepted(BaseModel):
    """A job that was asked for."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"job_id": JOB_ID, "task": "embed", "status": "queued", "created_ts": NEW_YEAR, "ttl_s": 600}
            ]
        }
    )

    job_id: str
    task: str
    status: str
    created_ts: int
    ttl_s: int


class JobView(BaseModel):
    """A job as its hash has it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
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
            ]
        }
    )

    job_id: str
    task: str
    payload: Any
    status: str
    created_ts: int
    updated_ts: int
    ttl_s: int
    result: Any = None
    error: Any = None


class JobPage(BaseModel):
    """Some jobs, and where to go on."""

    jobs: list[JobView]
    next: Annotated[str | None, Field(description="The cursor of the next page; null at the end.")] = None


class Fault(BaseModel):
    """One thing wrong with a request."""

    model_config = ConfigDict(populate_by_name=True)

    where: Annotated[str, Field(alias="in", description="body, query, path or header")]
    pointer: Annotated[str, Field(description="JSON Pointer to the value")]
    detail: str


class ProblemView(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:corral:problem:job-not-found",
                    "title": "There is no such job",
                    "status": 404,
                    "detail": f"no job {JOB_ID}: it never was, or its time to live has run out",
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] | None = None


class Alive(BaseModel):
    """The process is there."""

    status: Literal["alive"]


class Ready(BaseModel):
    """What was looked at, and how it was found."""

    status: Literal["ready"]
    checks: dict[str, str]


# -- queues of every room -----------------------------------------------------------------------------------


class QueueView(BaseModel):
    """A queue and how much is in it."""

    room: str
    queue: str
    counts: dict[str, int]
    is_paused: bool
    capabilities: list[str]


class QueueJob(BaseModel):
    """A job in the words every room shares."""

    model_config = ConfigDict(extra="allow")

    id: str
    name: str
    data: Any
    queue: str
    state: JobState | None


class QueueList(BaseModel):
    """All queues."""

    queues: list[QueueView]


class QueueJobPage(BaseModel):
    """Some jobs of a queue, and where to go on."""

    jobs: list[QueueJob]
    next: Annotated[str | None, Field(description="The cursor of the next page; null at the end.")] = None


class EventView(BaseModel):
    """Something that happened to a job."""

    model_config = ConfigDict(extra="allow")

    id: str
    room: str
    queue: str
    at: int
    kind: str
    job_id: str | None = None


class QueueJobDetail(QueueJob):
    """A job with what it said and what happened to it."""

    logs: list[str]
    events: list[EventView]


class WorkerView(BaseModel):
    """A worker that is alive."""

    model_config = ConfigDict(extra="allow")

    name: str
    address: str | None = None
    seen_at: int | None = None


class WorkerList(BaseModel):
    """The workers of a queue."""

    workers: list[WorkerView]


class ScheduleView(BaseModel):
    """Jobs that come by themselves."""

    id: str
    job: QueueJob
    next_at: Annotated[int | None, Field(description="Milliseconds since the epoch; null while paused.")]


class ScheduleList(BaseModel):
    """The schedules of a queue."""

    schedules: list[ScheduleView]


class Done(BaseModel):
    """Which jobs it was done for, and for which not."""

    done: list[str]
    not_done: list[str]


class Ids(BaseModel):
    """Jobs to act on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"ids": ["17", "18"]}]})

    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=512)]], Field(min_length=1, max_length=1000)
    ]


class Drained(BaseModel):
    """What a drain is to take."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"delayed": False}]})

    delayed: bool = False


class Cleaned(BaseModel):
    """Which ended jobs are to go."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"state": "completed", "older_than_s": 86400}]}
    )

    state: Literal["completed", "dead"]
    older_than_s: Annotated[int, Field(ge=0, le=2_147_483_647)] = 0
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000


class Replayed(BaseModel):
    """How many dead jobs are to run again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"limit": 100}]})

    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
