"""The worker runtime: claim, execute, settle. It knows the model and the ports, never a room."""

from corral.worker.context import BlockingJobContext, JobContext
from corral.worker.doors import Doors, OpenDoors
from corral.worker.events import Happening, Listener, WorkerEvent
from corral.worker.registry import ANY_NAME, Handler, Kind, Registry
from corral.worker.worker import Worker, default_name

__all__ = [
    "ANY_NAME",
    "BlockingJobContext",
    "Doors",
    "Handler",
    "Happening",
    "JobContext",
    "Kind",
    "Listener",
    "OpenDoors",
    "Registry",
    "Worker",
    "WorkerEvent",
    "default_name",
]
