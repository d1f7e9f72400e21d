"""Bronze: events as they were, a folder for each batch of each query, and each batch once."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from corral.errors import CorralError
from corral.spark.lake.tables import BRONZE, BRONZE_SCHEMA, Lake
from corral.spark.lake.versions import read_json, visible, write_json
from corral.spark.offsets import BEGINNING, id_key
from corral.spark.schema import GAP

MARK = "_batch.json"
OPEN_FILES = 32
"""Days of one batch that are written side by side; without it Spark sorts every batch by day first."""

_FOLDER = re.compile(r"batch=(?P<query>[0-9a-f-]{36})-(?P<number>\d{8,})")


@dataclass(frozen=True)
class BronzeBatch:
    """One micro-batch of one query, as it lies in bronze."""

    query: str
    number: int
    folder: Path

    @property
    def mark(self) -> dict[str, Any]:
        """Its rows, its source and the positions it ends at."""
        return read_json(self.folder / MARK) or {}

    @property
    def rows(self) -> int:
        return int(self.mark.get("rows", 0))


@dataclass(frozen=True)
class BronzeSink:
    """The function of `foreachBatch`: writes a batch, once however often it is replayed.

    Runs on the driver; the files are written by executors.
    """

    lake: Lake
    source: str

    def __call__(self, frame: DataFrame, number: int) -> None:
        checkpoint = self.lake.checkpoint(self.source)
        query, positions = query_of(checkpoint), positions_of(checkpoint, number)
        if has_batch(self.lake, query, number):
            # Spark had not recorded that it was done
            check_known(self.lake, self.source, positions or {})
            return
        folder = self.lake.work / f"batch-{uuid4().hex}"
        frame.sparkSession.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES))
        frame.withColumn("date", sf.to_date("ts")).write.partitionBy("date").parquet(str(folder))
        rows = row_count(folder)
        if not rows:
            shutil.rmtree(folder)
            return
        mark = {"source": self.source, "query": query, "batch": number, "rows": rows, "positions": positions}
        write_json(folder / MARK, mark)
        with self.lake.bronze_lock():
            versions = self.lake.versions(BRONZE)
            current = versions.current() or versions.advance({})
            if has_batch(self.lake, query, number):
                shutil.rmtree(folder)
            else:
                folder.rename(current / f"batch={query}-{number:08d}")


def check_known(lake: Lake, source: str, positions: Mapping[str, Any]) -> None:
    """Refuse a batch that has a known number and reaches further than bronze: it was planned again."""
    last = last_positions(lake, source) or {}
    for queue, at in positions.items():
        reached_id = last.get(queue, {}).get("id", BEGINNING)
        if id_key(at["id"]) > id_key(reached_id):
            raise CorralError(
                f"the checkpoint {lake.checkpoint(source)} is older than the lake: it forgot a batch of "
                f"bronze (queue {queue!r} to event {reached_id}); delete that folder, and the lake goes on "
                f"where it was"
            )


def batches(lake: Lake) -> list[BronzeBatch]:
    """Return the batches that have a folder of their own, in their order."""
    current = lake.versions(BRONZE).current()
    if current is None:
        return []
    present = [
        BronzeBatch(match["query"], int(match["number"]), folder)
        for folder in current.iterdir()
        if (match := _FOLDER.fullmatch(folder.name))
    ]
    return sorted(present, key=lambda batch: (batch.query, batch.number))


def reached(lake: Lake) -> dict[str, int]:
    """Return query -> the last of its batches in bronze; batches come one after the other."""
    numbers: dict[str, int] = dict(lake.versions(BRONZE).manifest().get("reached", {}))
    for batch in batches(lake):
        numbers[batch.query] = max(batch.number, numbers.get(batch.query, -1))
    return numbers


def has_batch(lake: Lake, query: str, number: int) -> bool:
    return number <= reached(lake).get(query, -1)


def batches_after(lake: Lake, covered: Mapping[str, int]) -> list[BronzeBatch]:
    """Return the batches later than these (query -> number)."""
    return [batch for batch in batches(lake) if batch.number > covered.get(batch.query, -1)]


def read_folders(spark: SparkSession, folders: list[Path]) -> DataFrame:
    """Return the events in some of the folders of one version."""
    reader = spark.read.schema(BRONZE_SCHEMA).option("basePath", str(folders[0].parent))
    return reader.parquet(*map(str, folders)).select(*BRONZE_SCHEMA.fieldNames())


def last_positions(lake: Lake, source: str) -> dict[str, Any] | None:
    """Return how far a source was read, for a query that has lost its checkpoint."""
    positions: dict[str, Any] = dict(lake.versions(BRONZE).manifest().get("positions", {}).get(source) or {})
    marks = [batch.mark for batch in batches(lake)]
    for queue, at in (
        item for mark in marks if mark.get("source") == source for item in (mark["positions"] or {}).items()
    ):
        if queue not in positions or id_key(positions[queue]["id"]) < id_key(at["id"]):
            positions[queue] = at
    return positions or None


def manifest(lake: Lake) -> dict[str, Any]:
    """Return how far every query and every source has come: the manifest of a new version."""
    sources = {batch.mark["source"] for batch in batches(lake) if "source" in batch.mark}
    sources |= lake.versions(BRONZE).manifest().get("positions", {}).keys()
    return {
        "reached": reached(lake),
        "positions": {source: last_positions(lake, source) for source in sources},
    }


def gaps(spark: SparkSession, lake: Lake) -> list[dict[str, Any]]:
    """Return the gaps of bronze: queue, why, and how many events are missing (None where unknown)."""
    rows = lake.bronze(spark).where(sf.col("event") == GAP).select("protocol", "queue", "data").collect()
    return [{"protocol": row["protocol"], "queue": row["queue"], **orjson.loads(row["data"])} for row in rows]


def query_of(checkpoint: Path) -> str:
    """Return the id of the query that this checkpoint belongs to."""
    metadata = read_json(checkpoint / "metadata")
    if metadata is None:
        raise CorralError(f"the checkpoint {checkpoint} has no 'metadata', which Spark writes first")
    return str(metadata["id"])


def positions_of(checkpoint: Path, number: int) -> dict[str, Any] | None:
    """Return where a batch ends, as Spark recorded before it began; None where that cannot be read."""
    try:
        last = (checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
        offset = orjson.loads(last)
    except (OSError, ValueError, IndexError):
        return None
    is_ours = isinstance(offset, dict) and all(isinstance(at, dict) and "id" in at for at in offset.values())
    return offset if is_ours else None


def row_count(folder: Path) -> int:
    """Return how many rows the files of a folder have, by their footers."""
    return sum(pq.ParquetFile(file).metadata.num_rows for file in visible(folder))
