"""The gateway's Prometheus metrics."""

import os
from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from corral.gateway.sse.hub import TailHub

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which several processes share their metrics."""


class GatewayMetrics:
    """Requests of one process by route and status, its tails, and the queues' counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry, multiprocess_mode="mostrecent")
        self._requests = counter(
            "corral_gateway_requests", "Requests answered.", ("method", "route", "status")
        )
        self._seconds = Histogram(
            "corral_gateway_request_duration_seconds",
            "Time from a request's head to its response's head.",
            ("route",),
            buckets=BUCKETS,
            registry=registry,
        )
        self._tails = gauge("corral_gateway_tails", "Open tails.", ("kind",), multiprocess_mode="livesum")
        self._sent = counter("corral_gateway_events_sent", "Events sent to tails.", ("kind",))
        self._timed_out = counter(
            "corral_gateway_tails_timed_out", "Tails closed because their client did not read.", ("kind",)
        )
        self._jobs = gauge("corral_job_count", "Jobs in a queue, by state.", ("protocol", "queue", "state"))
        self._redis_up = gauge(
            "corral_gateway_redis_up", "Whether Redis answered the last request for counts: 1 or 0."
        )
        self._totals: dict[tuple[str, str], int] = {}

    def count_response(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def set_tails(self, kind: str, hub: TailHub) -> None:
        """Set the metrics of this process's tails."""
        self._tails.labels(kind).set(hub.count)
        totals = (("sent", self._sent, hub.sent), ("timed_out", self._timed_out, hub.timed_out))
        for name, counter, total in totals:
            counter.labels(kind).inc(total - self._totals.get((kind, name), 0))
            self._totals[kind, name] = total

    def set_jobs(self, protocol: str, queue: str, counts: Mapping[str, int]) -> None:
        """Set a queue's counts."""
        for state, count in counts.items():
            self._jobs.labels(protocol, queue, state).set(count)

    def set_redis_up(self, is_up: bool) -> None:
        """Set whether Redis answers."""
        self._redis_up.set(1 if is_up else 0)

    def exposition(self) -> bytes:
        """Return the metrics as text, of all processes where they share them."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    @staticmethod
    def of_client(client: str, tails: int) -> bytes:
        """Return what one client may see as text."""
        registry = CollectorRegistry()
        gauge = Gauge(
            "corral_gateway_client_tails", "Open tails of this client.", ("client",), registry=registry
        )
        gauge.labels(client).set(tails)
        return generate_latest(registry)

    @staticmethod
    def close() -> None:
        """Remove this process's gauges from the shared ones."""
        if MULTIPROCESS in os.environ:
            mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]
