"""The data pipeline on Spark: jobs and events as DataFrames, DataFrames as jobs, a lake of job history."""

from corral.spark.java import NoJava, find_java
from corral.spark.session import register, session

__all__ = ["NoJava", "find_java", "register", "session"]
