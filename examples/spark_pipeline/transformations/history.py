"""Events of jobs, and the attempts, jobs and minutes that they tell of.

Spark puts `spark` into this module; tables depend on those that they read.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame

from corral.spark.lake import gold, silver


@dp.table
def events() -> DataFrame:
    """Every event of every queue, once: a stream to the present end."""
    return spark.readStream.format("corral").options(queue="*", failOnDataLoss="false").load()  # noqa: F821


@dp.materialized_view
def attempts() -> DataFrame:
    """One row per attempt: when it could be claimed, was claimed and ended, and how."""
    return silver.attempts(spark.read.table("events"))  # noqa: F821


@dp.materialized_view
def jobs() -> DataFrame:
    """One row per job."""
    return silver.jobs(spark.read.table("events"))  # noqa: F821


@dp.materialized_view
def minutes() -> DataFrame:
    """One row per queue and minute: how many jobs were added and ended, how, and how fast."""
    table = spark.read.table("events")  # noqa: F821
    # not from the tables above: a run resolves which files they have before it replaces them
    return gold.minutes(silver.attempts(table), silver.jobs(table))
