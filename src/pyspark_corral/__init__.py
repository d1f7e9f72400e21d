"""The door by which Spark finds `format("corral")` by itself: it looks into every package called pyspark_…"""

from corral.spark.source import CorralSource as DefaultSource

__all__ = ["DefaultSource"]
