"""The comparison of two queues, such as one and its shadow: figures of both, and every difference."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from corral.errors import InvalidOptions
from corral.spark.lake.audit import comparison_rules as rules
from corral.spark.lake.audit.audit import live_events
from corral.spark.lake.audit.findings import AuditExit
from corral.spark.lake.ingest import read_jobs
from corral.spark.lake.tables import Lake
from corral.spark.options import QueueAddress

TOLERANCE = 0.25
"""The share of the longer of two times by which they may differ."""
NOISE_MS = 10
"""Milliseconds by which two times may differ in any case."""
MAX_DIFFERENCES = 1000


@dataclass(frozen=True)
class Side:
    """One of the two: its events, and its records where they can be read."""

    label: str
    events: DataFrame
    records: DataFrame | None = None


@dataclass(frozen=True)
class Figure:
    """One thing measured on both sides."""

    subject: str
    """`all jobs`, a job's name, a kind of event, or one job."""
    measure: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison."""

    a: str
    b: str
    figures: tuple[Figure, ...]
    differences: tuple[Figure, ...]
    """Of figures first, then job by job; at most the limit."""
    total: int
    """How many differences there are."""
    shared: int
    """Ids that both sides have; where there are none, jobs are compared by their names only."""

    @property
    def omitted(self) -> int:
        return self.total - len(self.differences)

    @property
    def exit_code(self) -> int:
        return AuditExit.WRONG if self.total else AuditExit.NOTHING_LOST

    def sentence(self) -> str:
        """Return the result in words."""
        how = f"{self.shared} jobs by id" if self.shared else "by job name, for no id is on both sides"
        count = self.total or "no"
        return f"{count} differences between {self.a} and {self.b} (compared: {how})"


def compare(a: Side, b: Side, *, tolerance: float = TOLERANCE, limit: int = MAX_DIFFERENCES) -> Comparison:
    """Compare counts, outcomes, error rates, attempts, formats and times of both sides."""
    # each is used several times, and is expensive to compute
    jobs_a, jobs_b = (rules.last_generations(side.events).localCheckpoint() for side in (a, b))
    for side, jobs in ((a, jobs_a), (b, jobs_b)):
        if jobs.isEmpty() and (side.records is None or side.records.isEmpty()):
            raise InvalidOptions(f"there is no job in {side.label!r} to compare; name a queue that has some")
    rows = rules.figures(jobs_a, jobs_b).unionByName(rules.kinds(a.events, b.events))
    if a.records is not None and b.records is not None:
        rows = rows.unionByName(rules.formats(a.records, b.records))
    measured = [
        (_figure(row), row["is_time"]) for row in rows.orderBy("order", "subject", "number").collect()
    ]
    unlike = [figure for figure, is_time in measured if differs(figure, is_time, tolerance)]
    has_queues = any(len(jobs.select("queue").distinct().take(2)) > 1 for jobs in (jobs_a, jobs_b))
    pairs = rules.pairs(jobs_a, jobs_b, a.records, b.records, by_queue=has_queues).localCheckpoint()
    shared = pairs.where("in_a AND in_b").count()
    details: list[Figure] = []
    total = len(unlike)
    if shared:
        differences = rules.differences(pairs)
        ordered = differences.orderBy("job_id", "measure").limit(limit)
        details = [_figure(row) for row in ordered.collect()]
        total += differences.count() if len(details) == limit else len(details)
    figures = tuple(figure for figure, _ in measured)
    return Comparison(a.label, b.label, figures, (*unlike, *details)[:limit], total, shared)


def _figure(row: Any) -> Figure:
    return Figure(row["subject"], row["measure"], row["a"], row["b"])


def differs(figure: Figure, is_time: bool, tolerance: float) -> bool:
    """Return whether the sides of a figure differ; of times, whether by more than noise.

    >>> differs(Figure("all jobs", "ran p50 ms", "100", "120"), True, 0.25)
    False
    """
    if not is_time or figure.a is None or figure.b is None:
        return figure.a != figure.b
    first, second = float(figure.a), float(figure.b)
    return abs(first - second) > max(NOISE_MS, tolerance * max(first, second))


def compare_servers(spark: SparkSession, a: QueueAddress, b: QueueAddress, **options: Any) -> Comparison:
    """Compare two queues or prefixes, of one server or of two."""

    def side(address: QueueAddress) -> Side:
        label = ":".join(part for part in (address.namespace, address.queue) if part)
        return Side(label, live_events(spark, address), read_jobs(spark, address).localCheckpoint())

    return compare(side(a), side(b), **options)


def compare_lake(spark: SparkSession, lake: Lake, a: str, b: str, **options: Any) -> Comparison:
    """Compare two queues of one lake, which has no records."""

    def side(queue: str) -> Side:
        return Side(queue, lake.bronze(spark).where(sf.col("queue") == queue))

    return compare(side(a), side(b), **options)
