"""Maintenance of a lake's files: compaction of small batches of bronze, retention of days."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from corral.errors import CorralError
from corral.spark.lake import bronze
from corral.spark.lake.refresh import COVERS, day_of
from corral.spark.lake.tables import ATTEMPTS, BACKFILL, BRONZE, JOBS, MINUTES, Lake
from corral.spark.lake.versions import write_json

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
    days = {day_of(file.relative_to(current)) for file in versions.files()}
    dropped = {day for day in days if day is not None and day < oldest}
    if dropped:
        manifest = versions.manifest() | (bronze.manifest(lake) if table == BRONZE else {})
        versions.advance(manifest, lambda relative: day_of(relative) not in dropped)
    return dropped
