"""What the gateway tells Prometheus of itself."""

import os
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from corral.gateway.tails import Tails

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Where several processes keep their numbers together, if they do."""


class GatewayMetrics:
    """Requests of one process by route and status, its tails, and the queues' counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._requests = Counter(
            "corral_gateway_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "corral_gateway_request_duration_seconds",
            "From a request's head to the head of its answer.",
            ("route",),
            buckets=BUCKETS,
            registry=registry,
        )
        self._tails = Gauge(
            "corral_gateway_tails",
            "Tails that are open.",
            ("kind",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._told = Counter(
            "corral_gateway_events_told", "Events given to tails.", ("kind",), registry=registry
        )
        self._cut = Counter(
            "corral_gateway_tails_cut", "Tails whose client did not read.", ("kind",), registry=registry
        )
        self._jobs = Gauge(
            "corral_job_count",
            "Jobs in a queue, by state.",
            ("protocol", "queue", "state"),
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._server = Gauge(
            "corral_gateway_server_up",
            "Did the server answer when it was asked for counts? 1 or 0.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._known: dict[tuple[str, str, int], Counter] = {}
        self._timed: dict[str, Histogram] = {}
        self._published: dict[tuple[str, str], int] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        key = (method, route, status)
        counter = self._known.get(key)
        if counter is None:
            counter = self._known[key] = self._requests.labels(method, route, str(status))
        counter.inc()
        timer = self._timed.get(route)
        if timer is None:
            timer = self._timed[route] = self._seconds.labels(route)
        timer.observe(seconds)

    def count_tails(self, kind: str, tails: Tails) -> None:
        """Take over the numbers of this process's tails."""
        self._tails.labels(kind).set(tails.count)
        for name, counter, total in (("told", self._told, tails.told), ("cut", self._cut, tails.cut)):
            before = self._published.get((kind, name), 0)
            counter.labels(kind).inc(total - before)
            self._published[kind, name] = total

    def count_jobs(self, protocol: str, queue: str, counts: Mapping[str, int]) -> None:
        """Take over a queue's counts."""
        for state, count in counts.items():
            self._jobs.labels(protocol, queue, state).set(count)

    def server_answers(self, is_up: bool) -> None:
        """Did the server answer?"""
        self._server.set(1 if is_up else 0)

    def exposition(self) -> bytes:
        """Everything as text for Prometheus, of all processes where they keep their numbers together."""
        if SHARED not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    @staticmethod
    def close() -> None:
        """This process's tails are no more."""
        if SHARED in os.environ:
            mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]
