"""What a report is made of: sums, times, reasons and series, as pure functions of the lake's tables."""

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from corral.spark.lake.gold import QUANTILES

QUEUE = ("protocol", "queue")
COUNTS = ("added", "completed", "dead", "cancelled", "retries", "stalled")
MOST_POINTS = 120
LONGEST_REASON = 200
NO_REASON = "(no reason told)"


def queues(minutes: DataFrame) -> DataFrame:
    """One row a queue: how many jobs were added and how they ended; `peak`: most that ended in one minute."""
    sums = [sf.sum(name).cast("long").alias(name) for name in COUNTS]
    return minutes.groupBy(*QUEUE).agg(*sums, sf.max("throughput").cast("long").alias("peak"))


def times(attempts: DataFrame, by: Sequence[str]) -> DataFrame:
    """One row a queue (and what it is split by): rates, and how long attempts waited and ran."""
    over = _count("completed") + _count("dead")
    ended = sf.count("ended_at")
    return attempts.groupBy(*QUEUE, *by).agg(
        ended.alias("ended"),
        sf.when(over > 0, _count("dead") / over).alias("failure_rate"),
        sf.when(ended > 0, _count("retry") / ended).alias("retry_rate"),
        sf.when(ended > 0, _count("stalled") / ended).alias("stalled_share"),
        *_quantiles(),
    )


def alive(jobs: DataFrame) -> DataFrame:
    """One row a queue: how many jobs have not ended."""
    return jobs.where(sf.col("outcome") == "alive").groupBy(*QUEUE).agg(sf.count("*").alias("alive"))


def reasons(attempts: DataFrame) -> DataFrame:
    """Failed attempts by why they failed, the commonest first."""
    first_line = sf.substring_index(sf.col("reason"), "\n", 1)
    told = sf.coalesce(sf.substring(first_line, 1, LONGEST_REASON), sf.lit(NO_REASON)).alias("reason")
    failed = attempts.where(sf.col("outcome").isin("dead", "retry", "stalled"))
    counted = failed.groupBy("queue", "name", "outcome", told).agg(
        sf.count("*").alias("count"), sf.max("ended_at").alias("last")
    )
    return counted.orderBy(sf.desc("count"), "queue", "name", "reason")


def slowest(attempts: DataFrame) -> DataFrame:
    """Attempts, those that ran longest first."""
    return attempts.where(sf.col("ran_ms").isNotNull()).orderBy(
        sf.desc("ran_ms"), "queue", "job_id", "attempt"
    )


def span(minutes: DataFrame) -> DataFrame:
    """One row, if there is anything: the first minute and the last."""
    ends = minutes.agg(sf.min("minute").alias("first"), sf.max("minute").alias("last"))
    return ends.where(sf.col("first").isNotNull())


def step_minutes(first: datetime, last: datetime) -> int:
    """How many minutes a point stands for, so that there are not too many of them.

    >>> step_minutes(datetime(2025, 1, 1, 12, 0), datetime(2025, 1, 1, 12, 59))
    1
    >>> step_minutes(datetime(2025, 1, 1), datetime(2025, 1, 8))
    90
    """
    wanted = ((last - first).total_seconds() / 60 + 1) / MOST_POINTS
    steps = (1, 2, 5, 10, 15, 30, 60, 90, 120, 180, 360, 720, 1440)
    return next((step for step in steps if step >= wanted), int(wanted / 1440 + 1) * 1440)


def along(attempts: DataFrame, minutes: DataFrame, step: int) -> DataFrame:
    """One row a queue and stretch of so many minutes: what was added and ended, and times."""
    sums = [sf.sum(name).cast("long").alias(name) for name in COUNTS]
    counted = minutes.groupBy(*QUEUE, _stretch(sf.col("minute"), step)).agg(*sums)
    ended = attempts.where(sf.col("ended_at").isNotNull())
    timed = ended.groupBy(*QUEUE, _stretch(sf.col("ended_at"), step)).agg(*_quantiles())
    return counted.join(timed, [*QUEUE, "at"], "left")


def _stretch(at: Column, step: int) -> Column:
    seconds = sf.unix_seconds(at)
    return sf.timestamp_seconds(seconds - seconds % (step * 60)).alias("at")


def _quantiles() -> list[Column]:
    return [
        sf.percentile(f"{what}_ms", share).alias(f"{what}_{name}")
        for what in ("waited", "ran")
        for name, share in QUANTILES.items()
    ]


def _count(outcome: str) -> Column:
    return sf.sum(sf.when(sf.col("outcome") == outcome, 1).otherwise(0))
