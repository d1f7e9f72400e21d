"""Corral: a job system on Redis for Python. One job model, one worker runtime, three wire contracts."""

from corral.app import Corral
from corral.core.capability import Capability
from corral.core.event import EventKind, JobEvent
from corral.core.job import Backoff, Job, JobOptions, JobState, Keep
from corral.errors import (
    Away,
    CorralError,
    GiveBack,
    InvalidName,
    InvalidOptions,
    InvalidPayload,
    JobCancelled,
    JobTimeout,
    Postpone,
    Refused,
    SettleError,
    StoreFault,
    Transient,
    Unrecoverable,
    Unsupported,
)
from corral.job_type import JobType
from corral.queue import Queue
from corral.schedules import ScheduledJob
from corral.worker import JobContext, Worker

__version__ = "0.1.0"

__all__ = [
    "Away",
    "Backoff",
    "Capability",
    "Corral",
    "CorralError",
    "EventKind",
    "GiveBack",
    "InvalidName",
    "InvalidOptions",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobEvent",
    "JobOptions",
    "JobState",
    "JobTimeout",
    "JobType",
    "Keep",
    "Postpone",
    "Queue",
    "Refused",
    "ScheduledJob",
    "SettleError",
    "StoreFault",
    "Transient",
    "Unrecoverable",
    "Unsupported",
    "Worker",
]
