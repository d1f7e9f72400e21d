"""The columns of the tables `events` and `jobs`."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

EVENTS = (
    StructType()
    .add("protocol", StringType())
    .add("queue", StringType())
    .add("event_id", StringType())
    .add("ts", TimestampType())
    .add("event", StringType())
    .add("job_id", StringType())
    .add("name", StringType())
    .add("attempt", IntegerType())
    .add("previous", StringType())
    .add("worker", StringType())
    .add("data", StringType())
)
"""One row an event; `data` is JSON."""

JOBS = (
    StructType()
    .add("protocol", StringType())
    .add("queue", StringType())
    .add("job_id", StringType())
    .add("name", StringType())
    .add("state", StringType())
    .add("attempts_made", IntegerType())
    .add("starts", IntegerType())
    .add("stalls", IntegerType())
    .add("priority", LongType())
    .add("delay", LongType())
    .add("created_at", TimestampType())
    .add("started_at", TimestampType())
    .add("finished_at", TimestampType())
    .add("worker", StringType())
    .add("reason", StringType())
    .add("data", StringType())
    .add("result", StringType())
    .add("progress", StringType())
    .add("options", StringType())
)
"""One row a job; `data`, `result`, `progress` and `options` are JSON."""

GAP = "gap"
"""The event that stands for events which were gone before they were read."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema as Spark wants its record batches to have it."""
    return to_arrow_schema(schema, timezone="UTC")
