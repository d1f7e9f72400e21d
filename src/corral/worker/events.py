"""Worker events for listeners, and the log lines and metrics beside them."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from corral.core.job import Claim
from corral.core.outcome import Outcome
from corral.telemetry.logs import FieldLogger
from corral.telemetry.metric_names import LOST, UNKNOWN

if TYPE_CHECKING:
    from corral.telemetry.metrics import QueueMetrics


class WorkerEventKind(StrEnum):
    """What an event of a worker is about."""

    ACTIVE = "active"
    """A claim is about to be executed."""
    SETTLED = "settled"
    """An outcome was written."""
    LOST = "lost"
    """An attempt ended, but its lock was gone: the outcome was refused and the job may run again. Without an
    outcome: the lock was gone before the handler began, which then did not."""
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
ListensTo = Callable[[WorkerEventKind], bool]
"""Whether a listener takes the events of one kind, ACTIVE or SETTLED; the others are always emitted."""


_REPORTS = {
    WorkerEventKind.LOST: (LOST, "lost work: the outcome of an attempt was refused"),
    WorkerEventKind.UNKNOWN: (UNKNOWN, "unknown: the outcome of an attempt may have been written or not"),
}


class Monitor:
    """The log, the metrics and the listener of a worker."""

    def __init__(
        self,
        log: FieldLogger,
        metrics: "QueueMetrics",
        listener: Listener | None,
        listens_to: ListensTo | None = None,
    ) -> None:
        self.log = log
        self.metrics = metrics
        self._listener = listener
        self._listens_to = listens_to

    def listens_to(self, kind: WorkerEventKind) -> bool:
        """Return whether events of this kind, which each job has, are needed now."""
        if self._listener is None:
            return False
        return self._listens_to is None or self._listens_to(kind)

    def emit(self, event: WorkerEvent) -> None:
        """Call the listener; its errors are logged."""
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            self.log.exception("a listener failed", about=event.kind.value)

    def report(
        self, kind: WorkerEventKind, claim: Claim, outcome: Outcome | None, error: BaseException
    ) -> None:
        """Report an attempt whose outcome was refused (LOST), or written or not (UNKNOWN)."""
        metric, text = _REPORTS[kind]
        self.metrics.add(metric)
        self.log.error(
            text,
            job=claim.job.id,
            name=claim.job.name,
            attempt=claim.job.attempts_made + 1,
            outcome=type(outcome).__name__.lower(),
            why=str(error),
        )
        self.emit(WorkerEvent(kind, claim, outcome, error))
