"""The worker runtime: claim, execute, settle. It knows the model and the ports, never a protocol."""

from corral.worker.connections import Connections, OpenConnections
from corral.worker.context import BlockingJobContext, JobContext
from corral.worker.events import Happening, Listener, WorkerEvent
from corral.worker.registry import ANY_NAME, Handler, Kind, Registry
from corral.worker.worker import Worker, default_name

__all__ = [
    "ANY_NAME",
    "BlockingJobContext",
    "Connections",
    "Handler",
    "Happening",
    "JobContext",
    "Kind",
    "Listener",
    "OpenConnections",
    "Registry",
    "Worker",
    "WorkerEvent",
    "default_name",
]
