"""Compaction: many small batches of bronze become one folder, and no reader sees an event twice or never."""

from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from corral.errors import CorralError
from corral.spark.lake import bronze
from corral.spark.lake.bronze import MARK, row_count
from corral.spark.lake.refresh import COVERS, day_of
from corral.spark.lake.tables import ATTEMPTS, BACKFILL, BRONZE, JOBS, MINUTES, Lake
from corral.spark.lake.versions import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

OWN_WORDS = ("generation", "at")
ENOUGH = 16
"""So many folders of one size are worth a bigger one."""


def compact(spark: "SparkSession", lake: Lake, enough: int = ENOUGH) -> int:
    """Fold together what has gathered; how many folders became one."""
    folded = 0
    while (chosen := _choose(lake, enough)) is not None:
        size, folders = chosen
        _fold(spark, lake, size + 1, folders)
        folded += len(folders)
    return folded


def _choose(lake: Lake, enough: int) -> tuple[int, list[Path]] | None:
    """Folders of the smallest size of which there are enough; only what silver knows already."""
    current = lake.generations(BRONZE).current()
    if current is None:
        return None
    covered: Mapping[str, int] = lake.generations(MINUTES).manifest().get(COVERS, {})
    sizes: dict[int, list[Path]] = defaultdict(list)
    sizes[0] = [
        batch.folder for batch in bronze.batches(lake) if batch.number <= covered.get(batch.query, -1)
    ]
    for folder in current.glob("batch=folded-*"):
        sizes[int(folder.name.split("-")[1])].append(folder)
    for size, folders in sorted(sizes.items()):
        if len(folders) >= max(enough, 2):
            return size, sorted(folders)
    return None


def _fold(spark: "SparkSession", lake: Lake, size: int, folders: list[Path]) -> None:
    work = lake.work / f"folded-{uuid4().hex}"
    bronze.read_folders(spark, folders).hint("rebalance", "date").write.partitionBy("date").parquet(str(work))
    before, after = sum(row_count(folder) for folder in folders), row_count(work)
    if before != after:
        raise CorralError(f"{before} events went into a compaction and {after} came out; nothing was changed")
    write_json(work / MARK, {"rows": after, "folders": len(folders)})
    names = {folder.name for folder in folders}
    with lake.turning():
        lake.generations(BRONZE).advance(
            bronze.standing(lake),
            keep=lambda relative: relative.parts[0] not in names,
            add={f"batch=folded-{size}-{uuid4().hex}": work},
        )


def retain(lake: Lake, keep_days: int, today: date) -> list[date]:
    """Drop the days before the last `keep_days`, today among them; those that are gone."""
    oldest = today - timedelta(days=keep_days - 1)
    gone: set[date] = set()
    for table in (MINUTES, JOBS, ATTEMPTS, BACKFILL):
        gone |= _drop(lake, table, oldest)
    with lake.turning():
        gone |= _drop(lake, BRONZE, oldest)
    return sorted(gone)


def _drop(lake: Lake, table: str, oldest: date) -> set[date]:
    generations = lake.generations(table)
    current = generations.current()
    if current is None:
        return set()
    days = {day_of(file.relative_to(current)) for file in generations.files()}
    gone = {day for day in days if day is not None and day < oldest}
    if gone:
        manifest: dict[str, Any] = generations.manifest()
        if table == BRONZE:
            manifest |= bronze.standing(lake)
        told = {word: value for word, value in manifest.items() if word not in OWN_WORDS}
        generations.advance(told, lambda relative: _stays(relative, gone))
    return gone


def _stays(relative: Path, gone: set[date]) -> bool:
    return day_of(relative) not in gone
