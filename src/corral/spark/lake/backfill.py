"""Backfill: events derived from a snapshot, for jobs whose own events are gone."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from corral.core.event import EventKind
from corral.spark.lake import ingest
from corral.spark.lake.delta import commit, covered, storage_errors
from corral.spark.lake.ingest import LakeProgress, OnProgress
from corral.spark.lake.refresh import refresh
from corral.spark.lake.silver import ENDS, JOB
from corral.spark.lake.tables import BACKFILL, BRONZE_SCHEMA, Lake
from corral.spark.options import QueueAddress


@dataclass(frozen=True)
class BackfillResult:
    """What a backfill has done."""

    snapshot: int
    """Jobs in the snapshot."""
    whole: int
    """Jobs without any event: begin, start and end are derived."""
    begun: int
    """Jobs whose first events are gone: only the begin is derived."""


def backfill(
    spark: SparkSession, lake: Lake, address: QueueAddress, on_progress: OnProgress = lambda progress: None
) -> BackfillResult:
    """Add jobs whose events are gone to the lake; what real events say has precedence."""
    with lake.exclusive(), ingest.in_utc(spark):
        ingest.prepare(lake)
        on_progress(LakeProgress("reading jobs"))
        columns = (*JOB, "name", "state", "created_at", "started_at", "finished_at", "worker", "reason")
        # a checkpoint, because a second read would be of another moment
        snapshot = ingest.read_jobs(spark, address).select(*columns).localCheckpoint()
        # after the snapshot: every event that a job in it has left in the log is in bronze now
        with ingest.started_queries(spark, lake, [address]) as queries:
            ingest.await_queries(queries, on_progress)
        on_progress(LakeProgress("backfilling"))
        jobs = _without_begin(spark, lake, snapshot).persist()
        try:
            counts = {row["is_begun"]: row["count"] for row in jobs.groupBy("is_begun").count().collect()}
            if counts:
                _append(lake, derived_events(jobs))
        finally:
            jobs.unpersist()
        on_progress(LakeProgress("silver and gold"))
        refresh(spark, lake)
        return BackfillResult(snapshot.count(), counts.get(False, 0), counts.get(True, 0))


def derived_events(jobs: DataFrame) -> DataFrame:
    """Return events derived from records: the begin and, where `is_begun` is false, the start and the end."""
    is_whole = ~sf.col("is_begun")
    has_ended = is_whole & sf.col("state").isin(*map(str, ENDS)) & sf.col("finished_at").isNotNull()
    derived = sf.array(
        _event(sf.lit(True), "created_at", 0, sf.lit(EventKind.ADDED.value)),
        _event(is_whole & sf.col("started_at").isNotNull(), "started_at", 1, sf.lit(EventKind.ACTIVE.value)),
        _event(has_ended, "finished_at", 2, sf.col("state")),
    )
    events = jobs.select("*", sf.explode(sf.filter(derived, lambda one: one.isNotNull())).alias("derived"))
    return events.select(
        "protocol", "queue", "derived.event_id", "derived.ts", "derived.event", "job_id", "name",
        sf.lit(None).cast("int").alias("attempt"), sf.lit(None).cast("string").alias("previous"),
        sf.when(sf.col("derived.event") != EventKind.ADDED, sf.col("worker")).alias("worker"),
        "derived.data", sf.to_date("derived.ts").alias("date"),
    )  # fmt: skip


def _event(exists: Column, moment: str, number: int, event: Column) -> Column:
    reason = sf.when(sf.lit(number == 2), sf.col("reason"))
    data = sf.to_json(sf.struct(sf.lit(True).alias("backfilled"), reason.alias("reason")))
    event_id = sf.concat(sf.unix_millis(sf.col(moment)).cast("string"), sf.lit(f"-{number}"))
    fields = (
        event_id.alias("event_id"), sf.col(moment).alias("ts"), event.alias("event"), data.alias("data"),
    )  # fmt: skip
    return sf.when(exists, sf.struct(*fields))


def _without_begin(spark: SparkSession, lake: Lake, snapshot: DataFrame) -> DataFrame:
    """Return the jobs of a snapshot that have no event `added`; `is_begun` where they have others."""
    events = lake.bronze(spark).where(sf.col("job_id").isNotNull())
    added = events.groupBy(*JOB).agg(sf.max(sf.col("event") == EventKind.ADDED).alias("_is_added"))
    filled = lake.backfilled(spark).select(*JOB).distinct()
    joined = snapshot.join(added, list(JOB), "left").join(filled, list(JOB), "left_anti")
    is_added = sf.coalesce("_is_added", sf.lit(False))
    return joined.where(~is_added).withColumn("is_begun", sf.col("_is_added").isNotNull()).drop("_is_added")


def _append(lake: Lake, events: DataFrame) -> None:
    location = lake.table(BACKFILL)
    table = location.create(BRONZE_SCHEMA)
    number = covered(table, [BACKFILL]).get(BACKFILL, 0) + 1
    files = location.write(events.select(*BRONZE_SCHEMA.fieldNames()).hint("rebalance", "date"), BACKFILL)
    with storage_errors(location.uri):
        commit(table, files, versions={BACKFILL: number})
