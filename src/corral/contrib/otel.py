"""OpenTelemetry: spans for adding, waiting, executing and settling, one trace across processes, and metrics.

The context travels in the field in which BullMQ keeps it, so a trace goes on from a Node producer with
bullmq-otel to a Corral worker, and back. The other protocols have no such field: there an execution begins
a trace of its own.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import time_ns
from typing import Any

from msgspec.structs import replace
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from corral.app import Corral
from corral.core.job import Job
from corral.core.ports import Added
from corral.errors import Postpone, Release, WaitForChildren
from corral.hooks import AddNext
from corral.worker import WorkerEvent, WorkerEventKind
from corral.worker.context import BaseJobContext
from corral.worker.middleware import CallNext

SCOPE = "corral"
TELEMETRY = "telemetry"
"""The option that carries the context, in the protocols that have it."""
_METADATA = "tm"
"""Its name in a job that was read."""
_ENDS = (WorkerEventKind.SETTLED, WorkerEventKind.LOST, WorkerEventKind.UNKNOWN)
_NOT_FAILED = (Postpone, Release, WaitForChildren)


def instrument(
    app: Corral,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace the jobs that this app adds and runs, and publish its metrics; call it once, before both.

    Without providers the global ones are used.

    >>> app = Corral()
    >>> instrument(app)
    """
    tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
    spans = JobSpans(tracer)
    app.on_add(spans.add)
    app.middleware(spans.execute)
    app.listener(spans.settled)
    _publish_metrics(app, meter_provider or metrics.get_meter_provider())


class JobSpans:
    """The hooks that make spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._executed: dict[tuple[str, str, int], tuple[Context, int]] = {}
        """The attempts whose handlers have ended, by queue, id and number: the span's context, and when."""

    async def add(self, jobs: Sequence[Job], call_next: AddNext) -> Sequence[Added]:
        """Add jobs inside a span that their executions belong to."""
        queue = call_next.queue
        attributes = {**_attributes("send", queue.name), "messaging.batch.message_count": len(jobs)}
        with self._tracer.start_as_current_span(f"add {queue.name}", None, SpanKind.PRODUCER, attributes):
            if TELEMETRY in queue.protocol.spec.options:
                carrier: dict[str, str] = {}
                propagate.inject(carrier)
                jobs = [_with_context(job, {"metadata": json.dumps(carrier)}) for job in jobs]
            return await call_next(jobs)

    async def execute(self, job: BaseJobContext[Any], call_next: CallNext) -> Any:
        """Run an attempt inside a span, after one for the time the job waited."""
        parent = _context_of(job.job)
        attributes = {
            **_attributes("process", job.queue),
            "messaging.message.id": job.id,
            "corral.job.name": job.name,
            "corral.job.attempt": job.attempt,
        }
        if job.attempt == 1 and job.created_at:
            waited = self._tracer.start_span(
                f"wait {job.queue}", parent, attributes=attributes, start_time=job.created_at * 1_000_000
            )
            waited.end()
            parent = parent or trace.set_span_in_context(waited)
        span = self._tracer.start_span(f"execute {job.name}", parent, SpanKind.CONSUMER, attributes)
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                return await call_next(job)
        except BaseException as error:
            _failed(span, error)
            raise
        finally:
            # a process of its own has no receipt: its parent settles the job, and would never ask here
            if job.claim.receipt is not None:
                self._executed[job.queue, job.id, job.attempt] = trace.set_span_in_context(span), time_ns()
            span.end()

    def settled(self, event: WorkerEvent) -> None:
        """Make a span from the end of a handler until its outcome is written."""
        if event.kind not in _ENDS or event.claim is None:
            return
        job = event.claim.job
        executed = self._executed.pop((job.queue, job.id, job.attempts_made + 1), None)
        if executed is None:
            return  # it ran in a process of its own, or not at all
        context, ended_at = executed
        attributes = {**_attributes("settle", job.queue), "messaging.message.id": job.id}
        if event.outcome is not None:
            attributes["corral.job.outcome"] = type(event.outcome).__name__.lower()
        span = self._tracer.start_span(
            f"settle {job.queue}", context, attributes=attributes, start_time=ended_at
        )
        if event.kind is not WorkerEventKind.SETTLED:
            span.set_status(Status(StatusCode.ERROR, event.kind.value))
        span.end()


def _attributes(operation: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": "corral",
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _with_context(job: Job, telemetry: dict[str, str]) -> Job:
    if TELEMETRY in job.options.extra:
        return job  # whoever added it has given it one
    options = replace(job.options, extra={**job.options.extra, TELEMETRY: telemetry})
    return replace(job, options=options)


def _context_of(job: Job) -> Context | None:
    """Return the context of whoever added the job; None where it has none that can be read."""
    metadata = job.options.extra.get(_METADATA)
    try:
        carrier = json.loads(metadata) if isinstance(metadata, str) else None
    except ValueError:
        return None
    return propagate.extract(carrier) if isinstance(carrier, dict) else None


def _failed(span: Span, error: BaseException) -> None:
    if not isinstance(error, _NOT_FAILED):
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))


# -- metrics ------------------------------------------------------------------------------------------------


def _publish_metrics(app: Corral, provider: MeterProvider) -> None:
    """Publish the app's Prometheus metrics under the same names; of histograms count and sum."""
    meter = provider.get_meter(SCOPE)
    for family in app.metrics.registry.collect():
        if family.type == "gauge":
            meter.create_observable_gauge(family.name, [_reader(app, family.name)], "", family.documentation)
            continue
        endings = {"counter": ("_total",), "histogram": ("_count", "_sum")}.get(family.type, ())
        for ending in endings:
            name = f"{family.name}{ending}"
            meter.create_observable_counter(name, [_reader(app, name)], "", family.documentation)


def _reader(app: Corral, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> Iterator[Observation]:
        for family in app.metrics.registry.collect():
            for sample in family.samples:
                if sample.name == name:
                    yield Observation(sample.value, sample.labels)

    return read
