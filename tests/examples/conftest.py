"""The same Spark as the tests of Spark have: they share one process."""

from tests.spark.conftest import spark

__all__ = ["spark"]
