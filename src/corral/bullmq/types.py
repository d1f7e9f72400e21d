"""The options that users pass, by name."""

from typing import Any, TypedDict

import redis.asyncio as redis
from redis.asyncio.cluster import RedisCluster

ConnectionOptions = dict[str, Any] | str | redis.Redis | RedisCluster
"""A server's address: redis-py's keyword arguments, a URL, or a redis-py client."""


class BackoffOptions(TypedDict, total=False):
    """The time until the next attempt."""

    type: str
    """`fixed`, `exponential`, or a name that the worker's `backoffStrategy` knows."""
    delay: int
    """Milliseconds."""
    jitter: float
    """The part of the delay that is random, from 0 to 1."""


class KeepJobs(TypedDict, total=False):
    """The ended jobs that are kept."""

    age: int
    """Seconds."""
    count: int


class DeduplicationOptions(TypedDict, total=False):
    """Jobs with the same deduplication id are added once."""

    id: str
    ttl: int
    """Milliseconds; without it, until the job has ended."""
    extend: bool
    """Each duplicate starts the time anew."""
    replace: bool
    """A duplicate replaces the delayed job."""
    keepLastIfActive: bool
    """The last duplicate of an active job is added when that has ended."""


class JobOptions(TypedDict, total=False):
    """The options of one job."""

    jobId: str
    timestamp: int
    delay: int
    attempts: int
    """The maximum number of attempts; 0 means 1."""
    priority: int
    """From 1 (first) to 2097152 (last); 0 means none and runs before all of them."""
    backoff: int | BackoffOptions
    lifo: bool
    removeOnComplete: bool | int | KeepJobs
    removeOnFail: bool | int | KeepJobs
    keepLogs: int
    stackTraceLimit: int
    sizeLimit: int
    """Bytes of data as JSON."""
    deduplication: DeduplicationOptions
    debounce: DeduplicationOptions
    """The former name of `deduplication`."""
    parent: dict[str, str]
    """`id` and `queue` (with the prefix) of the job that waits for this one."""
    failParentOnFailure: bool
    continueParentOnFailure: bool
    ignoreDependencyOnFailure: bool
    removeDependencyOnFailure: bool
    telemetry: dict[str, Any]


class QueueEventsProducerOptions(TypedDict, total=False):
    """The options of a QueueEventsProducer; the other classes have them too."""

    prefix: str
    connection: ConnectionOptions
    skipVersionCheck: bool


class QueueBaseOptions(QueueEventsProducerOptions, total=False):
    """The options of a Queue."""

    defaultJobOptions: JobOptions
    skipWaitingForReady: bool


class WorkerOptions(QueueEventsProducerOptions, total=False):
    """The options of a Worker."""

    name: str
    autorun: bool
    concurrency: int
    lockDuration: int
    """Milliseconds until a lock expires; it is renewed after a quarter of that."""
    lockRenewTime: int
    """Accepted and not used."""
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
    runRetryDelay: int
    skipWaitingForReady: bool


class QueueEventsOptions(QueueEventsProducerOptions, total=False):
    """The options of a QueueEvents."""

    autorun: bool
    blockingTimeout: int
    """Milliseconds one read waits at most."""
    lastEventId: str
    """Events later than this one; `$`: from now, `0-0`: from the beginning."""


class RetryJobsOptions(TypedDict, total=False):
    """The ended jobs to retry."""

    state: str
    count: int
    timestamp: int


class PromoteJobsOptions(TypedDict, total=False):
    """The delayed jobs to promote."""

    count: int


class RepeatOptions(TypedDict, total=False):
    """When a scheduler adds jobs: by `pattern` or `every`, not both."""

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
    """The data and options of a scheduler's jobs."""

    data: Any
    opts: dict[str, Any]


class JobSchedulerJson(TypedDict, total=False):
    """A scheduler."""

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
