"""Two queues side by side, such as one and its shadow: figures of both, and every difference between them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from corral.errors import InvalidOptions
from corral.spark.lake.audit import comparison_rules
from corral.spark.lake.audit.audit import Exit, live_events
from corral.spark.lake.ingest import snapshot_of
from corral.spark.options import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from corral.spark.lake.tables import Lake

TOLERANCE = 0.25
"""Times may differ by this share of the longer one."""
NOISE_MS = 10
"""… and by so many milliseconds, whatever share that is."""
MOST_DIFFERENCES = 1000


@dataclass(frozen=True)
class Side:
    """One of two: what happened there, and the records as they stand where they can be read."""

    label: str
    events: "DataFrame"
    snapshot: "DataFrame | None" = None


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
    """What two sides have in common, and what not."""

    a: str
    b: str
    figures: tuple[Figure, ...]
    differences: tuple[Figure, ...]
    """Of figures first, then job by job; no more than were asked for."""
    total: int
    """How many differences there are in all."""
    shared: int
    """Ids that both sides have; where there are none, jobs are compared by their names only."""

    @property
    def omitted(self) -> int:
        return self.total - len(self.differences)

    @property
    def exit_code(self) -> int:
        return Exit.WRONG if self.total else Exit.NOTHING_LOST

    def sentence(self) -> str:
        """The outcome, for people."""
        how = f"{self.shared} jobs by id" if self.shared else "by job name, for no id is on both sides"
        if not self.total:
            return f"no differences between {self.a} and {self.b} (compared: {how})"
        return f"{self.total} differences between {self.a} and {self.b} (compared: {how})"


def compare(a: Side, b: Side, *, tolerance: float = TOLERANCE, most: int = MOST_DIFFERENCES) -> Comparison:
    """Counts, outcomes, error rates, attempts, formats and times of both sides, and where they differ.

    >>> compare(Side("node", events_a, jobs_a), Side("python", events_b, jobs_b)).sentence()  # doctest: +SKIP
    'no differences between node and python (compared: 500 jobs by id)'
    """
    # each is used several times, and is dear to make
    jobs_a, jobs_b = (comparison_rules.lives(side.events).localCheckpoint() for side in (a, b))
    for side, jobs in ((a, jobs_a), (b, jobs_b)):
        if jobs.isEmpty() and (side.snapshot is None or side.snapshot.isEmpty()):
            raise InvalidOptions(f"there is no job in {side.label!r} to compare; name a queue that has some")
    rows = comparison_rules.figures(jobs_a, jobs_b).unionByName(comparison_rules.kinds(a.events, b.events))
    if a.snapshot is not None and b.snapshot is not None:
        rows = rows.unionByName(comparison_rules.formats(a.snapshot, b.snapshot))
    found = [
        (Figure(row["subject"], row["measure"], row["a"], row["b"]), row["is_time"])
        for row in rows.orderBy("order", "subject", "place").collect()
    ]
    unlike = [figure for figure, is_time in found if differs(figure, is_time, tolerance)]
    is_by_queue = any(_has_queues(jobs) for jobs in (jobs_a, jobs_b))
    pairs = comparison_rules.pairs(jobs_a, jobs_b, a.snapshot, b.snapshot, is_by_queue).localCheckpoint()
    shared = pairs.where("in_a AND in_b").count()
    details: list[Figure] = []
    total = len(unlike)
    if shared:
        apart = comparison_rules.apart(pairs)
        details = [
            Figure(row["subject"], row["measure"], row["a"], row["b"])
            for row in apart.orderBy("job_id", "measure").limit(most).collect()
        ]
        total += apart.count() if len(details) == most else len(details)
    differences = (*unlike, *details)[:most]
    return Comparison(a.label, b.label, tuple(figure for figure, _ in found), differences, total, shared)


def _has_queues(jobs: "DataFrame") -> bool:
    """Are there several queues on this side?"""
    return len(jobs.select("queue").distinct().take(2)) > 1


def differs(figure: Figure, is_time: bool, tolerance: float) -> bool:
    """Are both sides of a figure unlike? Times are where the difference is more than noise.

    >>> differs(Figure("all jobs", "ran p50 ms", "100", "120"), True, 0.25)
    False
    """
    if not is_time or figure.a is None or figure.b is None:
        return figure.a != figure.b
    first, second = float(figure.a), float(figure.b)
    return abs(first - second) > max(NOISE_MS, tolerance * max(first, second))


def side_of_server(spark: "SparkSession", where: Where, label: str | None = None) -> Side:
    """A side as its server tells it."""
    name = label or ":".join(part for part in (where.namespace, where.queue) if part)
    return Side(name, live_events(spark, where), snapshot_of(spark, where).localCheckpoint())


def side_of_lake(spark: "SparkSession", lake: "Lake", queue: str, protocol: str | None = None) -> Side:
    """A side as a lake remembers it; there are no records in a lake."""
    events = lake.bronze(spark).where(sf.col("queue") == queue)
    return Side(queue, events if protocol is None else events.where(sf.col("protocol") == protocol))


def compare_servers(spark: "SparkSession", a: Where, b: Where, **more: Any) -> Comparison:
    """Two queues or prefixes, of one server or of two."""
    return compare(side_of_server(spark, a), side_of_server(spark, b), **more)


def compare_lake(spark: "SparkSession", lake: "Lake", a: str, b: str, **more: Any) -> Comparison:
    """Two queues of one lake."""
    return compare(side_of_lake(spark, lake, a), side_of_lake(spark, lake, b), **more)
