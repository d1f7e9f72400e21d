"""Documents of the history that is read from the lake."""

from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from corral.core.job import JobState
from corral.gateway.models import NEW_YEAR, Next, example

HOUR_MS = 3_600_000


class Quantiles(BaseModel, json_schema_extra=example({"p50": 3, "p95": 9})):
    """Milliseconds: half are faster than `p50`, 95 % than `p95`."""

    p50: int
    p95: int


ROW: JsonDict = {
    "protocol": "bullmq",
    "queue": "mail",
    "name": "send",
    "worker": None,
    "completed": 410,
    "dead": 2,
    "retry": 31,
    "wait_ms": {"p50": 3, "p95": 9},
    "run_ms": {"p50": 40, "p95": 95},
    "reason": "550 no such mailbox",
}


class HistoryRow(BaseModel, json_schema_extra=example(ROW)):
    """Attempts of a queue, of a name in it, or of a worker."""

    protocol: str
    queue: str | None = None
    name: str | None = None
    worker: str | None = None
    completed: int
    dead: int
    retry: Annotated[int, Field(description="Attempts after which the job was to be tried again.")]
    wait_ms: Quantiles | None = None
    run_ms: Quantiles | None = None
    reason: Annotated[str | None, Field(description="Of the latest failure.")] = None


SERIES: JsonDict = {
    "added": [400, 43],
    "completed": [380, 30],
    "dead": [0, 2],
    "retry": [1, 30],
    "wait_p50": [3, 4],
    "wait_p95": [9, 12],
    "run_p50": [40, 41],
    "run_p95": [95, 99],
}


class HistoryView(
    BaseModel,
    json_schema_extra=example(
        {
            "from": NEW_YEAR,
            "until": NEW_YEAR + 2 * HOUR_MS,
            "step_ms": HOUR_MS,
            "reaches_to": NEW_YEAR + HOUR_MS,
            "series": SERIES,
            "queues": [{**ROW, "name": None}],
            "names": [ROW],
            "workers": [{**ROW, "queue": None, "name": None, "worker": "mailer-1"}],
            "slowest": [ROW],
            "failing": [ROW],
        }
    ),
):
    """Throughput, failures, waits and runs of a time; series have a point for each `step_ms` since `from`."""

    from_: Annotated[int, Field(alias="from")]
    until: int
    step_ms: int
    reaches_to: Annotated[int | None, Field(description="The latest end of an attempt in it.")] = None
    series: Annotated[
        dict[str, list[int | None] | None],
        Field(description="Counts, and quantiles of waits and runs in ms; `added` is null for a worker."),
    ]
    queues: list[HistoryRow]
    names: list[HistoryRow]
    workers: list[HistoryRow]
    slowest: Annotated[list[HistoryRow], Field(description="Names by the 95th percentile of their runs.")]
    failing: Annotated[list[HistoryRow], Field(description="Names by their failed attempts.")]


class HistoryRates(
    BaseModel,
    json_schema_extra=example(
        {
            "from": NEW_YEAR,
            "until": NEW_YEAR + 2 * HOUR_MS,
            "step_ms": HOUR_MS,
            "queues": {
                "bullmq/mail": {"added": [2, 0], "completed": [1, 1], "dead": [0, 0], "retry": [0, 1]}
            },
        }
    ),
):
    """A series of each queue."""

    from_: Annotated[int, Field(alias="from")]
    until: int
    step_ms: int
    queues: dict[str, dict[str, list[int]]]


LAKE_JOB: JsonDict = {
    "protocol": "bullmq",
    "queue": "mail",
    "id": "17",
    "generation": 1,
    "name": "send",
    "outcome": "completed",
    "state": "completed",
    "reason": None,
    "worker": "mailer-1",
    "attempts_made": 1,
    "retries": 0,
    "stalls": 0,
    "created_at": NEW_YEAR,
    "started_at": NEW_YEAR + 3,
    "finished_at": NEW_YEAR + 43,
    "data": None,
}
ATTEMPT: JsonDict = {
    "attempt": 1,
    "worker": "mailer-1",
    "queued_at": NEW_YEAR,
    "started_at": NEW_YEAR + 3,
    "ended_at": NEW_YEAR + 43,
    "waited_ms": 3,
    "ran_ms": 40,
    "outcome": "completed",
    "reason": None,
}


class HistoryJob(BaseModel, json_schema_extra=example(LAKE_JOB)):
    """A job as the lake knows it; it keeps no data and no result."""

    protocol: str
    queue: str
    id: str
    generation: Annotated[int, Field(description="1; more where the id was used again.")]
    name: str
    outcome: Annotated[str, Field(description="How it ended; `alive` where the lake saw no end.")]
    state: JobState | None = None
    reason: str | None = None
    worker: str | None = None
    attempts_made: int
    retries: int
    stalls: int
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    data: None = None


class HistoryJobPage(BaseModel, json_schema_extra=example({"jobs": [LAKE_JOB], "next": None})):
    """Jobs, the last added first."""

    jobs: list[HistoryJob]
    next: Next = None


class HistoryJobDetail(
    HistoryJob, json_schema_extra=example({**LAKE_JOB, "attempts": [ATTEMPT], "events": []})
):
    """A job with its attempts and its events."""

    attempts: list[dict[str, Any]]
    events: list[dict[str, Any]]
