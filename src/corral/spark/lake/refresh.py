"""Silver and gold after new events: the jobs they tell of are told anew, and nothing else is touched."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import Observation
from pyspark.sql import functions as sf

from corral.spark.lake import bronze, gold, silver
from corral.spark.lake.tables import ATTEMPTS, BACKFILL, JOBS, MINUTES, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COVERS, DATES = "covers", "dates"


@dataclass(frozen=True)
class Refreshed:
    """What a refresh has done."""

    batches: int = 0
    """New batches of bronze that silver and gold now tell of."""
    events: int = 0
    dates: frozenset[date] = field(default_factory=frozenset)
    """The days whose tables were written anew."""


def refresh(spark: "SparkSession", lake: Lake) -> Refreshed:
    """Bring silver and gold up to bronze; what bronze already told changes nothing."""
    covered = lake.generations(MINUTES).manifest().get(COVERS, {})
    present = _present(lake)
    if covered == present:
        return Refreshed()
    fresh = bronze.since(lake, covered)
    touched = None if not covered else _touched(spark, lake, covered, fresh)
    days = _unfinished(lake, covered)
    try:
        if touched is not None:
            touched.persist()
        history = _history(spark, lake, touched, fresh)
        marked = _marker(spark, lake)
        change = _Change(lake, touched, {COVERS: present}, days)
        change.replace(ATTEMPTS, marked(silver.attempts(history)), lake.attempts(spark), "date")
        change.replace(JOBS, marked(silver.jobs(history)), lake.jobs(spark), "added_at")
    finally:
        if touched is not None:
            touched.unpersist()
    _renew_minutes(spark, lake, days, {COVERS: present})
    return Refreshed(len(fresh), sum(batch.rows for batch in fresh), frozenset(days))


def _present(lake: Lake) -> dict[str, int]:
    present: dict[str, int] = dict(bronze.reached(lake))
    backfill = lake.generations(BACKFILL).manifest()
    if backfill:
        present[BACKFILL] = int(backfill["fills"])
    return present


def _unfinished(lake: Lake, covered: Mapping[str, int]) -> set[date]:
    """Days that an earlier refresh changed in silver before it was broken off."""
    days: set[date] = set()
    for table in (ATTEMPTS, JOBS):
        manifest = lake.generations(table).manifest()
        if manifest.get(COVERS, {}) != covered:
            days.update(date.fromisoformat(day) for day in manifest.get(DATES, []))
    return days


def _touched(
    spark: "SparkSession", lake: Lake, covered: Mapping[str, int], fresh: list[bronze.Batch]
) -> "DataFrame":
    """The jobs that something new is told of."""
    told = lake.backfilled(spark).select(*silver.JOB)
    if _present(lake).get(BACKFILL) == covered.get(BACKFILL):
        told = told.limit(0)
    if fresh:
        told = told.union(bronze.read_batches(spark, fresh).select(*silver.JOB))
    return told.where(sf.col("job_id").isNotNull()).distinct()


def _history(
    spark: "SparkSession", lake: Lake, touched: "DataFrame | None", fresh: list[bronze.Batch]
) -> "DataFrame":
    """All that was ever told of the jobs that are touched; of all jobs at first."""
    told = lake.bronze(spark).union(lake.backfilled(spark))
    if touched is None:
        return told
    known = lake.jobs(spark).join(touched, list(silver.JOB), "left_semi").select("date")
    if fresh:
        known = known.union(bronze.read_batches(spark, fresh).select("date"))
    filled = lake.backfilled(spark).join(touched, list(silver.JOB), "left_semi")
    known = known.union(filled.select("date"))
    # no job is older than its first event: what lies before need not be read
    since = known.agg(sf.min("date").alias("since")).collect()[0]["since"]
    if since is not None:
        told = told.where(sf.col("date") >= sf.lit(since))
    return told.join(touched, list(silver.JOB), "left_semi")


def _marker(spark: "SparkSession", lake: Lake) -> Any:
    """Adds the column `backfilled`: did a snapshot tell of this job?"""
    if lake.generations(BACKFILL).current() is None:
        return lambda frame: frame.withColumn("backfilled", sf.lit(False))
    filled = lake.backfilled(spark).select(*silver.JOB).distinct().withColumn("_filled", sf.lit(True))

    def mark(frame: "DataFrame") -> "DataFrame":
        joined = frame.join(filled, list(silver.JOB), "left")
        return joined.withColumn("backfilled", sf.coalesce("_filled", sf.lit(False))).drop("_filled")

    return mark


@dataclass(frozen=True)
class _Change:
    """What one refresh does to the tables of silver."""

    lake: Lake
    touched: "DataFrame | None"
    manifest: Mapping[str, Any]
    days: set[date]
    """Grows by the days that change: gold tells of them anew."""

    def replace(self, table: str, told: "DataFrame", old: "DataFrame", moment: str) -> None:
        """Put these rows where the rows of the same jobs were; gold counts them on the day of `moment`."""
        folder = self.lake.work / f"{table}-{uuid4().hex}"
        counted = Observation()
        _write(told.observe(counted, sf.collect_set(sf.to_date(moment)).alias("days")), folder)
        changed = days_in(folder)
        self.days.update(counted.get["days"] if changed else ())
        if self.touched is not None:
            gone = old.join(self.touched, list(silver.JOB), "left_semi")
            for row in gone.select("date", sf.to_date(moment).alias("counted")).distinct().collect():
                changed.add(row["date"])
                self.days.update(day for day in (row["counted"],) if day is not None)
            rest = old.where(sf.col("date").isin(sorted(changed)))
            _write(rest.join(self.touched, list(silver.JOB), "left_anti"), folder)
        self.days.update(changed)
        noted = {**self.manifest, DATES: sorted(map(str, self.days))}
        is_whole = self.touched is None
        _turn(self.lake, table, folder, noted, lambda day: not is_whole and day not in changed)


def _renew_minutes(spark: "SparkSession", lake: Lake, days: set[date], manifest: Mapping[str, Any]) -> None:
    wanted = sorted(days)
    attempts = lake.attempts(spark).where(sf.col("date").isin(wanted))
    jobs = lake.jobs(spark).where(sf.to_date("added_at").isin(wanted))
    folder = lake.work / f"{MINUTES}-{uuid4().hex}"
    _write(gold.minutes(attempts, jobs).where(sf.col("date").isin(wanted)), folder)
    _turn(lake, MINUTES, folder, manifest, lambda day: day not in days)


def _turn(
    lake: Lake,
    table: str,
    folder: Path,
    manifest: Mapping[str, Any],
    stays: Callable[[date | None], bool],
) -> None:
    """The table's next generation: what the folder has, and of the present one the days that stay."""
    added = {child.name: child for child in folder.iterdir() if child.name.startswith("date=")}
    lake.generations(table).advance(manifest, lambda relative: stays(day_of(relative)), added)
    shutil.rmtree(folder)


def _write(frame: "DataFrame", folder: Path) -> None:
    frame.hint("rebalance", "date").write.mode("append").partitionBy("date").parquet(str(folder))


def days_in(folder: Path) -> set[date]:
    """The days that have a folder of their own in this one."""
    return {day for child in folder.iterdir() if (day := day_of(Path(child.name))) is not None}


def day_of(relative: Path) -> date | None:
    """The day a file of a table is filed under."""
    for part in relative.parts:
        name, _, value = part.partition("=")
        if name == "date":
            return None if value.startswith("__") else date.fromisoformat(value)
    return None
