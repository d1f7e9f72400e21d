"""Events become attempts and jobs: pure functions of DataFrames."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from corral.core.event import EventKind
from corral.spark.schema import GAP

JOB = ("protocol", "queue", "job_id")
LIFE = (*JOB, "life")
"""An id that is added again after its job is gone begins another life."""

ENDS = (EventKind.COMPLETED, EventKind.DEAD, EventKind.CANCELLED)
REMOVED = ("removed", "expired")
"""Words of protocols for a job that went without an end of its own."""
CLAIMABLE = (EventKind.ADDED, EventKind.WAITING, EventKind.RETRY, EventKind.STALLED)
"""After these a job waits for a worker."""
OPENING = (EventKind.WAITING, EventKind.DELAYED, EventKind.ACTIVE, EventKind.RETRY, EventKind.STALLED)
"""After these a job is alive, also one that had ended."""
CLOSING = (*ENDS, EventKind.RETRY, EventKind.STALLED, EventKind.WAITING, EventKind.DELAYED)
"""After these an attempt is over."""


def lives(events: DataFrame) -> DataFrame:
    """Events of jobs, each once, numbered within their life: `life`, `place`.

    Late and repeated events change nothing: order is by id, and an id counts once.
    """
    kept = events.where(sf.col("job_id").isNotNull() & (sf.col("event") != GAP))
    kept = kept.dropDuplicates([*JOB, "event_id"])
    parts = sf.split("event_id", "-")
    kept = kept.withColumn("_ms", parts[0].cast("long")).withColumn("_seq", parts[1].cast("decimal(20,0)"))
    in_order = Window.partitionBy(*JOB).orderBy("_ms", "_seq", "event_id")
    begins = sf.when(sf.col("event") == EventKind.ADDED, 1).otherwise(0)
    kept = kept.withColumn("life", sf.greatest(sf.sum(begins).over(in_order), sf.lit(1)).cast("int"))
    in_life = Window.partitionBy(*LIFE).orderBy("_ms", "_seq", "event_id")
    return kept.withColumn("place", sf.row_number().over(in_life)).drop("_ms", "_seq")


def attempts(events: DataFrame) -> DataFrame:
    """One row an attempt: when it could be claimed, was claimed and ended, and how."""
    told = lives(events)
    in_life = Window.partitionBy(*LIFE).orderBy("place")
    so_far = in_life.rowsBetween(Window.unboundedPreceding, 0)
    is_start = sf.col("event") == EventKind.ACTIVE
    told = (
        told.withColumn("_attempt", sf.sum(sf.when(is_start, 1).otherwise(0)).over(so_far).cast("int"))
        .withColumn("_queued", sf.last(sf.when(_is(CLAIMABLE), sf.col("ts")), True).over(so_far))
        .withColumn("_name", sf.first("name", True).over(Window.partitionBy(*LIFE)))
        .withColumn("_next", sf.lead("event").over(in_life))
    )
    # a protocol that tells of a retry just before it tells of the stall means the stall
    closes = _is(CLOSING) & ~((sf.col("event") == EventKind.RETRY) & _eq("_next", EventKind.STALLED))
    ends = sf.struct("place", "ts", "event", "data", "worker")
    grouped = told.where(sf.col("_attempt") > 0).groupBy(*LIFE, sf.col("_attempt").alias("attempt"))
    made = grouped.agg(
        sf.first("_name", True).alias("name"),
        sf.min(sf.when(is_start, sf.struct("place", "ts", "_queued", "worker"))).alias("_start"),
        sf.min(sf.when(closes, ends)).alias("_end"),
        sf.max("worker").alias("_worker"),
    )
    return made.select(
        *LIFE,
        "name",
        "attempt",
        sf.coalesce("_start.worker", "_worker").alias("worker"),
        sf.col("_start._queued").alias("queued_at"),
        sf.col("_start.ts").alias("started_at"),
        sf.col("_end.ts").alias("ended_at"),
        _between("_start._queued", "_start.ts").alias("waited_ms"),
        _between("_start.ts", "_end.ts").alias("ran_ms"),
        _outcome(sf.col("_end.event")).alias("outcome"),
        reason(sf.col("_end.data")).alias("reason"),
        sf.to_date(sf.coalesce("_end.ts", "_start.ts")).alias("date"),
    )


def jobs(events: DataFrame) -> DataFrame:
    """One row a job's life: when it was added, waited, ran and ended, how, and after how many retries."""
    told = lives(events)
    ends = sf.struct("place", "ts", "event", "data")
    is_end = _is((*ENDS, *REMOVED))
    made = told.groupBy(*LIFE).agg(
        sf.first("name", True).alias("name"),
        sf.min(sf.when(sf.col("event") == EventKind.ADDED, sf.col("ts"))).alias("added_at"),
        sf.min("ts").alias("first_at"),
        sf.max("ts").alias("last_at"),
        sf.min(sf.when(sf.col("event") == EventKind.ACTIVE, sf.col("ts"))).alias("started_at"),
        sf.max(sf.when(is_end, ends)).alias("_end"),
        sf.max(sf.when(_is(OPENING), sf.col("place"))).alias("_opened"),
        _count(_is(ENDS)).alias("ends"),
        _count(_is([EventKind.ACTIVE])).alias("attempts"),
        _count(_is([EventKind.STALLED])).alias("stalls"),
        # not every event says whose the job was
        sf.max_by("worker", sf.when(sf.col("worker").isNotNull(), sf.col("place"))).alias("worker"),
        sf.count("*").alias("events"),
    )
    # what ended and was put back is alive again
    is_over = sf.col("_end").isNotNull() & (
        sf.col("_opened").isNull() | (sf.col("_opened") < sf.col("_end.place"))
    )
    ended_at = sf.when(is_over, sf.col("_end.ts"))
    return made.select(
        *LIFE,
        "name",
        "added_at",
        "first_at",
        "last_at",
        "started_at",
        ended_at.alias("ended_at"),
        _between("added_at", "started_at").alias("waited_ms"),
        _milliseconds(sf.col("started_at"), ended_at).alias("ran_ms"),
        sf.when(is_over, sf.col("_end.event")).otherwise("alive").alias("outcome"),
        sf.when(is_over, reason(sf.col("_end.data"))).alias("reason"),
        "ends",
        "attempts",
        sf.greatest(sf.col("attempts") - 1, sf.lit(0)).cast("int").alias("retries"),
        "stalls",
        "worker",
        sf.col("events").cast("int").alias("events"),
        sf.to_date("first_at").alias("date"),
    )


def reason(data: Column) -> Column:
    """Why an attempt failed, in whichever words the protocol says so."""
    return sf.coalesce(
        sf.get_json_object(data, "$.failedReason"),
        sf.get_json_object(data, "$.reason"),
        sf.get_json_object(data, "$.data.message"),
        sf.get_json_object(data, "$.data.reason"),
        sf.get_json_object(data, "$.error.message"),
    )


def _outcome(event: Column) -> Column:
    # given back or postponed: the protocol tells only where the job went
    went_back = event.isin(EventKind.WAITING, EventKind.DELAYED)
    return sf.when(event.isNull(), "running").when(went_back, "released").otherwise(event)


def _is(kinds: list[EventKind] | tuple[str, ...]) -> Column:
    return sf.col("event").isin(*[str(kind) for kind in kinds])


def _eq(column: str, kind: str) -> Column:
    return sf.coalesce(sf.col(column) == kind, sf.lit(False))


def _count(condition: Column) -> Column:
    return sf.sum(sf.when(condition, 1).otherwise(0)).cast("int")


def _between(start: str, end: str) -> Column:
    return _milliseconds(sf.col(start), sf.col(end))


def _milliseconds(start: Column, end: Column) -> Column:
    took = sf.unix_millis(end) - sf.unix_millis(start)
    # clocks of two machines may differ: nothing takes less than no time
    return sf.when(took < 0, sf.lit(0).cast("long")).otherwise(took)
