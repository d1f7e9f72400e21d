"""The interface's documents: what is checked on the way in, and described for both ways."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import ExtraValues

from corral.core.job import JobState

Task = Literal["chat", "plan", "code", "tool", "rag", "embed"]
Status = Literal["queued", "running", "done", "error", "canceled"]

JOB_ID = "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55"
NEW_YEAR = 1_767_225_600_000


def shown_as(example: dict[str, Any], extra: ExtraValues = "ignore") -> ConfigDict:
    """The settings of a model that is described with this example."""
    return ConfigDict(extra=extra, json_schema_extra={"examples": [example]})


class NewJob(BaseModel):
    """What a client asks for."""

    model_config = shown_as({"task": "embed", "payload": {"text": "home"}, "ttl_s": 600}, extra="forbid")

    task: Task
    payload: Annotated[dict[str, Any], Field(description="A JSON object of at most 204,800 bytes as sent.")]
    ttl_s: Annotated[
        int | None,
        Field(strict=True, ge=1, le=2_147_483_647, description="Seconds to live; else JOB_TTL_S."),
    ] = None


class Accepted(BaseModel):
    """A job that was asked for."""

    model_config = shown_as(
        {"job_id": JOB_ID, "task": "embed", "status": "queued", "created_ts": NEW_YEAR, "ttl_s": 600}
    )

    job_id: str
    task: str
    status: str
    created_ts: int
    ttl_s: int


DONE_JOB = {
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


class JobView(BaseModel):
    """A job as its hash has it."""

    model_config = shown_as(DONE_JOB)

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

    model_config = shown_as({"jobs": [DONE_JOB], "next": None})

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

    model_config = shown_as(
        {
            "type": "urn:corral:problem:job-not-found",
            "title": "There is no such job",
            "status": 404,
            "detail": f"no job {JOB_ID}: it never was, or its time to live has run out",
        },
        extra="allow",
    )

    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] | None = None


class Alive(BaseModel):
    """The process is there."""

    model_config = shown_as({"status": "alive"})

    status: Literal["alive"]


class Ready(BaseModel):
    """What was looked at, and how it was found."""

    model_config = shown_as(
        {"status": "ready", "checks": {"server": "answers", "scripts": "known", "group": "there"}}
    )

    status: Literal["ready"]
    checks: dict[str, str]


# -- queues of every protocol -------------------------------------------------------------------------------


MAIL = {
    "protocol": "bullmq",
    "queue": "mail",
    "counts": {"waiting": 2, "delayed": 1, "active": 1, "completed": 40, "dead": 0},
    "is_paused": False,
    "capabilities": ["delay", "pause", "priority", "retry"],
}
LETTER = {
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
    "worker": "postman",
}
SENT = {
    "id": f"{NEW_YEAR + 1200}-0",
    "protocol": "bullmq",
    "queue": "mail",
    "at": NEW_YEAR + 1200,
    "kind": "completed",
    "job_id": "17",
}
NIGHTLY = {
    "id": "nightly",
    "job": {"id": "nightly", "name": "report", "data": {}, "queue": "reports", "state": "delayed"},
    "next_at": NEW_YEAR,
}


class QueueView(BaseModel):
    """A queue and how much is in it."""

    model_config = shown_as(MAIL)

    protocol: str
    queue: str
    counts: dict[str, int]
    is_paused: bool
    capabilities: list[str]


class QueueJob(BaseModel):
    """A job in the words every protocol shares."""

    model_config = shown_as(LETTER, extra="allow")

    id: str
    name: str
    data: Any
    queue: str
    state: JobState | None


class QueueList(BaseModel):
    """All queues."""

    model_config = shown_as({"queues": [MAIL]})

    queues: list[QueueView]


class QueueJobPage(BaseModel):
    """Some jobs of a queue, and where to go on."""

    model_config = shown_as({"jobs": [LETTER], "next": "after-1"})

    jobs: list[QueueJob]
    next: Annotated[str | None, Field(description="The cursor of the next page; null at the end.")] = None


class EventView(BaseModel):
    """Something that happened to a job."""

    model_config = shown_as(SENT, extra="allow")

    id: str
    protocol: str
    queue: str
    at: int
    kind: str
    job_id: str | None = None


class QueueJobDetail(QueueJob):
    """A job with what it said and what happened to it."""

    model_config = shown_as({**LETTER, "logs": ["handed over"], "events": [SENT]}, extra="allow")

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

    model_config = shown_as({"workers": [{"name": "postman", "address": "10.0.0.7:51234", "seen_at": None}]})

    workers: list[WorkerView]


class ScheduleView(BaseModel):
    """Jobs that come by themselves."""

    model_config = shown_as(NIGHTLY)

    id: str
    job: QueueJob
    next_at: Annotated[int | None, Field(description="Milliseconds since the epoch; null while paused.")]


class ScheduleList(BaseModel):
    """The schedules of a queue."""

    model_config = shown_as({"schedules": [NIGHTLY]})

    schedules: list[ScheduleView]


class Fired(BaseModel):
    """A schedule that was run now, and the job that came of it."""

    model_config = shown_as({"schedule": "nightly", "job_id": f"nightly@{NEW_YEAR}"})

    schedule: str
    job_id: str


class Done(BaseModel):
    """Which jobs it was done for, and for which not."""

    model_config = shown_as({"done": ["17"], "not_done": ["18"]})

    done: list[str]
    not_done: list[str]


class Ids(BaseModel):
    """Jobs to act on."""

    model_config = shown_as({"ids": ["17", "18"]}, extra="forbid")

    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=512)]], Field(min_length=1, max_length=1000)
    ]


class Drained(BaseModel):
    """What a drain is to take."""

    model_config = shown_as({"delayed": False}, extra="forbid")

    delayed: bool = False


class Cleaned(BaseModel):
    """Which ended jobs are to go."""

    model_config = shown_as({"state": "completed", "older_than_s": 86400}, extra="forbid")

    state: Literal["completed", "dead"]
    older_than_s: Annotated[int, Field(ge=0, le=2_147_483_647)] = 0
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000


class Replayed(BaseModel):
    """How many dead jobs are to run again."""

    model_config = shown_as({"limit": 100}, extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
