"""Publishing silver and gold in another table format, beside the Parquet files of the lake."""

from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from corral.errors import InvalidOptions, short_repr
from corral.spark.lake.tables import ATTEMPTS, JOBS, MINUTES, Lake

PARQUET = "parquet"
"""The format of the lake itself."""


def check_format(spark: SparkSession, lake: Lake, name: str) -> None:
    """Refuse a format that this Spark cannot write, before anything is done."""
    probe = lake.work / f"probe-{uuid4().hex}"
    try:
        spark.range(1).write.format(name).save(str(probe))
    except (PySparkException, Py4JError) as error:
        lines = [line for line in str(error).splitlines() if "[" in line and "]" in line]
        why = lines[0].strip(" :") if lines else type(error).__name__
        raise InvalidOptions(
            f"this Spark cannot write the format {short_repr(name)} ({why}); give it the format's jars, "
            f"such as spark.jars.packages=io.delta:delta-spark_2.13:…, or leave --format out for Parquet"
        ) from None


def publish(spark: SparkSession, lake: Lake, name: str) -> None:
    """Write attempts, jobs and minutes to `<lake>/<format>/<table>`, replacing what was there."""
    for table, read in {ATTEMPTS: lake.attempts, JOBS: lake.jobs, MINUTES: lake.minutes}.items():
        target = lake.root / name / table
        read(spark).write.format(name).mode("overwrite").partitionBy("date").save(str(target))
