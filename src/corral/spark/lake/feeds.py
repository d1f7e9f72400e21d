"""What flows into a lake: a protocol's events as they come, and a snapshot of its jobs."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from corral.spark.options import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_EVENTS = 1_000_000
"""Of one batch at most: what a lake that is far behind reads before it notes how far it is."""


def source_name(where: Where) -> str:
    """The protocol and namespace as the name of a folder; queues may join and leave.

    >>> source_name(Where("redis://localhost", "bullmq", "bull", "mail"))
    'bullmq-535a5307'
    """
    named = json.dumps([where.protocol_name, where.namespace]).encode()
    return f"{where.protocol_name}-{sha256(named).hexdigest()[:8]}"


def events_as_they_come(
    spark: "SparkSession", where: Where, batch_events: int, starting: Mapping[str, Any] | None
) -> "DataFrame":
    """A stream of events; what was trimmed before it was read is a row of its own."""
    options = {"maxOffsetsPerTrigger": str(batch_events), "failOnDataLoss": "false"}
    if starting is not None:
        options["startingOffsets"] = json.dumps(starting)
    return spark.readStream.format("corral").options(**_named(where), **options).load()


def snapshot(spark: "SparkSession", where: Where) -> "DataFrame":
    """Every job there is now, in any state."""
    return spark.read.format("corral").options(**_named(where), table="jobs").load()


def _named(where: Where) -> dict[str, str]:
    return {
        "url": where.url,
        "protocol": where.protocol_name,
        "namespace": where.namespace,
        "queue": where.queue,
    }
