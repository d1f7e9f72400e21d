"""The numbers a worker tells Prometheus, gathered once a turn so that a job costs next to nothing."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from corral.core.outcome import Cancelled, Completed, Dead, Postponed, Released, Retry

LABELS = ("protocol", "queue")
RUN_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
EXTEND_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


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
        """The name alone: registering must not collect."""
        return [HistogramMetricFamily(self.NAME, self.HELP, labels=LABELS)]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The buckets as Prometheus counts them: each holds all that are smaller."""
        family = HistogramMetricFamily(self.NAME, self.HELP, labels=LABELS)
        with self._lock:
            for labels, counts in self._counts.items():
                total, buckets = 0, []
                for edge, count in zip((*map(str, RUN_BUCKETS), "+Inf"), counts, strict=True):
                    total += count
                    buckets.append((edge, total))
                family.add_metric(labels, buckets, self._sums[labels])
        yield family


class Metrics:
    """Every metric of one process, in a registry of its own or in the one that is given.

    >>> metrics = Metrics()
    >>> metrics.queue("bullmq", "mail").lost_work(1)
    >>> b'bullmq_lost_work_total{protocol="bullmq",queue="mail"} 1.0' in metrics.exposition()
    True
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._queues: dict[tuple[str, str], QueueMetrics] = {}
        self.run_times = RunTimes()
        self.registry.register(self.run_times)
        self.jobs = self._counter("corral_jobs", "Attempts settled, by outcome.", "outcome")
        self.running = self._gauge("corral_jobs_running", "Jobs in the hands of this process's workers.")
        self.turns = self._counter("corral_turns", "Round trips that settled or claimed.")
        self.unknown = self._counter("corral_settle_unknown", "Settlements whose fate cannot be known.")
        self.renewals = self._counter("bullmq_heartbeat", "Lock renewals tried, one per job and beat.")
        self.renewal_failures = self._counter("bullmq_heartbeat_failure", "Lock renewals that failed.")
        self.lost_locks = self._counter("bullmq_lock_lost", "Locks a renewal found gone while the job ran.")
        self.lost_work = self._counter("bullmq_lost_work", "Ended attempts whose settlement was refused.")
        self.stalled = self._counter("bullmq_stalled_jobs_detected", "Abandoned jobs recovery found.")
        self.skipped = self._counter("bullmq_stalled_checker_skipped", "Recoveries skipped: one still ran.")
        self.connected = self._gauge("bullmq_redis_connection_status", "Does the server answer? 1 or 0.")
        self.reconnects = self._counter("bullmq_redis_reconnect_attempts", "Tries to reach a server again.")
        self.job_count = Gauge(
            "bullmq_job_count",
            "Jobs in the queue, by state.",
            ("queue", "state"),
            registry=self.registry,
            multiprocess_mode="mostrecent",
        )
        self.extend_seconds = Histogram(
            "bullmq_lock_extend_duration_seconds",
            "How long one round trip of renewals took, in seconds.",
            LABELS,
            buckets=EXTEND_BUCKETS,
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *more: str) -> Counter:
        return Counter(name, text, (*LABELS, *more), registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, LABELS, registry=self.registry)

    def queue(self, protocol: str, queue: str) -> "QueueMetrics":
        """The metrics as one worker uses them; the same object for the same queue."""
        bound = self._queues.get((protocol, queue))
        if bound is None:
            bound = self._queues[protocol, queue] = QueueMetrics(self, protocol, queue)
        return bound

    def count_jobs(self, queue: str, counts: Mapping[str, int]) -> None:
        """Take over a queue's counts by state, in its protocol's own words."""
        for state, count in counts.items():
            self.job_count.labels(queue, state).set(count)

    def exposition(self) -> bytes:
        """Everything as text for Prometheus to scrape."""
        return generate_latest(self.registry)


class QueueMetrics:
    """One queue's metrics, with their labels already looked up."""

    def __init__(self, metrics: Metrics, protocol: str, queue: str) -> None:
        labels = self._labels = (protocol, queue)
        self._metrics = metrics
        self._turns = metrics.turns.labels(*labels)
        self._running = metrics.running.labels(*labels)
        self._unknown = metrics.unknown.labels(*labels)
        self._renewals = metrics.renewals.labels(*labels)
        self._failures = metrics.renewal_failures.labels(*labels)
        self._lost_locks = metrics.lost_locks.labels(*labels)
        self._lost_work = metrics.lost_work.labels(*labels)
        self._stalled = metrics.stalled.labels(*labels)
        self._skipped = metrics.skipped.labels(*labels)
        self._connected = metrics.connected.labels(*labels)
        self._reconnects = metrics.reconnects.labels(*labels)
        self._extend_seconds = metrics.extend_seconds.labels(*labels)
        self._jobs: dict[type, Counter] = {
            outcome: metrics.jobs.labels(*labels, outcome.__name__.lower())
            for outcome in (Completed, Retry, Dead, Cancelled, Released, Postponed)
        }

    def turn(self, outcomes: Mapping[type, int], seconds: Sequence[float], running: int) -> None:
        """One round trip: what it settled, by the outcome's class, how long that ran, what is held now."""
        self._turns.inc()
        self._running.set(running)
        for outcome, count in outcomes.items():
            counter = self._jobs.get(outcome)
            if counter is None:
                word = outcome.__name__.lower()
                counter = self._jobs[outcome] = self._metrics.jobs.labels(*self._labels, word)
            counter.inc(count)
        if seconds:
            self._metrics.run_times.observe(self._labels, seconds)

    def lost_work(self, count: int) -> None:
        self._lost_work.inc(count)

    def unknown(self, count: int) -> None:
        self._unknown.inc(count)

    def renewed(self, tried: int, failed: int, seconds: float) -> None:
        """One beat: how many locks it tried to renew, how many of them failed, and how long it took."""
        self._renewals.inc(tried)
        self._extend_seconds.observe(seconds)
        if failed:
            self._failures.inc(failed)

    def lost_locks(self, count: int) -> None:
        self._lost_locks.inc(count)

    def stalled(self, count: int) -> None:
        self._stalled.inc(count)

    def skipped(self) -> None:
        self._skipped.inc()

    def connected(self, answers: bool) -> None:
        self._connected.set(1 if answers else 0)

    def reconnecting(self) -> None:
        self._reconnects.inc()
