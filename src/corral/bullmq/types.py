"""The options people pass, by name."""

from typing import Any, TypedDict

import redis.asyncio as redis
from redis.asyncio.cluster import RedisCluster

ConnectionOptions = dict[str, Any] | str | redis.Redis | RedisCluster
"""A server's address: redis-py's keyword arguments, a URL, or a client of redis-py that has one."""


class BackoffOptions(TypedDict, total=False):
    """How long to wait before the next attempt."""

    type: str
    """`fixed`, `exponential`, or a name the worker's own strategy knows."""
    delay: int
    """Milliseconds."""
    jitter: float
    """The share of the delay that chance may take away, from 0 to 1."""


class KeepJobs(TypedDict, total=False):
    """Which ended jobs stay."""

    age: int
    """Seconds."""
    count: int


class DeduplicationOptions(TypedDict, total=False):
    """Jobs with one id are one job."""

    id: str
    ttl: int
    """Milliseconds; without it, until the job has ended."""
    extend: bool
    """Each duplicate starts the time anew."""
    replace: bool
    """A duplicate takes the place of the delayed job."""
    keepLastIfActive: bool
    """The last duplicate of a job that runs is added when that has ended."""


class JobOptions(TypedDict, total=False):
    """What a producer may ask for one job."""

    jobId: str
    timestamp: int
    delay: int
    attempts: int
    """How often it is run at most; 0, as 1, means once."""
    priority: int
    """1 runs first, 2097152 last; 0 means none, and runs before all of them."""
    backoff: int | BackoffOptions
    lifo: bool
    removeOnComplete: bool | int | KeepJobs
    removeOnFail: bool | int | KeepJobs
    keepLogs: int
    stackTraceLimit: int
    sizeLimit: int
    """Bytes of data as JSON."""
    deduplication: DeduplicationOptions
    parent: dict[str, str]
    """`id` and `queue` (with the prefix) of the job that waits for this one."""
    failParentOnFailure: bool
    continueParentOnFailure: bool
    ignoreDependencyOnFailure: bool
    removeDependencyOnFailure: bool
    telemetry: dict[str, Any]


class QueueBaseOptions(TypedDict, total=False):
    """What a Queue may be told."""

    prefix: str
    connection: ConnectionOptions
    defaultJobOptions: JobOptions
    skipVersionCheck: bool
    skipWaitingForReady: bool


class WorkerOptions(TypedDict, total=False):
    """What a Worker may be told."""

    name: str
    autorun: bool
    concurrency: int
    lockDuration: int
    """Milliseconds a lock lives; it is renewed at a quarter of that."""
    lockRenewTime: int
    """Accepted; renewal keeps its own time."""
    stalledInterval: int
    maxStalledCount: int
    maxStartedAttempts: int
    limiter: dict[str, int]
    """`max` claims in `duration` milliseconds."""
    metrics: dict[str, int]
    """`maxDataPoints`: minutes of history."""
    settings: dict[str, Any]
    """`backoffStrategy`: (attempts made, type, error, job) -> milliseconds, or -1 for no more."""
    removeOnComplete: bool | int | KeepJobs
    removeOnFail: bool | int | KeepJobs
    drainDelay: int
    prefix: str
    connection: ConnectionOptions
    skipVersionCheck: bool
    skipWaitingForReady: bool


class QueueEventsOptions(TypedDict, total=False):
    """What a QueueEvents may be told."""

    prefix: str
    connection: ConnectionOptions
    autorun: bool
    blockingTimeout: int
    """Milliseconds one read waits at most."""
    lastEventId: str
    """Events later than this one; `$`: from now, `0-0`: from the beginning."""
    skipVersionCheck: bool


class QueueEventsProducerOptions(TypedDict, total=False):
    """What a QueueEventsProducer may be told."""

    prefix: str
    connection: ConnectionOptions
    skipVersionCheck: bool


class RetryJobsOptions(TypedDict, total=False):
    """Which ended jobs run again."""

    state: str
    count: int
    timestamp: int


class PromoteJobsOptions(TypedDict, total=False):
    """How many delayed jobs run now."""

    count: int


class RepeatOptions(TypedDict, total=False):
    """When a scheduler makes jobs: by `pattern` or `every`, not both."""

    pattern: str
    every: int
    limit: int
    startDate: int | float | str
    endDate: int | float | str
    tz: str
    offset: int
    immediately: bool
    count: int


class JobSchedulerTemplateJson(TypedDict, total=False):
    """What a scheduler's jobs are made from."""

    data: Any
    opts: dict[str, Any]


class JobSchedulerJson(TypedDict, total=False):
    """A scheduler as it is kept."""

    key: str
    name: str
    next: int | None
    id: str | None
    iterationCount: int
    limit: int
    startDate: int
    endDate: int
    tz: str
    pattern: str
    every: int
    offset: int
    template: JobSchedulerTemplateJson
