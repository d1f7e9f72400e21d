"""Bronze: events as they were, each batch of each source once, and how far each queue was read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from corral.spark.lake.delta import (
    FILES,
    DataFile,
    FileWriter,
    LakeBusy,
    LakeTable,
    commit,
    files_batch,
    files_of,
    storage_errors,
)
from corral.spark.lake.tables import BRONZE, BRONZE_SCHEMA, Lake
from corral.spark.offsets import Positions, from_json, id_key, to_json
from corral.spark.schema import GAP, POSITION, arrow_schema

_BATCH_FILE = re.compile(r".*/(?P<source>[^/]+)-(?P<version>\d{8,})-[0-9a-f]{32}\.parquet")
_SCHEMA = arrow_schema(BRONZE_SCHEMA)


class Reached(NamedTuple):
    """How far a source was read, as it stands in bronze."""

    positions: Positions
    run: str
    """The query that wrote it."""
    version: int
    """The number of its batch."""


@dataclass
class BronzeSink:
    """The function given to `foreachBatch`: appends a batch, once however often it is replayed.

    Runs on the driver; the files are written by executors. The rows and the positions they reach are one
    version of the table, under the transaction (source, number of the batch in the whole history).
    """

    lake: Lake
    source: str
    first: int
    """The number of this query's first batch."""
    run: str
    _last: Reached | None = field(default=None, init=False, repr=False)

    @cached_property
    def table(self) -> DeltaTable:
        """Bronze, opened once: what was added since is read before every commit."""
        return self.lake.table(BRONZE).create(BRONZE_SCHEMA)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "table"}

    def __call__(self, frame: DataFrame, number: int) -> None:
        version = self.first + number
        files, ends = write_batch(self.lake.table(BRONZE), frame, f"{self.source}-{version:08d}")
        if ends:
            self.append(version, files, ends)

    def append(self, version: int, files: Sequence[DataFile], ends: Positions) -> None:
        """Commit the files of a batch with the positions it reaches, unless bronze has it."""
        location, table = self.lake.table(BRONZE), self.table
        with storage_errors(location.uri):
            table.update_incremental()
            known = last_version(table, self.source)
            if self._last is None or self._last.version != known:
                self._last = reached_by(location, table, self.source)
            if not self._has(known, version):
                positions = {**(self._last.positions if self._last else {}), **ends}
                written = _write_positions(location, self.source, version, self.run, positions)
                commit(table, [*files, written], versions={self.source: version})
                self._last = Reached(positions, self.run, version)

    def _has(self, known: int, version: int) -> bool:
        """Return whether bronze has the batch; refuse it where another process has read on meanwhile."""
        is_mine = self._last is not None and self._last.run == self.run
        if known >= version and is_mine:
            return True  # a replay
        if known == version - 1 and (is_mine or version == self.first):
            return False
        raise LakeBusy(
            f"another process has read events of {self.source} into the lake {self.lake.path} meanwhile; "
            f"let one process at a time write to a lake"
        )


def write_batch(location: LakeTable, frame: DataFrame, name: str) -> tuple[list[DataFile], Positions]:
    """Write the events to files that belong to no version yet; return them, and where each queue ends."""
    dated = frame.withColumn("date", sf.to_date("ts"))
    rows = dated.mapInArrow(EventFileWriter(location, name, _SCHEMA), FILES).collect()
    ends: Positions = {}
    for row in rows:
        if row["note"] is not None:
            for queue, position in from_json(orjson.loads(row["note"])).items():
                if queue not in ends or id_key(ends[queue].id) < id_key(position.id):
                    ends[queue] = position
    return [DataFile(*row[:4]) for row in rows if row["path"] is not None], ends


@dataclass(frozen=True)
class EventFileWriter(FileWriter):
    """Writes events to files; positions become notes to the driver. Runs on executors."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        notes: list[str] = []
        files = self.write(_without_positions(batches, notes))
        yield files_batch(files, notes)


def _without_positions(batches: Iterator[pa.RecordBatch], notes: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        is_position = pc.equal(batch.column("event"), POSITION)
        if not pc.any(is_position).as_py():
            yield batch
            continue
        positions = batch.filter(is_position)
        for queue, data in zip(
            positions.column("queue").to_pylist(), positions.column("data").to_pylist(), strict=True
        ):
            notes.append(orjson.dumps({queue: orjson.loads(data)}).decode())
        rest = batch.filter(pc.invert(is_position))
        if len(rest):
            yield rest


# -- positions ----------------------------------------------------------------------------------------------


def last_version(table: DeltaTable | None, source: str) -> int:
    """Return the number of a source's last batch; -1 before the first."""
    known = None if table is None else table.transaction_version(source)
    return -1 if known is None else known


def reached_by(location: LakeTable, table: DeltaTable, source: str) -> Reached | None:
    """Return how far a source was read; None before its first batch."""
    files = _position_files(table).get(source)
    if files is None:
        return None
    with location.filesystem().open_input_file(files[-1].path) as opened:
        rows = pq.read_table(opened, columns=["queue", "data"]).to_pylist()
    contents = {row["queue"]: orjson.loads(row["data"]) for row in rows}
    run = next(iter(contents.values()))["run"]
    return Reached(from_json(contents), run, last_version(table, source))


def sources(table: DeltaTable) -> list[str]:
    """Return the sources of the events in bronze."""
    return sorted(_position_files(table))


def superseded(table: DeltaTable) -> list[DataFile]:
    """Return the files of positions that have later ones."""
    return [file for files in _position_files(table).values() for file in files[:-1]]


def _position_files(table: DeltaTable) -> dict[str, list[DataFile]]:
    """Return source -> its files without a day, in their order; each has the positions of all its queues."""
    found: dict[str, list[tuple[int, DataFile]]] = {}
    for file in files_of(table):
        match = _BATCH_FILE.fullmatch(file.path)
        if match and file.day is None:
            found.setdefault(match["source"], []).append((int(match["version"]), file))
    return {source: [file for _, file in sorted(files, key=itemgetter(0))] for source, files in found.items()}


def _write_positions(
    location: LakeTable, source: str, version: int, run: str, positions: Positions
) -> DataFile:
    """Write the positions of a source as rows of bronze without a day, to one file; return it."""
    rows = [
        {
            "protocol": source.rpartition("-")[0],
            "queue": queue,
            "event_id": position["id"],
            "ts": datetime.now(UTC),
            "event": POSITION,
            "data": orjson.dumps({**position, "run": run}).decode(),
        }
        for queue, position in to_json(positions).items()
    ]
    batch = pa.RecordBatch.from_pylist(rows, _SCHEMA)
    [file] = FileWriter(location, f"{source}-{version:08d}", _SCHEMA).write(iter([batch]))
    return file


def append(location: LakeTable, source: str, frame: DataFrame, positions: Positions) -> None:
    """Append events whose positions are known, as those of a converted lake are."""
    table, run = location.create(BRONZE_SCHEMA), uuid4().hex
    version = last_version(table, source) + 1
    files = location.write(frame, f"{source}-{version:08d}")
    with storage_errors(location.uri):
        written = _write_positions(location, source, version, run, positions)
        commit(table, [*files, written], versions={source: version})


# -- batches ------------------------------------------------------------------------------------------------


def new_files(table: DeltaTable, covered: Mapping[str, int]) -> dict[tuple[str, int], list[DataFile]]:
    """Return the files of batches later than these (source -> number): (source, number) -> files.

    Files that a compaction made have other names: it takes only batches that silver covers.
    """
    found: dict[tuple[str, int], list[DataFile]] = {}
    for file in files_of(table):
        match = _BATCH_FILE.fullmatch(file.path)
        if match and file.day is not None and int(match["version"]) > covered.get(match["source"], -1):
            found.setdefault((match["source"], int(match["version"])), []).append(file)
    return found


def gaps(lake: Lake) -> list[dict[str, Any]]:
    """Return the gaps of bronze: queue, why, and how many events are missing (None where unknown)."""
    if lake.table(BRONZE).open() is None:
        return []
    with storage_errors(lake.path):
        rows = (
            lake.table(BRONZE)
            .dataset()
            .to_table(["protocol", "queue", "data"], filter=ds.field("event") == GAP)
        )
    return [
        {"protocol": row["protocol"], "queue": row["queue"], **orjson.loads(row["data"])}
        for row in rows.to_pylist()
    ]
