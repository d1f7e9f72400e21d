"""Drop-in for BullMQ's official Python client: the same names and options, over Corral's engine.

    from corral.bullmq import Queue, Worker      # was: from bullmq import Queue, Worker

docs/reference/bullmq-drop-in.md lists what is there and where it differs.
"""

from corral.bullmq.abort_controller import AbortController, AbortError, AbortSignal
from corral.bullmq.custom_errors import (
    DelayedError,
    RateLimitError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from corral.bullmq.flow_producer import FlowProducer
from corral.bullmq.job import Job
from corral.bullmq.job_scheduler import JobScheduler
from corral.bullmq.queue import Queue
from corral.bullmq.queue_events import QueueEvents
from corral.bullmq.queue_events_producer import QueueEventsProducer
from corral.bullmq.worker import Worker

__all__ = [
    "AbortController",
    "AbortError",
    "AbortSignal",
    "DelayedError",
    "FlowProducer",
    "Job",
    "JobScheduler",
    "Queue",
    "QueueEvents",
    "QueueEventsProducer",
    "RateLimitError",
    "UnrecoverableError",
    "WaitingChildrenError",
    "WaitingError",
    "Worker",
]
