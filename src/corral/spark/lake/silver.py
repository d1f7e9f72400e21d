"""Silver: attempts and jobs from events; pure functions of DataFrames."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from corral.core.event import EventKind
from corral.spark.schema import GAP

JOB = ("protocol", "queue", "job_id")
GENERATION = (*JOB, "generation")
"""An id that is added again after its job is gone begins another generation; the first is 1."""

ENDS = (EventKind.COMPLETED, EventKind.DEAD, EventKind.CANCELLED)
REMOVED = ("removed", "expired")
"""Protocols' own words for a job that was deleted before it ended."""
CLAIMABLE = (EventKind.ADDED, EventKind.WAITING, EventKind.RETRY, EventKind.STALLED)
"""After these a job waits for a worker."""
OPENING = (EventKind.WAITING, EventKind.DELAYED, EventKind.ACTIVE, EventKind.RETRY, EventKind.STALLED)
"""After these a job is alive, also one that had ended."""
CLOSING = (*ENDS, EventKind.RETRY, EventKind.STALLED, EventKind.WAITING, EventKind.DELAYED)
"""After these an attempt is over."""


def job_events(events: DataFrame) -> DataFrame:
    """Return the events of jobs, each once, with their `generation` and their `number` within it.

    Late and repeated events change nothing: order is by id, and an id counts once.
    """
    kept = events.where(sf.col("job_id").isNotNull() & (sf.col("event") != GAP))
    kept = kept.dropDuplicates([*JOB, "event_id"])
    parts = sf.split("event_id", "-")
    order = (parts[0].cast("long"), parts[1].cast("decimal(20,0)"), sf.col("event_id"))
    begins = sf.when(sf.col("event") == EventKind.ADDED, 1).otherwise(0)
    begun = sf.sum(begins).over(Window.partitionBy(*JOB).orderBy(*order))
    kept = kept.withColumn("generation", sf.greatest(begun, sf.lit(1)).cast("int"))
    number = sf.row_number().over(Window.partitionBy(*GENERATION).orderBy(*order))
    return kept.withColumn("number", number)


def attempts(events: DataFrame) -> DataFrame:
    """Return one row per attempt: when it could be claimed, was claimed and ended, and how."""
    in_order = Window.partitionBy(*GENERATION).orderBy("number")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    is_start = sf.col("event") == EventKind.ACTIVE
    numbered = (
        job_events(events)
        .withColumn("_attempt", sf.sum(sf.when(is_start, 1).otherwise(0)).over(so_far).cast("int"))
        .withColumn("_queued", sf.last(sf.when(is_kind(*CLAIMABLE), sf.col("ts")), True).over(so_far))
        .withColumn("_name", sf.first("name", True).over(Window.partitionBy(*GENERATION)))
        .withColumn("_next", sf.lead("event").over(in_order))
    )
    # a protocol that says where the job went just before the stall means the stall
    is_stall = sf.coalesce(sf.col("_next") == EventKind.STALLED, sf.lit(False))
    closes = is_kind(*CLOSING) & ~(is_kind(EventKind.WAITING) & is_stall)
    grouped = numbered.where(sf.col("_attempt") > 0).groupBy(*GENERATION, sf.col("_attempt").alias("attempt"))
    folded = grouped.agg(
        sf.first("_name", True).alias("name"),
        sf.min(sf.when(is_start, sf.struct("number", "ts", "_queued", "worker"))).alias("_start"),
        sf.min(sf.when(closes, sf.struct("number", "ts", "event", "data", "worker"))).alias("_end"),
        sf.max("worker").alias("_worker"),
    )
    return folded.select(
        *(*GENERATION, "name", "attempt"),
        sf.coalesce("_start.worker", "_worker").alias("worker"),
        sf.col("_start._queued").alias("queued_at"),
        sf.col("_start.ts").alias("started_at"),
        sf.col("_end.ts").alias("ended_at"),
        _milliseconds(sf.col("_start._queued"), sf.col("_start.ts")).alias("waited_ms"),
        _milliseconds(sf.col("_start.ts"), sf.col("_end.ts")).alias("ran_ms"),
        _outcome(sf.col("_end.event")).alias("outcome"),
        reason(sf.col("_end.data")).alias("reason"),
        sf.to_date(sf.coalesce("_end.ts", "_start.ts")).alias("date"),
    )


def jobs(events: DataFrame) -> DataFrame:
    """Return one row per generation of a job: when it was added, started and ended, how, and its retries."""
    end = sf.when(is_kind(*ENDS, *REMOVED), sf.struct("number", "ts", "event", "data"))
    folded = (
        job_events(events)
        .groupBy(*GENERATION)
        .agg(
            sf.first("name", True).alias("name"),
            sf.min(sf.when(is_kind(EventKind.ADDED), sf.col("ts"))).alias("added_at"),
            sf.min("ts").alias("first_at"),
            sf.max("ts").alias("last_at"),
            sf.min(sf.when(is_kind(EventKind.ACTIVE), sf.col("ts"))).alias("started_at"),
            sf.max(end).alias("_end"),
            last_opening().alias("_opened"),
            sf.count_if(is_kind(*ENDS)).cast("int").alias("ends"),
            sf.count_if(is_kind(EventKind.ACTIVE)).cast("int").alias("attempts"),
            sf.count_if(is_kind(EventKind.RETRY)).cast("int").alias("retries"),
            sf.count_if(is_kind(EventKind.STALLED)).cast("int").alias("stalls"),
            # not every event names the worker
            sf.max_by("worker", sf.when(sf.col("worker").isNotNull(), sf.col("number"))).alias("worker"),
            sf.count("*").cast("int").alias("events"),
        )
    )
    is_over = has_ended()
    ended_at = sf.when(is_over, sf.col("_end.ts"))
    return folded.select(
        *(*GENERATION, "name", "added_at", "first_at", "last_at", "started_at"),
        ended_at.alias("ended_at"),
        _milliseconds(sf.col("added_at"), sf.col("started_at")).alias("waited_ms"),
        _milliseconds(sf.col("started_at"), ended_at).alias("ran_ms"),
        sf.when(is_over, sf.col("_end.event")).otherwise("alive").alias("outcome"),
        sf.when(is_over, reason(sf.col("_end.data"))).alias("reason"),
        *("ends", "attempts", "retries", "stalls", "worker", "events"),
        sf.to_date("first_at").alias("date"),
    )


def is_kind(*kinds: str) -> Column:
    """Return whether an event is one of these kinds."""
    return sf.col("event").isin(*map(str, kinds))


def last_opening() -> Column:
    """Return the number of the last event after which the job was alive."""
    return sf.max(sf.when(is_kind(*OPENING), sf.col("number")))


def has_ended() -> Column:
    """Return whether `_end` is final: a job that was put back later (`_opened`) is alive again."""
    return sf.col("_end").isNotNull() & (
        sf.col("_opened").isNull() | (sf.col("_opened") < sf.col("_end.number"))
    )


def reason(data: Column) -> Column:
    """Return why an attempt failed, from the field that the protocol uses."""
    paths = ("$.failedReason", "$.reason", "$.data.message", "$.data.reason", "$.error.message")
    return sf.coalesce(*[sf.get_json_object(data, path) for path in paths])


def _outcome(event: Column) -> Column:
    # of a job that was released or postponed, the protocol emits only where it went
    went_back = event.isin(EventKind.WAITING, EventKind.DELAYED)
    return sf.when(event.isNull(), "running").when(went_back, "released").otherwise(event)


def _milliseconds(start: Column, end: Column) -> Column:
    elapsed = sf.unix_millis(end) - sf.unix_millis(start)
    # the clocks of two machines may differ
    return sf.when(elapsed < 0, sf.lit(0).cast("long")).otherwise(elapsed)
