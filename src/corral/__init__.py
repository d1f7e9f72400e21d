"""Corral: a job system on Redis for Python. One job model, one worker runtime, three wire contracts."""

from corral.app import Corral
from corral.core.event import EventKind, JobEvent
from corral.core.filter import JobFilter
from corral.core.job import Backoff, Job, JobOptions, JobState, Keep
from corral.core.options import Capability
from corral.core.ports import Added
from corral.core.schedule import ScheduleRule
from corral.errors import (
    AddInterrupted,
    CorralError,
    InvalidArguments,
    InvalidName,
    InvalidOptions,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobTimeout,
    Postpone,
    RedisConnectionError,
    RedisError,
    Refused,
    Release,
    ResultGone,
    SettleError,
    Transient,
    Unrecoverable,
    Unsupported,
)
from corral.handle import JobHandle
from corral.job_type import JobCall, JobType
from corral.queue import Queue
from corral.schedules import ScheduledJob
from corral.worker import JobContext, SyncJobContext, Worker, WorkerEvent, WorkerEventKind

__version__ = "0.1.0"

__all__ = [
    "AddInterrupted",
    "Added",
    "Backoff",
    "Capability",
    "Corral",
    "CorralError",
    "EventKind",
    "InvalidArguments",
    "InvalidName",
    "InvalidOptions",
    "InvalidPayload",
    "Job",
    "JobCall",
    "JobCancelled",
    "JobContext",
    "JobEvent",
    "JobFailed",
    "JobFilter",
    "JobHandle",
    "JobOptions",
    "JobState",
    "JobTimeout",
    "JobType",
    "Keep",
    "Postpone",
    "Queue",
    "RedisConnectionError",
    "RedisError",
    "Refused",
    "Release",
    "ResultGone",
    "ScheduleRule",
    "ScheduledJob",
    "SettleError",
    "SyncJobContext",
    "Transient",
    "Unrecoverable",
    "Unsupported",
    "Worker",
    "WorkerEvent",
    "WorkerEventKind",
]
