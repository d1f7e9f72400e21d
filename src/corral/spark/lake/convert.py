"""Conversion of a lake that was written before its tables were Delta."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from corral.errors import InvalidOptions
from corral.spark.lake import bronze, ingest
from corral.spark.lake.delta import commit, storage_errors
from corral.spark.lake.ingest import LakeProgress, OnProgress
from corral.spark.lake.refresh import refresh
from corral.spark.lake.tables import BACKFILL, BRONZE, BRONZE_SCHEMA, OLD_LAKE, Lake
from corral.spark.offsets import Positions, from_json, id_key


def check_old(folder: Path) -> None:
    """Refuse a folder that is no lake of an earlier Corral."""
    if not (folder / OLD_LAKE).exists():
        raise InvalidOptions(f"{folder} is no lake of an earlier Corral: it has no {OLD_LAKE}")


def convert(
    spark: SparkSession, folder: Path, lake: Lake, on_progress: OnProgress = lambda progress: None
) -> int:
    """Write the events of an old lake and the positions they reach into a new one; return how many events."""
    check_old(folder)
    if lake.exists:
        raise InvalidOptions(f"there is a lake in {lake.path} already; convert into a new one")
    with lake.exclusive(), ingest.in_utc(spark):
        ingest.prepare(lake)
        on_progress(LakeProgress("bronze"))
        location, events = lake.table(BRONZE), _read(spark, folder / BRONZE)
        for source, positions in _positions(folder).items():
            bronze.append(location, source, events, positions)
            events = events.limit(0)
        if (folder / BACKFILL).exists():
            location = lake.table(BACKFILL)
            table = location.create(BRONZE_SCHEMA)
            files = location.write(_read(spark, folder / BACKFILL), BACKFILL)
            with storage_errors(location.uri):
                commit(table, files, versions={BACKFILL: 1})
        on_progress(LakeProgress("silver and gold"))
        return refresh(spark, lake).events


def _read(spark: SparkSession, table: Path) -> DataFrame:
    if not table.exists():
        return spark.createDataFrame([], BRONZE_SCHEMA)
    # the first lakes had another name for the protocol
    rows = spark.read.parquet(str(table.resolve())).withColumnRenamed("room", "protocol")
    return rows.select(*[rows[column.name].cast(column.dataType) for column in BRONZE_SCHEMA])


def _positions(folder: Path) -> dict[str, Positions]:
    """Return source -> queue -> how far it was read, by the manifest and the marks of batches since."""
    current = (folder / BRONZE).resolve()
    manifest = _content(current / "_manifest.json").get("positions", {})
    marks = [_content(mark) for mark in sorted(current.glob("batch=*/_batch.json"))]
    reached = [
        *manifest.items(),
        *((mark["source"], mark["positions"]) for mark in marks if "source" in mark),
    ]
    found: dict[str, Positions] = {}
    for source, positions in [*manifest.items(), *reached]:
        known = found.setdefault(source, {})
        for queue, position in from_json(positions or {}).items():
            if queue not in known or id_key(known[queue].id) < id_key(position.id):
                known[queue] = position
    return found


def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return content
