"""Corral: a job system on Redis for Python. One job model, one worker runtime, three wire contracts."""

import importlib
import typing

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
    NotDurable,
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

if typing.TYPE_CHECKING:
    from corral.app import Corral
    from corral.core.batch_signature import JobOutcome
    from corral.core.event import EventKind, JobEvent
    from corral.core.filter import JobFilter
    from corral.core.job import Backoff, Job, JobOptions, JobState, Keep
    from corral.core.options import Capability
    from corral.core.ports import Added, Limit
    from corral.core.schedule import ScheduleRule
    from corral.handle import JobHandle
    from corral.job_call import JobCall
    from corral.job_type import JobType
    from corral.queue import Queue
    from corral.schedules import ScheduledJob
    from corral.worker import JobContext, SyncJobContext, WorkerEvent, WorkerEventKind
    from corral.worker.worker import Worker

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
    "JobOutcome",
    "JobState",
    "JobTimeout",
    "JobType",
    "Keep",
    "Limit",
    "NotDurable",
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

_MODULES = {
    "Corral": "corral.app",
    "JobOutcome": "corral.core.batch_signature",
    "EventKind": "corral.core.event",
    "JobEvent": "corral.core.event",
    "JobFilter": "corral.core.filter",
    "Backoff": "corral.core.job",
    "Job": "corral.core.job",
    "JobOptions": "corral.core.job",
    "JobState": "corral.core.job",
    "Keep": "corral.core.job",
    "Capability": "corral.core.options",
    "Added": "corral.core.ports",
    "Limit": "corral.core.ports",
    "ScheduleRule": "corral.core.schedule",
    "JobHandle": "corral.handle",
    "JobCall": "corral.job_call",
    "JobType": "corral.job_type",
    "Queue": "corral.queue",
    "ScheduledJob": "corral.schedules",
    "JobContext": "corral.worker",
    "SyncJobContext": "corral.worker",
    "WorkerEvent": "corral.worker",
    "WorkerEventKind": "corral.worker",
    "Worker": "corral.worker.worker",
}
"""The names that are imported when they are first used, and their modules."""


if not typing.TYPE_CHECKING:  # to a type checker it would mean that every name exists

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = vars(importlib.import_module(_MODULES[name]))[name]
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
