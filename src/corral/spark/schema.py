"""The columns of the tables `events` and `jobs`."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType, TimestampType

GAP = "gap"
"""The event of a row that stands for events which were gone before they were read."""


def _columns(names: str, kind: DataType) -> StructType:
    return StructType([field for name in names.split() for field in StructType().add(name, kind)])


def _table(*columns: StructType) -> StructType:
    return StructType([field for part in columns for field in part])


EVENTS = _table(
    _columns("protocol queue event_id", StringType()),
    _columns("ts", TimestampType()),
    _columns("event job_id name", StringType()),
    _columns("attempt", IntegerType()),
    _columns("previous worker data", StringType()),
)
"""One row per event; `data` is JSON."""

JOBS = _table(
    _columns("protocol queue job_id name state", StringType()),
    _columns("attempts_made starts stalls", IntegerType()),
    _columns("priority delay", LongType()),
    _columns("created_at started_at finished_at", TimestampType()),
    _columns("worker reason data result progress options", StringType()),
)
"""One row per job; `data`, `result`, `progress` and `options` are JSON."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the record batches that Spark expects."""
    return to_arrow_schema(schema, timezone="UTC")


def valid_text(text: str | None) -> str | None:
    """Return the text with bytes that are not UTF-8 (some client wrote them) replaced."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
