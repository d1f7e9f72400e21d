"""Worker events for listeners, and the log lines and metrics beside them."""

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from corral.core.job import Claim
from corral.core.outcome import Outcome
from corral.telemetry.metrics import LOST, UNKNOWN, QueueMetrics


class WorkerEventKind(StrEnum):
    ACTIVE = "active"
    """A claim is about to be executed."""
    SETTLED = "settled"
    """An outcome was written."""
    LOST = "lost"
    """An attempt ended, but its lock was gone: the outcome was refused and the job may run again."""
    UNKNOWN = "unknown"
    """The reply to a settlement was lost for longer than the lock: it may have been written or not."""
    UNAVAILABLE = "unavailable"
    """Redis is unavailable: no more claims, running jobs go on."""
    AVAILABLE = "available"
    """Redis is available again."""
    DRAINED = "drained"
    """No job is left to claim."""


class WorkerEvent(Struct, frozen=True):
    """An event of a worker; what it is about, as far as its kind has it."""

    kind: WorkerEventKind
    claim: Claim | None = None
    outcome: Outcome | None = None
    error: BaseException | None = None


Listener = Callable[[WorkerEvent], None]
"""Called on the worker's event loop; it must be quick, and its errors are logged."""


class Monitor:
    """The log, the metrics and the listener of a worker."""

    def __init__(self, log: FilteringBoundLogger, metrics: QueueMetrics, listener: Listener | None) -> None:
        self.log = log
        self.metrics = metrics
        self.has_listener = listener is not None
        self._listener = listener

    def emit(self, event: WorkerEvent) -> None:
        """Call the listener; its errors are logged."""
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            self.log.exception("a listener failed", about=event.kind.value)

    def lost(self, claim: Claim, outcome: Outcome | None, error: BaseException) -> None:
        """Report an attempt whose outcome was refused."""
        self.metrics.add(LOST)
        text = "lost work: the outcome of an attempt was refused"
        self._report(text, WorkerEvent(WorkerEventKind.LOST, claim, outcome, error))

    def unknown(self, claim: Claim, outcome: Outcome | None, error: BaseException) -> None:
        """Report an attempt whose outcome may have been written or not."""
        self.metrics.add(UNKNOWN)
        text = "unknown: the outcome of an attempt may have been written or not"
        self._report(text, WorkerEvent(WorkerEventKind.UNKNOWN, claim, outcome, error))

    def _report(self, text: str, event: WorkerEvent) -> None:
        assert event.claim is not None
        job = event.claim.job
        self.log.error(
            text,
            job=job.id,
            name=job.name,
            attempt=job.attempts_made + 1,
            outcome=type(event.outcome).__name__.lower(),
            why=str(event.error),
        )
        self.emit(event)
