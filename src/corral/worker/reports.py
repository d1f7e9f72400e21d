"""What a worker says aloud: to its log, to its metrics, and to whoever listens."""

from structlog.typing import FilteringBoundLogger

from corral.telemetry.metrics import QueueMetrics
from corral.worker.attempt import Attempt
from corral.worker.events import Happening, Listener, WorkerEvent


class Reports:
    """Work that was lost is never lost in silence."""

    def __init__(self, log: FilteringBoundLogger, metrics: QueueMetrics, listener: Listener | None) -> None:
        self.listens = listener is not None
        self.metrics = metrics
        self.log = log
        self._listener = listener

    def tell(self, event: WorkerEvent) -> None:
        """Tell the listener, whose own errors stay its own."""
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            self.log.exception("a listener failed", about=event.kind.value)

    def lost(self, attempt: Attempt, why: BaseException) -> None:
        """An attempt ended, and the protocol refused to write that down."""
        self.metrics.lost_work(1)
        self._report("lost work: the outcome of an attempt was refused", Happening.LOST, attempt, why)

    def unknown(self, attempt: Attempt, why: BaseException) -> None:
        """An attempt ended, and nobody can tell whether that was written down."""
        self.metrics.unknown(1)
        self._report("unknown: an outcome may be written down or not", Happening.UNKNOWN, attempt, why)

    def _report(self, text: str, kind: Happening, attempt: Attempt, why: BaseException) -> None:
        job = attempt.claim.job
        outcome = None if attempt.settlement is None else attempt.settlement.outcome
        self.log.error(
            text,
            job=job.id,
            name=job.name,
            attempt=job.attempts_made + 1,
            outcome=type(outcome).__name__.lower(),
            why=str(why),
        )
        self.tell(WorkerEvent(kind, attempt.claim, outcome, why))
