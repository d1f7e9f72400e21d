"""Documents of the interface for operators: sessions, search, tasks, schedules, flows, workers, server."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from corral.gateway.models import MAIL_JOB, NEW_YEAR, NIGHTLY, Next, QueueJob, QueueSchedule, example

TaskVerb = Literal["retry", "replay", "promote", "remove", "cancel"]
TASK_ID = "3f1c9a5e7b2d4c60"

# -- sessions and changes -----------------------------------------------------------------------------------


class SessionRequest(BaseModel, extra="forbid", json_schema_extra=example({"key": "a-secret-of-the-shop"})):
    """The key to sign in with."""

    key: Annotated[str, Field(min_length=1, max_length=500)]


class SessionView(
    BaseModel,
    json_schema_extra=example(
        {
            "name": "ops",
            "roles": ["operate", "read"],
            "csrf": "9f2c",
            "has_session": True,
            "read_only": False,
            "has_lake": True,
        }
    ),
):
    """The client of the request, and what it may do."""

    name: str
    roles: list[str]
    csrf: Annotated[str, Field(description="To be sent as X-CSRF-Token with changes in a session.")]
    has_session: bool
    read_only: bool
    has_lake: Annotated[bool, Field(description="Whether there is a history: `/v1/history`.")]


AUDIT_ENTRY: JsonDict = {
    "id": f"{NEW_YEAR}-0",
    "at": NEW_YEAR,
    "actor": "ops",
    "via": "http",
    "action": "pauseQueue",
    "protocol": "bullmq",
    "queue": "mail",
    "subject": "",
    "outcome": "200",
    "detail": "",
}


class AuditEntryView(BaseModel, json_schema_extra=example(AUDIT_ENTRY)):
    """A change: who made it, when, and how."""

    id: str
    at: int
    actor: str
    via: str
    action: str
    protocol: str
    queue: str
    subject: str
    outcome: str
    detail: str


class AuditPage(BaseModel, json_schema_extra=example({"entries": [AUDIT_ENTRY], "next": None})):
    """Changes, the latest first."""

    entries: list[AuditEntryView]
    next: Next = None


# -- jobs ---------------------------------------------------------------------------------------------------


class NewJobRequest(
    BaseModel,
    extra="forbid",
    json_schema_extra=example(
        {"name": "send", "data": {"to": "daisy@farm.example"}, "options": {"delay": 500}}
    ),
):
    """A job to add."""

    name: Annotated[str, Field(min_length=1, max_length=1000)]
    data: Any = None
    id: Annotated[str | None, Field(max_length=512)] = None
    options: Annotated[
        dict[str, Any], Field(description="As `queue.add` takes them: delay, priority, attempts, backoff, …")
    ] = {}


ADDED_JOB: JsonDict = {"protocol": "bullmq", "queue": "mail", "id": "17", "existed": False}


class AddedJob(BaseModel, json_schema_extra=example(ADDED_JOB)):
    """A job that was added, or that existed already: by its id, `unique`, or its idempotency key."""

    protocol: str
    queue: str
    id: str
    existed: bool


class JobUpdate(BaseModel, extra="forbid", json_schema_extra=example({"priority": 3})):
    """What to change of a job."""

    data: Any = None
    delay: Annotated[int | None, Field(ge=0, description="Milliseconds from now on.")] = None
    priority: Annotated[int | None, Field(ge=0)] = None


class RateLimitView(BaseModel, extra="forbid", json_schema_extra=example({"count": 100, "duration": 60000})):
    """At most `count` claims in `duration` ms."""

    count: Annotated[int, Field(ge=1, le=2**53 - 1)]
    duration: Annotated[int, Field(ge=1, le=2**53 - 1)]


LIMITS: JsonDict = {"concurrency": 10, "rate": {"count": 100, "duration": 60000}}


class LimitsView(BaseModel, extra="forbid", json_schema_extra=example(LIMITS)):
    """The limits of a whole queue; null: no limit."""

    concurrency: Annotated[int | None, Field(ge=1, le=2**31)] = None
    rate: RateLimitView | None = None


class ObliterateRequest(BaseModel, extra="forbid", json_schema_extra=example({"force": False})):
    """Whether active jobs are deleted too."""

    force: bool = False


class SearchPage(
    BaseModel,
    json_schema_extra=example({"jobs": [MAIL_JOB], "scanned": 1000, "total": 41, "next": None}),
):
    """Jobs that were found among those scanned so far, and the cursor to go on."""

    jobs: list[QueueJob]
    scanned: Annotated[int, Field(description="Records that this page has looked at.")]
    total: Annotated[int, Field(description="Jobs in the queue now, as far as its protocol counts them.")]
    next: Next = None


GROUP: JsonDict = {
    "id": "9b2e6c1f4a05",
    "error": "SMTPServerDisconnected",
    "shape": "connection closed after … s",
    "count": 12,
    "first_at": NEW_YEAR,
    "last_at": NEW_YEAR + 5000,
    "names": ["send"],
    "sample_id": "17",
    "sample_reason": "connection closed after 30 s",
}


class FailureGroupView(BaseModel, json_schema_extra=example(GROUP)):
    """Dead jobs that failed alike."""

    id: Annotated[str, Field(description="For queries: `group = …`.")]
    error: str
    shape: str
    count: int
    first_at: int | None = None
    last_at: int | None = None
    names: list[str]
    sample_id: str
    sample_reason: str


class FailureGroups(
    BaseModel, json_schema_extra=example({"groups": [GROUP], "scanned": 12, "is_complete": True})
):
    """Groups of dead jobs, the largest first."""

    groups: list[FailureGroupView]
    scanned: int
    is_complete: Annotated[bool, Field(description="Whether all dead jobs were looked at.")]


class MatchCount(BaseModel, json_schema_extra=example({"count": 400, "is_complete": True})):
    """How many jobs a bulk change would touch."""

    count: int
    is_complete: Annotated[bool, Field(description="False: there may be more.")]


# -- tasks --------------------------------------------------------------------------------------------------

TASK: JsonDict = {
    "id": TASK_ID,
    "protocol": "bullmq",
    "queue": "mail",
    "verb": "replay",
    "query": "state = dead",
    "state": "running",
    "total": 400,
    "scanned": 100,
    "done": 98,
    "not_done": 2,
    "errors": [],
    "actor": "ops",
    "started_at": NEW_YEAR,
    "updated_at": NEW_YEAR + 1000,
}


class TaskRequest(
    BaseModel,
    extra="forbid",
    json_schema_extra=example({"verb": "replay", "query": "state = dead", "per_second": 50}),
):
    """A verb over all jobs of a queue that match a query."""

    verb: TaskVerb
    query: Annotated[str, Field(max_length=2000)] = ""
    limit: Annotated[int | None, Field(ge=1, le=10_000_000)] = None
    per_second: Annotated[
        float | None, Field(gt=0, le=100_000, description="At most so many jobs a second.")
    ] = None


class TaskView(BaseModel, json_schema_extra=example(TASK)):
    """A bulk change and its progress."""

    id: str
    protocol: str
    queue: str
    verb: TaskVerb
    query: str
    state: Literal["running", "completed", "stopped", "failed", "lost"]
    total: int
    scanned: int
    done: int
    not_done: int
    errors: list[str]
    actor: str
    started_at: int
    updated_at: int


class TaskList(BaseModel, json_schema_extra=example({"tasks": [TASK]})):
    """Bulk changes, the latest first."""

    tasks: list[TaskView]


# -- schedules, flows ---------------------------------------------------------------------------------------


class ScheduleRequest(
    BaseModel,
    extra="forbid",
    json_schema_extra=example({"name": "report", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}),
):
    """A schedule to add or to change."""

    name: Annotated[str, Field(min_length=1, max_length=1000)]
    data: Any = None
    cron: str | None = None
    timezone: str | None = None
    every_ms: Annotated[int | None, Field(ge=1)] = None
    catch_up: Literal["skip", "once", "all"] = "once"
    options: dict[str, Any] = {}


QUEUE_NIGHTLY: JsonDict = {
    **NIGHTLY,
    "protocol": "bridgemq",
    "queue": "reports",
    "rule": {"cron": "0 3 * * *", "timezone": "UTC", "every_ms": None, "catch_up": "once"},
    "firings": [NEW_YEAR, NEW_YEAR + 86_400_000],
    "past": [{"at": NEW_YEAR - 86_400_000, "job_id": "nightly@1767139200000", "state": "completed"}],
    "lacks": {},
}


class ScheduleView(QueueSchedule, extra="allow", json_schema_extra=example(QUEUE_NIGHTLY)):
    """A schedule with its rule, its next ten firings, and those that are over."""

    protocol: str
    queue: str
    rule: dict[str, Any]
    firings: list[int]
    past: Annotated[
        list[dict[str, Any]],
        Field(
            description="Times of the rule that are over, the oldest first: its job, and that job's state."
        ),
    ]
    lacks: dict[str, str]


class ScheduleList(BaseModel, json_schema_extra=example({"schedules": [QUEUE_NIGHTLY]})):
    """Schedules of all queues, the next to fire first."""

    schedules: list[ScheduleView]


class ScheduleRemoved(BaseModel, json_schema_extra=example({"removed": "nightly"})):
    """A schedule that was removed."""

    removed: str


FLOW: JsonDict = {
    "queue": "mail",
    "id": "17",
    "name": "send",
    "state": "waiting",
    "reason": None,
    "created_at": NEW_YEAR,
    "finished_at": None,
    "children": [],
    "hidden": 0,
}


class FlowView(BaseModel, extra="allow", json_schema_extra=example(FLOW)):
    """A job and the jobs it waits for."""

    queue: str
    id: str
    name: str
    state: str | None = None
    children: "list[FlowView]"
    hidden: Annotated[int, Field(description="Children that are not shown.")]


class ParentPage(BaseModel, json_schema_extra=example({"jobs": [MAIL_JOB], "next": None})):
    """Jobs that wait for their children."""

    jobs: list[QueueJob]
    next: Next = None


# -- workers, activity, the server --------------------------------------------------------------------------

WORKER: JsonDict = {
    "protocol": "bullmq",
    "name": "mailer-1",
    "address": "10.0.0.7:51234",
    "seen_at": None,
    "queues": ["mail"],
    "extra": {"age": "12"},
    "jobs": [{"queue": "mail", "id": "17", "name": "send", "started_at": NEW_YEAR}],
}


class WorkerView(BaseModel, json_schema_extra=example(WORKER)):
    """A worker, its queues, and the jobs that it runs."""

    protocol: str
    name: str
    address: str | None = None
    seen_at: int | None = None
    queues: list[str]
    extra: dict[str, Any]
    record: Annotated[
        dict[str, Any] | None, Field(description="What a Corral worker wrote about itself.")
    ] = None
    jobs: list[dict[str, Any]]


class WorkerList(
    BaseModel,
    json_schema_extra=example(
        {"workers": [WORKER], "unattended": [{"protocol": "streams", "queue": "jobs"}]}
    ),
):
    """Workers of all queues, and the queues that have none."""

    workers: list[WorkerView]
    unattended: list[dict[str, Any]]


class RatesView(
    BaseModel,
    json_schema_extra=example(
        {
            "queues": {
                "bullmq/mail": {
                    "from": NEW_YEAR,
                    "added": [0, 2],
                    "completed": [0, 2],
                    "dead": [0, 0],
                    "retry": [0, 0],
                    "wait_ms": {"p50": 3, "p95": 9, "count": 2},
                    "run_ms": None,
                }
            }
        }
    ),
):
    """The last hour of each queue by the minute, oldest first, and percentiles of waits and runs."""

    queues: dict[str, dict[str, Any]]


class ServerView(
    BaseModel,
    json_schema_extra=example(
        {
            "nodes": [
                {"role": "master", "version": "Valkey 9.1.2", "used_memory": 1_048_576, "uptime_s": 60}
            ],
            "slow": [{"id": 1, "at": NEW_YEAR, "duration_us": 12_000, "command": "EVALSHA", "client": ""}],
            "findings": [
                {
                    "check": "eviction",
                    "level": "fine",
                    "finding": "maxmemory-policy is noeviction",
                    "mend": "",
                }
            ],
        }
    ),
):
    """Memory, persistence, slow commands and what the doctor finds."""

    nodes: list[dict[str, Any]]
    slow: list[dict[str, Any]]
    findings: list[dict[str, Any]]
