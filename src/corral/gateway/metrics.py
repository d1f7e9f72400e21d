"""What the gateway tells Prometheus of itself."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from corral.gateway.tails import Tails

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class GatewayMetrics:
    """Requests of one process, by route and status."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
        self._known: dict[tuple[str, str, int], Counter] = {}
        self._timed: dict[str, Histogram] = {}

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


class TailMetrics(Collector):
    """Tails of one process, counted where they are."""

    def __init__(self, kinds: dict[str, Tails]) -> None:
        self._kinds = kinds

    def collect(self) -> Iterator[Metric]:
        """The numbers of this moment."""
        tails = GaugeMetricFamily("corral_gateway_tails", "Tails that are open.", labels=["kind"])
        told = CounterMetricFamily("corral_gateway_events_told", "Events given to tails.", labels=["kind"])
        cut = CounterMetricFamily(
            "corral_gateway_tails_cut", "Tails whose client did not read.", labels=["kind"]
        )
        for kind, found in self._kinds.items():
            tails.add_metric([kind], found.count)
            told.add_metric([kind], found.told)
            cut.add_metric([kind], found.cut)
        return iter((tails, told, cut))
