"""Backfill: jobs whose events are gone are told from a snapshot, marked as such, and never twice."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import Column
from pyspark.sql import functions as sf

from corral.core.event import EventKind
from corral.spark.lake.ingest import (
    BATCH_EVENTS,
    Progress,
    Tell,
    filing,
    follow,
    in_utc,
    prepare,
    silent,
    snapshot_of,
)
from corral.spark.lake.refresh import refresh
from corral.spark.lake.silver import ENDS, JOB
from corral.spark.lake.tables import BACKFILL, HISTORY, Lake
from corral.spark.options import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Filled:
    """What a backfill has done."""

    snapshot: int
    """Jobs there were."""
    whole: int
    """Of these, jobs no event told of: their begin, start and end are from the snapshot."""
    begun: int
    """Jobs whose events had lost their beginning: only that is from the snapshot."""


def backfill(spark: "SparkSession", lake: Lake, where: Where, tell: Tell = silent) -> Filled:
    """Tell the lake of jobs whose events are gone; what the events tell is left to them.

    >>> backfill(spark, Lake("history"), where).whole                                # doctest: +SKIP
    """
    with lake.alone(), in_utc(spark):
        prepare(lake, [where])
        seen = _take_snapshot(spark, lake, where, tell)
        # after the snapshot: whatever a job in it has left in the log is in bronze now
        with filing(spark, lake, [where], BATCH_EVENTS) as queries:
            follow(queries, tell)
        tell(Progress("backfilling"))
        needy = _needy(spark, lake, seen).persist()
        try:
            counts = {row["is_begun"]: row["count"] for row in needy.groupBy("is_begun").count().collect()}
            if counts:
                _file(lake, synthetic(needy))
        finally:
            needy.unpersist()
        tell(Progress("silver and gold"))
        refresh(spark, lake)
        return Filled(seen.count(), counts.get(False, 0), counts.get(True, 0))


def synthetic(jobs: "DataFrame") -> "DataFrame":
    """What a job's record tells, as events: its begin and, where `is_begun` is false, its start and end."""
    is_whole = ~sf.col("is_begun")
    has_ended = is_whole & sf.col("state").isin(*map(str, ENDS)) & sf.col("finished_at").isNotNull()
    told = sf.array(
        _event(sf.lit(True), "created_at", 0, sf.lit(EventKind.ADDED.value)),
        _event(is_whole & sf.col("started_at").isNotNull(), "started_at", 1, sf.lit(EventKind.ACTIVE.value)),
        _event(has_ended, "finished_at", 2, sf.col("state")),
    )
    events = jobs.select("*", sf.explode(sf.filter(told, lambda one: one.isNotNull())).alias("told"))
    return events.select(
        "protocol", "queue", "told.event_id", "told.ts", "told.event", "job_id", "name",
        sf.lit(None).cast("int").alias("attempt"), sf.lit(None).cast("string").alias("previous"),
        sf.when(sf.col("told.event") != EventKind.ADDED, sf.col("worker")).alias("worker"),
        "told.data", sf.to_date("told.ts").alias("date"),
    )  # fmt: skip


def _event(is_there: Column, moment: str, place: int, event: Column) -> Column:
    reason = sf.when(sf.lit(place == 2), sf.col("reason"))
    data = sf.to_json(sf.struct(sf.lit(True).alias("backfilled"), reason.alias("reason")))
    event_id = sf.concat(sf.unix_millis(sf.col(moment)).cast("string"), sf.lit(f"-{place}"))
    told = (event_id.alias("event_id"), sf.col(moment).alias("ts"), event.alias("event"), data.alias("data"))
    return sf.when(is_there, sf.struct(*told))


def _take_snapshot(spark: "SparkSession", lake: Lake, where: Where, tell: Tell) -> "DataFrame":
    tell(Progress("reading jobs"))
    folder = str(lake.work / f"snapshot-{uuid4().hex}")
    columns = (*JOB, "name", "state", "created_at", "started_at", "finished_at", "worker", "reason")
    snapshot_of(spark, where).select(*columns).write.parquet(folder)
    return spark.read.parquet(folder)


def _needy(spark: "SparkSession", lake: Lake, seen: "DataFrame") -> "DataFrame":
    """The jobs of a snapshot whose beginning nobody has told; `is_begun` where events tell the rest."""
    events = lake.bronze(spark).where(sf.col("job_id").isNotNull())
    told = events.groupBy(*JOB).agg(sf.max(sf.col("event") == EventKind.ADDED).alias("_is_told"))
    filled = lake.backfilled(spark).select(*JOB).distinct()
    joined = seen.join(told, list(JOB), "left").join(filled, list(JOB), "left_anti")
    is_told = sf.coalesce("_is_told", sf.lit(False))
    return joined.where(~is_told).withColumn("is_begun", sf.col("_is_told").isNotNull()).drop("_is_told")


def _file(lake: Lake, events: "DataFrame") -> None:
    folder = lake.work / f"fill-{uuid4().hex}"
    events.select(*HISTORY.fieldNames()).write.partitionBy("date").parquet(str(folder))
    generations = lake.generations(BACKFILL)
    fills = int(generations.manifest().get("fills", 0)) + 1
    generations.advance({"fills": fills}, add={f"fill={fills}": folder})
