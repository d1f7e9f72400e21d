"""Gold: minutes from attempts and jobs; pure functions of DataFrames."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

MINUTE = ("protocol", "queue", "minute")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
COUNTS = ("added", "completed", "dead", "cancelled", "retries", "stalled")


def minutes(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Return one row per queue and minute: how many jobs were added and ended, how, and how fast."""
    ended = attempts.where(sf.col("ended_at").isNotNull())
    worked = ended.groupBy("protocol", "queue", _minute("ended_at")).agg(
        sf.count("*").alias("ended"),
        count_outcome("completed").alias("completed"),
        count_outcome("dead").alias("dead"),
        count_outcome("cancelled").alias("cancelled"),
        count_outcome("retry").alias("retries"),
        count_outcome("stalled").alias("stalled"),
        *quantiles(),
    )
    added = (
        jobs.where(sf.col("added_at").isNotNull())
        .groupBy("protocol", "queue", _minute("added_at"))
        .agg(sf.count("*").alias("added"))
    )
    both = worked.join(added, list(MINUTE), "full_outer")
    # not `fillna`: a declarative pipeline cannot look at the columns of tables that are not there yet
    for name in ("ended", *COUNTS):
        both = both.withColumn(name, sf.coalesce(name, sf.lit(0)))
    over = sf.col("completed") + sf.col("dead")
    return both.select(
        *MINUTE,
        *COUNTS,
        over.alias("throughput"),
        _share("dead", over).alias("failure_rate"),
        _share("retries", sf.col("ended")).alias("retry_rate"),
        _share("stalled", sf.col("ended")).alias("stalled_share"),
        *[f"{what}_{name}" for what in ("waited", "ran") for name in QUANTILES],
        sf.to_date("minute").alias("date"),
    )


def count_outcome(outcome: str) -> Column:
    """Return how many attempts or jobs have this outcome."""
    return sf.sum(sf.when(sf.col("outcome") == outcome, 1).otherwise(0))


def quantiles() -> list[Column]:
    """Return `waited_p50`, …, `ran_p99`."""
    return [
        sf.percentile(f"{what}_ms", share).alias(f"{what}_{name}")
        for what in ("waited", "ran")
        for name, share in QUANTILES.items()
    ]


def _minute(column: str) -> Column:
    return sf.date_trunc("minute", sf.col(column)).alias("minute")


def _share(part: str, whole: Column) -> Column:
    return sf.when(whole > 0, sf.col(part) / whole)
