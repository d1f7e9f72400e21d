"""Prometheus metrics of workers, counted once a turn so that a job costs next to nothing."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from corral.core import ports
from corral.errors import RedisError
from corral.telemetry.logs import logger
from corral.telemetry.metric_names import (
    COUNTERS,
    GAUGES,
    HELP,
    RENEWAL_FAILURES,
    RENEWAL_SECONDS,
    RENEWALS,
    RUNNING,
    TURNS,
)

LABELS = ("protocol", "queue")
RUN_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
RENEWAL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

M = TypeVar("M")


class RunTimes(Collector):
    """A histogram that takes a whole batch under one lock.

    prometheus_client's own takes one value at a time, at 1.5 µs each.
    """

    NAME = "corral_job_duration_seconds"
    HELP = "How long attempts ran, in seconds."

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, labels: tuple[str, ...], seconds: Sequence[float]) -> None:
        """Count a batch of run times."""
        with self._lock:
            counts = self._counts.setdefault(labels, [0] * (len(RUN_BUCKETS) + 1))
            for value in seconds:
                counts[bisect_left(RUN_BUCKETS, value)] += 1
            self._sums[labels] = self._sums.get(labels, 0.0) + sum(seconds)

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """Return the name alone: registering must not collect."""
        return [HistogramMetricFamily(self.NAME, self.HELP, labels=LABELS)]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the cumulative buckets."""
        family = HistogramMetricFamily(self.NAME, self.HELP, labels=LABELS)
        with self._lock:
            for labels, counts in self._counts.items():
                total, buckets = 0, []
                for edge, count in zip((*map(str, RUN_BUCKETS), "+Inf"), counts, strict=True):
                    total += count
                    buckets.append((edge, total))
                family.add_metric(labels, buckets, self._sums[labels])
        yield family


class ProtocolGauges(Collector):
    """Gauges of the protocols, read from the server at each scrape; none while it is unavailable."""

    def __init__(self, read: Callable[[], Sequence[ports.Gauge]]) -> None:
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: registering must not read from the server."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one family for each name."""
        try:
            gauges = self._read()
        except (RedisError, TimeoutError) as error:
            logger("metrics").warning("the protocols' gauges could not be read", why=str(error))
            return
        families: dict[str, GaugeMetricFamily] = {}
        for gauge in gauges:
            family = families.get(gauge.name)
            if family is None:
                family = GaugeMetricFamily(gauge.name, gauge.text, labels=list(gauge.labels))
                families[gauge.name] = family
            family.add_metric(list(gauge.labels.values()), gauge.value)
        yield from families.values()


class _Families(dict[str, M]):
    """Metrics by name: Corral's own, and others made when first used."""

    def __init__(self, names: Iterable[str], make: Callable[[str, str], M]) -> None:
        self._make = make
        self.update({name: make(name, HELP[name]) for name in names})

    def __missing__(self, name: str) -> M:
        family = self[name] = self._make(name, HELP.get(name, "As in the protocol's specification."))
        return family


class Metrics:
    """The metrics of one process, in a registry of its own or in a given one.

    >>> metrics = Metrics()
    >>> metrics.queue("bullmq", "mail").add(LOST)
    >>> b'corral_outcomes_lost_total{protocol="bullmq",queue="mail"} 1.0' in metrics.exposition()
    True
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = all_metrics = registry or CollectorRegistry()
        self.counters = _Families(
            COUNTERS, lambda name, text: Counter(name, text, LABELS, registry=all_metrics)
        )
        self.gauges = _Families(GAUGES, lambda name, text: Gauge(name, text, LABELS, registry=all_metrics))
        self.histograms = _Families(
            [RENEWAL_SECONDS],
            lambda name, text: Histogram(name, text, LABELS, buckets=RENEWAL_BUCKETS, registry=all_metrics),
        )
        self.jobs = Counter("corral_jobs", "Attempts settled.", (*LABELS, "outcome"), registry=all_metrics)
        self.run_times = RunTimes()
        all_metrics.register(self.run_times)
        self.job_count = Gauge(
            "bullmq_job_count",
            "Jobs in the queue, by state.",
            ("queue", "state"),
            registry=all_metrics,
            multiprocess_mode="mostrecent",
        )
        self._queues: dict[tuple[str, str], QueueMetrics] = {}

    def queue(self, protocol: str, queue: str, own_names: Mapping[str, str] | None = None) -> "QueueMetrics":
        """Return the metrics of one queue; the same object for the same queue.

        `own_names` are the further names of these metrics in the protocol's specification.
        """
        bound = self._queues.get((protocol, queue))
        if bound is None:
            bound = self._queues[protocol, queue] = QueueMetrics(self, (protocol, queue), own_names or {})
        return bound

    def count_jobs(self, queue: str, counts: Mapping[str, int]) -> None:
        """Set a queue's counts by state, in its protocol's own words."""
        for state, count in counts.items():
            self.job_count.labels(queue, state).set(count)

    def exposition(self) -> bytes:
        """Return all metrics as text for Prometheus to scrape."""
        return generate_latest(self.registry)


class QueueMetrics:
    """The metrics of one queue, with their labels already looked up."""

    def __init__(self, metrics: Metrics, labels: tuple[str, str], own_names: Mapping[str, str]) -> None:
        def named(name: str) -> list[str]:
            return [name, own_names[name]] if name in own_names else [name]

        self._metrics = metrics
        self._labels = labels
        self._counters = {
            name: [metrics.counters[each].labels(*labels) for each in named(name)] for name in COUNTERS
        }
        self._gauges = {
            name: [metrics.gauges[each].labels(*labels) for each in named(name)] for name in GAUGES
        }
        self._renewal_seconds = [metrics.histograms[each].labels(*labels) for each in named(RENEWAL_SECONDS)]
        self._outcomes: dict[type, Counter] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Add to a counter."""
        for counter in self._counters[name]:
            counter.inc(count)

    def set(self, name: str, value: int) -> None:
        """Set a gauge."""
        for gauge in self._gauges[name]:
            gauge.set(value)

    def turn(self, outcomes: Mapping[type, int], seconds: Sequence[float], running: int) -> None:
        """Count one round trip: what it settled, by the outcome's class, the run times, what is held now."""
        self.add(TURNS)
        self.set(RUNNING, running)
        for outcome, count in outcomes.items():
            counter = self._outcomes.get(outcome)
            if counter is None:
                word = outcome.__name__.lower()
                counter = self._outcomes[outcome] = self._metrics.jobs.labels(*self._labels, word)
            counter.inc(count)
        if seconds:
            self._metrics.run_times.observe(self._labels, seconds)

    def renewed(self, tried: int, failed: int, seconds: float | None = None) -> None:
        """Count one beat: the locks it tried to renew, how many failed, and how long it took.

        `seconds` is None where there was no reply: a timeout says nothing about the server's speed.
        """
        self.add(RENEWALS, tried)
        self.add(RENEWAL_FAILURES, failed)
        if seconds is not None:
            for histogram in self._renewal_seconds:
                histogram.observe(seconds)
