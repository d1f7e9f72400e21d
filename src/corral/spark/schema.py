"""The columns of the tables `events` and `jobs`."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

GAP = "gap"
"""The event of a row that stands for events which were gone before they were read."""
POSITION = "position"
"""The event of a row that states how far a queue's log was read (option `includePositions`)."""


_TYPES = {"": StringType(), "int": IntegerType(), "long": LongType(), "time": TimestampType()}


def _table(columns: str) -> StructType:
    """Return the schema of columns written as `name` (a string) or `name:type`."""
    schema = StructType()
    for column in columns.split():
        name, _, kind = column.partition(":")
        schema.add(name, _TYPES[kind])
    return schema


EVENTS = _table("protocol queue event_id ts:time event job_id name attempt:int previous worker data")
"""One row per event; `data` is JSON."""

JOBS = _table(
    "protocol queue job_id name state attempts_made:int starts:int stalls:int priority:long delay:long "
    "created_at:time started_at:time finished_at:time worker reason data result progress options"
)
"""One row per job; `data`, `result`, `progress` and `options` are JSON."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the record batches that Spark expects."""
    return to_arrow_schema(schema, timezone="UTC")


def valid_text(text: str | None) -> str | None:
    """Return the text with bytes that are not UTF-8 (some client wrote them) replaced."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
