"""The data pipeline on Spark: jobs and events as DataFrames, DataFrames as jobs, a lake of history."""

from typing import TYPE_CHECKING

from corral.spark.java import NoJava, find_java
from corral.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NoJava", "find_java", "register", "session"]


def register(spark: "SparkSession") -> None:
    """Make `format("corral")` known to a session that has not found it by itself.

    >>> register(spark)                                                             # doctest: +SKIP
    """
    from corral.spark.source import CorralSource

    spark.dataSource.register(CorralSource)
