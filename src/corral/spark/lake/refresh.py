"""Refresh: silver and gold are computed again for the jobs that new events are about, and only for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from corral.spark.lake import bronze, gold, silver
from corral.spark.lake.delta import DataFile, commit, covered, files_of, storage_errors
from corral.spark.lake.tables import (
    ATTEMPTS,
    BACKFILL,
    BRONZE,
    BRONZE_SCHEMA,
    JOBS,
    MINUTES,
    Lake,
    table_schema,
)


@dataclass(frozen=True)
class RefreshResult:
    """What a refresh has done."""

    batches: int = 0
    """New batches of bronze that silver and gold now cover."""
    events: int = 0
    dates: frozenset[date] = field(default_factory=frozenset)
    """The days whose tables were written."""
    bronze: DeltaTable | None = None
    """Bronze as silver and gold now cover it."""


def refresh(spark: SparkSession, lake: Lake) -> RefreshResult:
    """Bring silver and gold up to bronze; without new batches nothing changes.

    How far a table covers bronze is in its application transactions, under the names of the sources.
    """
    location = lake.table(BRONZE)
    events = location.open()
    if events is None:
        return RefreshResult()
    names = [*bronze.sources(events), BACKFILL]
    present = covered(events, names) | covered(lake.table(BACKFILL).open(), [BACKFILL])
    done = {table: covered(lake.table(table).open(), names) for table in (ATTEMPTS, JOBS, MINUTES)}
    if done[MINUTES] == present:
        return RefreshResult(bronze=events)
    batches = bronze.new_files(events, done[MINUTES])
    new = [file for files in batches.values() for file in files]
    new_events = location.read(spark, BRONZE_SCHEMA, new)
    changed = None
    if done[MINUTES]:
        has_backfill = present.get(BACKFILL) != done[MINUTES].get(BACKFILL)
        changed = _changed_jobs(spark, lake, new_events, has_backfill).persist()
    try:
        history = _history(spark, lake, events, changed, new)
        marked = _backfill_marker(spark, lake)
        update = _SilverUpdate(spark, lake, changed, present)
        update.replace(ATTEMPTS, marked(silver.attempts(history)), "date")
        update.replace(JOBS, marked(silver.jobs(history)), "added_at")
    finally:
        if changed is not None:
            changed.unpersist()
    # an earlier refresh that was interrupted has changed days that nobody knows any more
    is_whole = changed is None or done[ATTEMPTS] != done[MINUTES] or done[JOBS] != done[MINUTES]
    _refresh_minutes(spark, lake, None if is_whole else update.days, present)
    return RefreshResult(len(batches), sum(file.rows for file in new), frozenset(update.days), events)


def _changed_jobs(spark: SparkSession, lake: Lake, new_events: DataFrame, has_backfill: bool) -> DataFrame:
    """Return the jobs that have new events."""
    jobs = new_events.select(*silver.JOB)
    if has_backfill:
        jobs = jobs.union(lake.backfilled(spark).select(*silver.JOB))
    return jobs.where(sf.col("job_id").isNotNull()).distinct()


def _history(
    spark: SparkSession, lake: Lake, events: DeltaTable, changed: DataFrame | None, new: list[DataFile]
) -> DataFrame:
    """Return all events of the changed jobs; of all jobs where `changed` is None."""
    files = [file for file in files_of(events) if file.day is not None]
    filled = lake.backfilled(spark)
    if changed is None:
        return lake.table(BRONZE).read(spark, BRONZE_SCHEMA, files).union(filled)
    filled = filled.join(changed, list(silver.JOB), "left_semi")
    known = lake.jobs(spark).join(changed, list(silver.JOB), "left_semi").select("date")
    [first] = known.union(filled.select("date")).agg(sf.min("date").alias("day")).collect()
    days = [day for day in (first["day"], *(file.day for file in new)) if day is not None]
    # no job is older than its first event: earlier days need not be read
    files = [file for file in files if file.day is not None and file.day >= min(days)]
    read = lake.table(BRONZE).read(spark, BRONZE_SCHEMA, files)
    return read.join(changed, list(silver.JOB), "left_semi").union(filled)


def _backfill_marker(spark: SparkSession, lake: Lake) -> Callable[[DataFrame], DataFrame]:
    """Return a function that adds the column `backfilled`: whether events of the job were backfilled."""
    if lake.table(BACKFILL).open() is None:
        return lambda frame: frame.withColumn("backfilled", sf.lit(False))
    filled = lake.backfilled(spark).select(*silver.JOB).distinct().withColumn("_filled", sf.lit(True))

    def mark(frame: DataFrame) -> DataFrame:
        joined = frame.join(filled, list(silver.JOB), "left")
        return joined.withColumn("backfilled", sf.coalesce("_filled", sf.lit(False))).drop("_filled")

    return mark


@dataclass(frozen=True)
class _SilverUpdate:
    """The changes of one refresh to the tables of silver."""

    spark: SparkSession
    lake: Lake
    changed: DataFrame | None
    present: Mapping[str, int]
    days: set[date] = field(default_factory=set)
    """Collects the days that change, which gold computes again."""

    def replace(self, name: str, rows: DataFrame, moment: str) -> None:
        """Replace the rows of the changed jobs; gold counts a row on the day of its `moment`."""
        rows = rows.select(*table_schema(self.spark, name).fieldNames())
        if self.changed is None:
            self.days.update(replace_days(self.spark, self.lake, name, rows, None, self.present))
            return
        rows = rows.persist()
        gone = self.lake.read(self.spark, name).join(self.changed, list(silver.JOB), "left_semi")
        both = gone.select("date", moment).union(rows.select("date", moment))
        days = both.select("date", sf.to_date(moment).alias("counted")).distinct().collect()
        # the days of the old rows and of the new ones are written again
        dates = {row["date"] for row in days}
        rest = self.lake.read(self.spark, name, dates).join(self.changed, list(silver.JOB), "left_anti")
        replace_days(self.spark, self.lake, name, rows.unionByName(rest), dates, self.present)
        rows.unpersist()
        self.days.update(dates, (row["counted"] for row in days if row["counted"] is not None))


def _refresh_minutes(
    spark: SparkSession, lake: Lake, days: set[date] | None, present: Mapping[str, int]
) -> None:
    attempts, jobs = lake.read(spark, ATTEMPTS, days), lake.jobs(spark)
    if days is not None:
        jobs = jobs.where(sf.to_date("added_at").isin(sorted(days)))
    minutes = gold.minutes(attempts, jobs)
    if days is not None:
        minutes = minutes.where(sf.col("date").isin(sorted(days)))
    replace_days(spark, lake, MINUTES, minutes, days, present)


def replace_days(
    spark: SparkSession,
    lake: Lake,
    name: str,
    rows: DataFrame,
    days: set[date] | None,
    versions: Mapping[str, int],
) -> set[date]:
    """Replace these days of a table (None: all of it) in one version; return the days of the new rows."""
    location = lake.table(name)
    table = location.create(table_schema(spark, name))
    files = location.write(rows.hint("rebalance", "date"), name)
    old = [file for file in files_of(table) if days is None or file.day in days]
    with storage_errors(location.uri):
        commit(table, files, old, versions)
    return {file.day for file in files if file.day is not None}
