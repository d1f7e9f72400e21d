"""Makes Spark find `format("corral")` by itself: it imports every package whose name begins with pyspark_."""

from corral.spark.source import CorralSource as DefaultSource

__all__ = ["DefaultSource"]
