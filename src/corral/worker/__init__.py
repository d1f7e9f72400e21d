"""The worker runtime: claim, execute, settle. It knows the model and the ports, never a protocol.

`Worker` itself is in `corral.worker.worker`: programs that only add jobs do not import it.
"""

from corral.worker.config import (
    DEFAULT_CONCURRENCY,
    Connections,
    OpenConnections,
    WorkerConfig,
    default_name,
    wall_clock,
)
from corral.worker.context import JobContext, SyncJobContext
from corral.worker.events import Listener, WorkerEvent, WorkerEventKind
from corral.worker.handlers import ANY_NAME, Handler, HandlerFunction, HandlerKind, HandlerRegistry

__all__ = [
    "ANY_NAME",
    "DEFAULT_CONCURRENCY",
    "Connections",
    "Handler",
    "HandlerFunction",
    "HandlerKind",
    "HandlerRegistry",
    "JobContext",
    "Listener",
    "OpenConnections",
    "SyncJobContext",
    "WorkerConfig",
    "WorkerEvent",
    "WorkerEventKind",
    "default_name",
    "wall_clock",
]
