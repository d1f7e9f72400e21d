"""The queries of a report: sums, times, reasons and series, as pure functions of the lake's tables."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from corral.spark.lake.gold import COUNTS, count_outcome, quantiles

QUEUE = ("protocol", "queue")
MAX_POINTS = 120
WEEK = timedelta(days=7)
SLOWER = 1.25
"""Of the p95 of a week before: from then on a name counts as slower."""
MAX_REASON = 200
NO_REASON = "(no reason given)"


def queues(minutes: DataFrame) -> DataFrame:
    """Return one row per queue: jobs added and ended; `peak` is the most that ended in one minute."""
    return minutes.groupBy(*QUEUE).agg(*_sums(), sf.max("throughput").cast("long").alias("peak"))


def times(attempts: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return one row per queue (and the columns `by`): rates, and how long attempts waited and ran."""
    over = count_outcome("completed") + count_outcome("dead")
    ended = sf.count("ended_at")
    return attempts.groupBy(*QUEUE, *by).agg(
        ended.alias("ended"),
        sf.when(over > 0, count_outcome("dead") / over).alias("failure_rate"),
        sf.when(ended > 0, count_outcome("retry") / ended).alias("retry_rate"),
        sf.when(ended > 0, count_outcome("stalled") / ended).alias("stalled_share"),
        *quantiles(),
    )


def alive(jobs: DataFrame) -> DataFrame:
    """Return one row per queue: how many jobs have not ended."""
    return jobs.where(sf.col("outcome") == "alive").groupBy(*QUEUE).agg(sf.count("*").alias("alive"))


def reasons(attempts: DataFrame) -> DataFrame:
    """Return failed attempts by reason, the most frequent first."""
    first_line = sf.substring_index(sf.col("reason"), "\n", 1)
    reason = sf.coalesce(sf.substring(first_line, 1, MAX_REASON), sf.lit(NO_REASON)).alias("reason")
    failed = attempts.where(sf.col("outcome").isin("dead", "retry", "stalled"))
    counted = failed.groupBy("queue", "name", "outcome", reason).agg(
        sf.count("*").alias("count"), sf.max("ended_at").alias("last")
    )
    return counted.orderBy(sf.desc("count"), "queue", "name", "reason")


def failing(attempts: DataFrame) -> DataFrame:
    """Return names by failed attempts, with their most frequent reason, the most failures first."""
    named = reasons(attempts).groupBy("queue", "name")
    counted = named.agg(sf.sum("count").alias("failed"), sf.max_by("reason", "count").alias("reason"))
    return counted.orderBy(sf.desc("failed"), "queue", "name")


def slower(attempts: DataFrame, last: datetime) -> DataFrame:
    """Return names that run longer in the week before `last` than in the week before that, by p95."""
    at, ran = sf.col("ended_at"), sf.col("ran_ms")
    is_recent = at > sf.lit(last - WEEK)
    both = attempts.where(ran.isNotNull() & (at > sf.lit(last - 2 * WEEK)) & (at <= sf.lit(last)))
    timed = both.groupBy(*QUEUE, "name").agg(
        sf.percentile(sf.when(~is_recent, ran), 0.95).alias("before"),
        sf.percentile(sf.when(is_recent, ran), 0.95).alias("now"),
    )
    grown = timed.where((sf.col("now") > sf.col("before") * SLOWER) & (sf.col("now") - sf.col("before") > 10))
    growth = sf.col("now") / sf.greatest("before", sf.lit(1.0)) - 1
    return grown.withColumn("growth", growth).orderBy(sf.desc("growth"), "queue", "name")


def slowest(attempts: DataFrame) -> DataFrame:
    """Return attempts, those that ran longest first."""
    ran = attempts.where(sf.col("ran_ms").isNotNull())
    return ran.orderBy(sf.desc("ran_ms"), "queue", "job_id", "attempt")


def span(minutes: DataFrame) -> DataFrame:
    """Return the first and the last minute as one row; no row where there are none."""
    ends = minutes.agg(sf.min("minute").alias("first"), sf.max("minute").alias("last"))
    return ends.where(sf.col("first").isNotNull())


def step_minutes(first: datetime, last: datetime) -> int:
    """Return how many minutes a point of a series stands for, so that there are not too many points.

    >>> step_minutes(datetime(2025, 1, 1, 12, 0), datetime(2025, 1, 1, 12, 59))
    1
    >>> step_minutes(datetime(2025, 1, 1), datetime(2025, 1, 8))
    90
    """
    least = ((last - first).total_seconds() / 60 + 1) / MAX_POINTS
    steps = (1, 2, 5, 10, 15, 30, 60, 90, 120, 180, 360, 720, 1440)
    return next((step for step in steps if step >= least), int(least / 1440 + 1) * 1440)


def series(attempts: DataFrame, minutes: DataFrame, step: int) -> DataFrame:
    """Return one row per queue and interval of `step` minutes: what was added and ended, and times."""
    counted = minutes.groupBy(*QUEUE, _interval(sf.col("minute"), step)).agg(*_sums())
    ended = attempts.where(sf.col("ended_at").isNotNull())
    timed = ended.groupBy(*QUEUE, _interval(sf.col("ended_at"), step)).agg(*quantiles())
    return counted.join(timed, [*QUEUE, "at"], "left")


def _interval(at: Column, step: int) -> Column:
    seconds = sf.unix_seconds(at)
    return sf.timestamp_seconds(seconds - seconds % (step * 60)).alias("at")


def _sums() -> list[Column]:
    return [sf.sum(name).cast("long").alias(name) for name in COUNTS]
