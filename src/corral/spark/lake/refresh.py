"""Refresh: silver and gold are computed again for the jobs that new events are about, and only for them."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from corral.spark.lake import bronze, gold, silver
from corral.spark.lake.tables import ATTEMPTS, BACKFILL, JOBS, MINUTES, Lake

COVERS, DATES = "covers", "dates"


@dataclass(frozen=True)
class RefreshResult:
    """What a refresh has done."""

    batches: int = 0
    """New batches of bronze that silver and gold now cover."""
    events: int = 0
    dates: frozenset[date] = field(default_factory=frozenset)
    """The days whose tables were written."""


def refresh(spark: SparkSession, lake: Lake) -> RefreshResult:
    """Bring silver and gold up to bronze; without new batches nothing changes."""
    covered = lake.versions(MINUTES).manifest().get(COVERS, {})
    present = _present(lake)
    if covered == present:
        return RefreshResult()
    new = bronze.batches_after(lake, covered)
    new_events = bronze.read_folders(spark, [batch.folder for batch in new]) if new else None
    changed = None if not covered else _changed_jobs(spark, lake, covered, new_events)
    days = _unfinished(lake, covered)
    try:
        if changed is not None:
            changed.persist()
        history = _history(spark, lake, changed, new_events)
        marked = _backfill_marker(spark, lake)
        update = _SilverUpdate(lake, changed, {COVERS: present}, days)
        update.replace(ATTEMPTS, marked(silver.attempts(history)), lake.attempts(spark), "date")
        update.replace(JOBS, marked(silver.jobs(history)), lake.jobs(spark), "added_at")
    finally:
        if changed is not None:
            changed.unpersist()
    _refresh_minutes(spark, lake, days, {COVERS: present})
    return RefreshResult(len(new), sum(batch.rows for batch in new), frozenset(days))


def _present(lake: Lake) -> dict[str, int]:
    present: dict[str, int] = dict(bronze.reached(lake))
    backfill = lake.versions(BACKFILL).manifest()
    if backfill:
        present[BACKFILL] = int(backfill["fills"])
    return present


def _unfinished(lake: Lake, covered: Mapping[str, int]) -> set[date]:
    """Return the days that an earlier refresh changed in silver before it was interrupted."""
    days: set[date] = set()
    for table in (ATTEMPTS, JOBS):
        manifest = lake.versions(table).manifest()
        if manifest.get(COVERS, {}) != covered:
            days.update(date.fromisoformat(day) for day in manifest.get(DATES, []))
    return days


def _changed_jobs(
    spark: SparkSession, lake: Lake, covered: Mapping[str, int], new_events: DataFrame | None
) -> DataFrame:
    """Return the jobs that have new events."""
    jobs = lake.backfilled(spark).select(*silver.JOB)
    if _present(lake).get(BACKFILL) == covered.get(BACKFILL):
        jobs = jobs.limit(0)
    if new_events is not None:
        jobs = jobs.union(new_events.select(*silver.JOB))
    return jobs.where(sf.col("job_id").isNotNull()).distinct()


def _history(
    spark: SparkSession, lake: Lake, changed: DataFrame | None, new_events: DataFrame | None
) -> DataFrame:
    """Return all events of the changed jobs; of all jobs where `changed` is None."""
    events = lake.bronze(spark).union(lake.backfilled(spark))
    if changed is None:
        return events
    dates = lake.jobs(spark).join(changed, list(silver.JOB), "left_semi").select("date")
    if new_events is not None:
        dates = dates.union(new_events.select("date"))
    filled = lake.backfilled(spark).join(changed, list(silver.JOB), "left_semi")
    # no job is older than its first event: earlier days need not be read
    since = dates.union(filled.select("date")).agg(sf.min("date").alias("since")).collect()[0]["since"]
    if since is not None:
        events = events.where(sf.col("date") >= sf.lit(since))
    return events.join(changed, list(silver.JOB), "left_semi")


def _backfill_marker(spark: SparkSession, lake: Lake) -> Callable[[DataFrame], DataFrame]:
    """Return a function that adds the column `backfilled`: whether events of the job were backfilled."""
    if lake.versions(BACKFILL).current() is None:
        return lambda frame: frame.withColumn("backfilled", sf.lit(False))
    filled = lake.backfilled(spark).select(*silver.JOB).distinct().withColumn("_filled", sf.lit(True))

    def mark(frame: DataFrame) -> DataFrame:
        joined = frame.join(filled, list(silver.JOB), "left")
        return joined.withColumn("backfilled", sf.coalesce("_filled", sf.lit(False))).drop("_filled")

    return mark


@dataclass(frozen=True)
class _SilverUpdate:
    """The changes of one refresh to the tables of silver."""

    lake: Lake
    changed: DataFrame | None
    manifest: Mapping[str, Any]
    days: set[date]
    """Collects the days that change, which gold computes again."""

    def replace(self, table: str, rows: DataFrame, old: DataFrame, moment: str) -> None:
        """Replace the rows of the changed jobs; gold counts a row on the day of its `moment`."""
        folder = self.lake.work / f"{table}-{uuid4().hex}"
        counted = Observation()
        _write(rows.observe(counted, sf.collect_set(sf.to_date(moment)).alias("days")), folder)
        dates = {day for child in folder.iterdir() if (day := day_of(Path(child.name))) is not None}
        self.days.update(counted.get["days"] if dates else ())
        if self.changed is not None:
            gone = old.join(self.changed, list(silver.JOB), "left_semi")
            for row in gone.select("date", sf.to_date(moment).alias("counted")).distinct().collect():
                dates.add(row["date"])
                self.days.update(day for day in (row["counted"],) if day is not None)
            rest = old.where(sf.col("date").isin(sorted(dates)))
            _write(rest.join(self.changed, list(silver.JOB), "left_anti"), folder)
        self.days.update(dates)
        manifest = {**self.manifest, DATES: sorted(map(str, self.days))}
        is_whole = self.changed is None
        _advance(self.lake, table, folder, manifest, lambda day: not is_whole and day not in dates)


def _refresh_minutes(spark: SparkSession, lake: Lake, days: set[date], manifest: Mapping[str, Any]) -> None:
    dates = sorted(days)
    attempts = lake.attempts(spark).where(sf.col("date").isin(dates))
    jobs = lake.jobs(spark).where(sf.to_date("added_at").isin(dates))
    folder = lake.work / f"{MINUTES}-{uuid4().hex}"
    _write(gold.minutes(attempts, jobs).where(sf.col("date").isin(dates)), folder)
    _advance(lake, MINUTES, folder, manifest, lambda day: day not in days)


def _advance(
    lake: Lake,
    table: str,
    folder: Path,
    manifest: Mapping[str, Any],
    keep: Callable[[date | None], bool],
) -> None:
    """Make the table's next version of the folder's days and of the present days that `keep` selects."""
    added = {child.name: child for child in folder.iterdir() if child.name.startswith("date=")}
    lake.versions(table).advance(manifest, lambda relative: keep(day_of(relative)), added)
    shutil.rmtree(folder)


def _write(frame: DataFrame, folder: Path) -> None:
    frame.hint("rebalance", "date").write.mode("append").partitionBy("date").parquet(str(folder))


def day_of(relative: Path) -> date | None:
    """Return the day of a file, by the folder it is in."""
    for part in relative.parts:
        name, _, value = part.partition("=")
        if name == "date":
            return None if value.startswith("__") else date.fromisoformat(value)
    return None
