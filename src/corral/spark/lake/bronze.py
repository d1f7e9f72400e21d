"""Bronze: events as they were, a folder for each batch of each query, and each batch once."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
import pyarrow.parquet as pq
from pyspark.sql import functions as sf

from corral.errors import CorralError
from corral.spark.lake.tables import BRONZE, HISTORY, Lake
from corral.spark.lake.versions import read_json, visible, write_json
from corral.spark.offsets import BEGINNING, id_key
from corral.spark.schema import GAP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "_batch.json"
OPEN_FILES = 32
"""So many days of one batch are written side by side; without it Spark sorts every batch by day first."""

_FOLDER = re.compile(r"batch=(?P<query>[0-9a-f-]{36})-(?P<number>\d{8,})")


@dataclass(frozen=True)
class Batch:
    """One micro-batch of one query, as it lies in bronze."""

    query: str
    number: int
    folder: Path

    @property
    def rows(self) -> int:
        return int((read_json(self.folder / MARK) or {}).get("rows", 0))


@dataclass(frozen=True)
class BronzeSink:
    """What `foreachBatch` is given: files a batch, once however often it is replayed. Runs on the driver."""

    lake: Lake
    source: str

    def __call__(self, frame: "DataFrame", number: int) -> None:
        checkpoint = self.lake.checkpoint(self.source)
        query, positions = query_of(checkpoint), positions_of(checkpoint, number)
        if has_batch(self.lake, query, number):
            # Spark had not noted that it was done
            check_known(self.lake, self.source, positions or {})
            return
        folder = self.lake.work / f"batch-{uuid4().hex}"
        frame.sparkSession.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES))
        frame.withColumn("date", sf.to_date("ts")).write.partitionBy("date").parquet(str(folder))
        rows = row_count(folder)
        if not rows:
            shutil.rmtree(folder)
            return
        write_json(
            folder / MARK,
            {
                "source": self.source,
                "query": query,
                "batch": number,
                "rows": rows,
                "positions": positions,
            },
        )
        land(self.lake, folder, query, number)


def land(lake: Lake, folder: Path, query: str, number: int) -> None:
    """Make a finished batch part of bronze in one step, unless it is there already."""
    with lake.turning():
        generations = lake.generations(BRONZE)
        current = generations.current() or generations.advance({})
        if has_batch(lake, query, number):
            shutil.rmtree(folder)
        else:
            folder.rename(current / f"batch={query}-{number:08d}")


def check_known(lake: Lake, source: str, positions: Mapping[str, Any]) -> None:
    """Refuse a batch that has a known number and reaches further than bronze: it was planned anew."""
    known = last_positions(lake, source) or {}
    for queue, at in positions.items():
        reached_id = known.get(queue, {}).get("id", BEGINNING)
        if id_key(at["id"]) > id_key(reached_id):
            raise CorralError(
                f"the checkpoint {lake.checkpoint(source)} is older than the lake: it forgot a batch of "
                f"bronze (queue {queue!r} to event {reached_id}); delete that folder, and the lake goes on "
                f"where it was"
            )


def batches(lake: Lake) -> list[Batch]:
    """The batches that lie in folders of their own, in their order."""
    current = lake.generations(BRONZE).current()
    if current is None:
        return []
    found = [
        Batch(match["query"], int(match["number"]), folder)
        for folder in current.iterdir()
        if (match := _FOLDER.fullmatch(folder.name))
    ]
    return sorted(found, key=lambda batch: (batch.query, batch.number))


def reached(lake: Lake) -> dict[str, int]:
    """Query -> the last of its batches that is in bronze; its batches come one after the other."""
    numbers: dict[str, int] = dict(lake.generations(BRONZE).manifest().get("reached", {}))
    for batch in batches(lake):
        numbers[batch.query] = max(batch.number, numbers.get(batch.query, -1))
    return numbers


def has_batch(lake: Lake, query: str, number: int) -> bool:
    return number <= reached(lake).get(query, -1)


def since(lake: Lake, covered: Mapping[str, int]) -> list[Batch]:
    """The batches that are later than these."""
    return [batch for batch in batches(lake) if batch.number > covered.get(batch.query, -1)]


def read_batches(spark: "SparkSession", some: list[Batch]) -> "DataFrame":
    """The events of these batches."""
    return read_folders(spark, [batch.folder for batch in some])


def read_folders(spark: "SparkSession", folders: list[Path]) -> "DataFrame":
    """The events of some of the folders of one generation."""
    reader = spark.read.schema(HISTORY).option("basePath", str(folders[0].parent))
    return reader.parquet(*map(str, folders)).select(*HISTORY.fieldNames())


def last_positions(lake: Lake, source: str) -> dict[str, Any] | None:
    """How far a source was read, as its last batch says: for a query that has lost its checkpoint."""
    kept: dict[str, Any] | None = lake.generations(BRONZE).manifest().get("positions", {}).get(source)
    marks = [read_json(batch.folder / MARK) or {} for batch in batches(lake)]
    for mark in marks:
        if mark.get("source") == source and mark.get("positions"):
            kept = further(kept, mark["positions"])
    return kept


def further(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> dict[str, Any]:
    """For each queue the later of two positions."""
    merged = dict(one or {})
    for queue, position in other.items():
        if queue not in merged or id_key(merged[queue]["id"]) < id_key(position["id"]):
            merged[queue] = position
    return merged


def standing(lake: Lake) -> dict[str, Any]:
    """How far every query and every source has come: what a new generation says of itself."""
    marks = (read_json(batch.folder / MARK) or {} for batch in batches(lake))
    sources = {mark["source"] for mark in marks if "source" in mark}
    kept: dict[str, Any] = lake.generations(BRONZE).manifest().get("positions", {})
    positions = {source: last_positions(lake, source) for source in {*kept, *sources}}
    return {"reached": reached(lake), "positions": positions}


def missing(spark: "SparkSession", lake: Lake) -> list[dict[str, Any]]:
    """The gaps of bronze: queue, why, and how many events were gone (None where nobody knows)."""
    rows = lake.bronze(spark).where(sf.col("event") == GAP).select("protocol", "queue", "data").collect()
    return [{"protocol": row["protocol"], "queue": row["queue"], **orjson.loads(row["data"])} for row in rows]


# -- Spark's own notes --------------------------------------------------------------------------------------


def query_of(checkpoint: Path) -> str:
    """The id of the query that this checkpoint belongs to."""
    told = read_json(checkpoint / "metadata")
    if told is None:
        raise CorralError(f"the checkpoint {checkpoint} has no 'metadata', which Spark writes first")
    return str(told["id"])


def positions_of(checkpoint: Path, number: int) -> dict[str, Any] | None:
    """Where a batch ends, as Spark has noted it before the batch began; None where that cannot be read."""
    try:
        last = (checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
        told = orjson.loads(last)
    except (OSError, ValueError, IndexError):
        return None
    is_ours = isinstance(told, dict) and all(isinstance(at, dict) and "id" in at for at in told.values())
    return told if is_ours else None


def row_count(folder: Path) -> int:
    """How many rows the files of a folder have, as their footers say."""
    return sum(pq.ParquetFile(file).metadata.num_rows for file in visible(folder))
