"""Publishing: silver and gold in another table format, beside the Parquet they are made of."""

from typing import TYPE_CHECKING
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from corral.errors import InvalidOptions, short_repr
from corral.spark.lake.tables import ATTEMPTS, JOBS, MINUTES, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARQUET = "parquet"
"""What a lake is made of in any case."""


def check_format(spark: "SparkSession", lake: Lake, form: str) -> None:
    """Refuse a format that this Spark cannot write, before anything is done."""
    probe = lake.work / f"probe-{uuid4().hex}"
    try:
        spark.range(1).write.format(form).save(str(probe))
    except (PySparkException, Py4JError) as error:
        told = [line for line in str(error).splitlines() if "[" in line and "]" in line]
        why = told[0].strip(" :") if told else type(error).__name__
        raise InvalidOptions(
            f"this Spark cannot write the format {short_repr(form)} ({why}); give it the format's jars, "
            f"such as spark.jars.packages=io.delta:delta-spark_2.13:…, or leave --format out for Parquet"
        ) from None


def publish(spark: "SparkSession", lake: Lake, form: str) -> None:
    """Write attempts, jobs and minutes to `<lake>/<format>/<table>`, as that format replaces a table."""
    tables = {ATTEMPTS: lake.attempts, JOBS: lake.jobs, MINUTES: lake.minutes}
    for name, read in tables.items():
        target = lake.root / form / name
        read(spark).write.format(form).mode("overwrite").partitionBy("date").save(str(target))
