"""The worker runtime: claim, execute, settle. It knows the model and the ports, never a protocol."""

from corral.worker.context import BlockingJobContext, JobContext
from corral.worker.events import Listener, WorkerEvent, WorkerEventKind
from corral.worker.handlers import ANY_NAME, Handler, HandlerKind, HandlerRegistry
from corral.worker.heartbeat import Connections, OpenConnections
from corral.worker.worker import DEFAULT_CONCURRENCY, Worker, default_name, wall_clock

__all__ = [
    "ANY_NAME",
    "DEFAULT_CONCURRENCY",
    "BlockingJobContext",
    "Connections",
    "Handler",
    "HandlerKind",
    "HandlerRegistry",
    "JobContext",
    "Listener",
    "OpenConnections",
    "Worker",
    "WorkerEvent",
    "WorkerEventKind",
    "default_name",
    "wall_clock",
]
