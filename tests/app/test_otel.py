"""Traces: one from the producer to the worker, here and through Node; metrics by the names of Prometheus."""

import json
import subprocess
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from corral import Corral, JobContext, JobState, testing
from corral.contrib.otel import JobSpans, instrument
from corral.protocols import protocol_names
from tests.support.apps import ended, working
from tests.support.node import ROOT, node_binary, node_modules, why_no_node
from tests.support.servers import Server

PROGRAM = ROOT / "tests" / "protocols" / "bullmq" / "node" / "otel.js"


class Traces:
    """A tracer provider that keeps its spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self) -> dict[str, ReadableSpan]:
        """Return the ended spans by the first word of their names."""
        return {span.name.split()[0]: span for span in self._exporter.get_finished_spans()}


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def app(url: str, traces: Traces) -> Corral:
    app = Corral(url)
    instrument(app, traces.provider)
    return app


def trace_id(span: ReadableSpan | trace.Span | None) -> str:
    assert span is not None
    context = span.get_span_context()
    assert context is not None
    return trace.format_trace_id(context.trace_id)


@pytest.mark.parametrize("protocol", protocol_names())
async def test_a_job_has_spans_for_adding_waiting_executing_and_settling(
    app: Corral, traces: Traces, protocol: str
) -> None:
    @app.job("embed", queue=None if protocol == "streams" else "orders", protocol=protocol)
    async def charge(job: JobContext) -> str:
        return trace_id(trace.get_current_span())

    async with app:
        with traces.provider.get_tracer("shop").start_as_current_span("request") as request:
            handle = await charge.add({})
        async with working(app, protocol=protocol):
            job = await ended(charge.queue, handle.id)
    spans = traces.spans()
    assert set(spans) == {"request", "add", "wait", "execute", "settle"}
    add, wait, execute, settle = (spans[name] for name in ("add", "wait", "execute", "settle"))
    assert job.result == trace_id(execute) == trace_id(settle) == trace_id(wait)
    assert trace_id(add) == trace_id(request)
    # only BullMQ's protocol has a field for the context
    assert (trace_id(execute) == trace_id(request)) is (protocol == "bullmq")
    assert execute.attributes is not None
    assert execute.attributes["messaging.message.id"] == handle.id
    assert execute.attributes["messaging.destination.name"] == charge.queue.name
    assert settle.attributes is not None
    assert settle.attributes["corral.job.outcome"] == "completed"
    assert settle.parent is not None
    assert execute.context is not None
    assert settle.parent.span_id == execute.context.span_id


async def test_an_error_is_recorded_in_the_span_of_its_attempt(app: Corral, traces: Traces) -> None:
    @app.job(queue="orders")
    def charge(job: Any) -> None:
        raise KeyError("milk")

    async with app:
        handle = await charge.add({})
        async with working(app):
            assert (await ended(charge.queue, handle.id)).state is JobState.DEAD
    execute = traces.spans()["execute"]
    assert execute.status.description == "KeyError: 'milk'"
    assert [event.name for event in execute.events] == ["exception"]


async def test_a_context_that_cannot_be_read_is_left_out(app: Corral, traces: Traces) -> None:
    @app.job(queue="orders")
    async def charge(job: JobContext) -> None:
        pass

    async with app:
        for metadata in ("{", "[]", '{"traceparent": "x"}'):
            await charge.options(telemetry={"metadata": metadata}).add({})
        last = await charge.add({})
        async with working(app):
            assert (await ended(charge.queue, last.id)).state is JobState.COMPLETED


async def test_nothing_is_kept_in_a_process_that_settles_no_job(traces: Traces) -> None:
    """A process of handlers has no receipt; its parent settles, and makes no span for that."""
    spans = JobSpans(traces.provider.get_tracer("shop"))

    async def handler(job: Any) -> str:
        return "done"

    assert await spans.execute(testing.context(None), handler) == "done"
    assert "execute" in traces.spans()
    assert not spans._executed, "it would grow with every job"


async def test_metrics_have_the_names_of_prometheus(url: str) -> None:
    reader = InMemoryMetricReader()
    app = Corral(url)
    instrument(app, TracerProvider(), MeterProvider([reader]))

    @app.job(queue="orders")
    async def charge(job: JobContext) -> None:
        pass

    async with app:
        handle = await charge.add({})
        async with working(app):
            await ended(charge.queue, handle.id)
    data = reader.get_metrics_data()
    assert data is not None
    published = {
        metric.name: json.loads(metric.to_json())["data"]["data_points"]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    [jobs] = [point for point in published["corral_jobs_total"] if point["value"]]
    assert jobs["attributes"] == {"protocol": "bullmq", "queue": "orders", "outcome": "completed"}
    assert published["corral_job_duration_seconds_count"][0]["value"] == 1


@pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))
async def test_a_trace_goes_from_node_to_corral_and_back(app: Corral, traces: Traces, server: Server) -> None:
    @app.job("charge", queue="orders")
    async def charge(job: JobContext) -> None:
        await app.queue("invoices").add("charge", {})

    def node(what: str, queue: str) -> "subprocess.Popen[str]":
        words = [node_binary() or "node", str(PROGRAM), what, str(server.port), queue]
        environment = {"NODE_PATH": str(node_modules()), "PATH": "/usr/bin:/bin"}
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)

    worker = node("work", "invoices")
    producer = node("add", "orders")
    begun = producer.communicate(timeout=30)[0].strip()
    async with app, working(app):
        await ended(charge.queue, "1")
    continued = worker.communicate(timeout=30)[0].strip()
    assert begun
    assert begun == trace_id(traces.spans()["execute"]) == continued
