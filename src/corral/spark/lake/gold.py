"""Attempts and jobs become minutes: pure functions of DataFrames."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

MINUTE = ("protocol", "queue", "minute")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def minutes(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """One row a queue and minute: how much was added and ended, how well, and how long it took."""
    ended = attempts.where(sf.col("ended_at").isNotNull())
    worked = ended.groupBy("protocol", "queue", _minute("ended_at")).agg(
        sf.count("*").alias("ended"),
        _count("completed").alias("completed"),
        _count("dead").alias("dead"),
        _count("cancelled").alias("cancelled"),
        _count("retry").alias("retries"),
        _count("stalled").alias("stalled"),
        *[sf.percentile("waited_ms", share).alias(f"waited_{name}") for name, share in QUANTILES.items()],
        *[sf.percentile("ran_ms", share).alias(f"ran_{name}") for name, share in QUANTILES.items()],
    )
    added = (
        jobs.where(sf.col("added_at").isNotNull())
        .groupBy("protocol", "queue", _minute("added_at"))
        .agg(sf.count("*").alias("added"))
    )
    both = worked.join(added, list(MINUTE), "full_outer").fillna(
        0, ["added", "ended", "completed", "dead", "cancelled", "retries", "stalled"]
    )
    over = sf.col("completed") + sf.col("dead")
    return both.select(
        *MINUTE,
        "added",
        "completed",
        "dead",
        "cancelled",
        "retries",
        "stalled",
        over.alias("throughput"),
        _share("dead", over).alias("failure_rate"),
        _share("retries", sf.col("ended")).alias("retry_rate"),
        _share("stalled", sf.col("ended")).alias("stalled_share"),
        *[f"waited_{name}" for name in QUANTILES],
        *[f"ran_{name}" for name in QUANTILES],
        sf.to_date("minute").alias("date"),
    )


def _minute(column: str) -> Column:
    return sf.date_trunc("minute", sf.col(column)).alias("minute")


def _count(outcome: str) -> Column:
    return sf.sum(sf.when(sf.col("outcome") == outcome, 1).otherwise(0)).alias(outcome)


def _share(part: str, whole: Column) -> Column:
    return sf.when(whole > 0, sf.col(part) / whole)
