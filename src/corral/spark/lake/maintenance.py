"""Maintenance of a lake's files: compaction of bronze, retention of days, publication in another format."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from corral.errors import CorralError, InvalidOptions, short_repr
from corral.spark.lake import bronze
from corral.spark.lake.refresh import COVERS, day_of
from corral.spark.lake.tables import ATTEMPTS, BACKFILL, BRONZE, JOBS, MINUTES, Lake
from corral.spark.lake.versions import visible, write_json

PARQUET = "parquet"
"""The format of the lake itself."""
COMPACT_AFTER = 16
"""Folders of one size that are merged into a larger one."""


def compact(spark: SparkSession, lake: Lake, after: int = COMPACT_AFTER) -> int:
    """Merge small batches of bronze; return how many folders were merged."""
    merged = 0
    while (chosen := _choose(lake, after)) is not None:
        size, folders = chosen
        _merge(spark, lake, size + 1, folders)
        merged += len(folders)
    return merged


def _choose(lake: Lake, after: int) -> tuple[int, list[Path]] | None:
    """Return folders of the smallest size of which there are enough; only those that silver covers."""
    current = lake.versions(BRONZE).current()
    if current is None:
        return None
    covered: Mapping[str, int] = lake.versions(MINUTES).manifest().get(COVERS, {})
    sizes: dict[int, list[Path]] = defaultdict(list)
    sizes[0] = [
        batch.folder for batch in bronze.batches(lake) if batch.number <= covered.get(batch.query, -1)
    ]
    for folder in current.glob("batch=folded-*"):
        sizes[int(folder.name.split("-")[1])].append(folder)
    for size, folders in sorted(sizes.items()):
        if len(folders) >= max(after, 2):
            return size, sorted(folders)
    return None


def _merge(spark: SparkSession, lake: Lake, size: int, folders: list[Path]) -> None:
    work = lake.work / f"folded-{uuid4().hex}"
    bronze.read_folders(spark, folders).hint("rebalance", "date").write.partitionBy("date").parquet(str(work))
    before, after = sum(bronze.row_count(folder) for folder in folders), bronze.row_count(work)
    if before != after:
        raise CorralError(f"{before} events went into a compaction and {after} came out; nothing was changed")
    write_json(work / bronze.MARK, {"rows": after, "folders": len(folders)})
    names = {folder.name for folder in folders}
    with lake.bronze_lock():
        lake.versions(BRONZE).advance(
            bronze.manifest(lake),
            keep=lambda relative: relative.parts[0] not in names,
            add={f"batch=folded-{size}-{uuid4().hex}": work},
        )


def retain(lake: Lake, keep_days: int, today: date) -> list[date]:
    """Drop the days before the last `keep_days`, which include today; return those that were dropped."""
    oldest = today - timedelta(days=keep_days - 1)
    dropped: set[date] = set()
    for table in (MINUTES, JOBS, ATTEMPTS, BACKFILL):
        dropped |= _drop(lake, table, oldest)
    with lake.bronze_lock():
        dropped |= _drop(lake, BRONZE, oldest)
    return sorted(dropped)


def _drop(lake: Lake, table: str, oldest: date) -> set[date]:
    versions = lake.versions(table)
    current = versions.current()
    if current is None:
        return set()
    days = {day_of(file.relative_to(current)) for file in visible(current)}
    dropped = {day for day in days if day is not None and day < oldest}
    if dropped:
        manifest = versions.manifest() | (bronze.manifest(lake) if table == BRONZE else {})
        versions.advance(manifest, lambda relative: day_of(relative) not in dropped)
    return dropped


def check_format(spark: SparkSession, lake: Lake, name: str) -> None:
    """Refuse a format that this Spark cannot write, before anything is done."""
    probe = lake.work / f"probe-{uuid4().hex}"
    try:
        spark.range(1).write.format(name).save(str(probe))
    except (PySparkException, Py4JError) as error:
        lines = [line for line in str(error).splitlines() if "[" in line and "]" in line]
        why = lines[0].strip(" :") if lines else type(error).__name__
        raise InvalidOptions(
            f"this Spark cannot write the format {short_repr(name)} ({why}); give it the format's jars, "
            f"such as spark.jars.packages=io.delta:delta-spark_2.13:…, or leave --format out for Parquet"
        ) from None


def publish(spark: SparkSession, lake: Lake, name: str) -> None:
    """Write attempts, jobs and minutes to `<lake>/<format>/<table>`, replacing what was there."""
    for table, read in {ATTEMPTS: lake.attempts, JOBS: lake.jobs, MINUTES: lake.minutes}.items():
        target = lake.root / name / table
        read(spark).write.format(name).mode("overwrite").partitionBy("date").save(str(target))
