"""LakeTable: a Delta table whose Parquet files Spark's tasks read and write, and the driver commits."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import PyFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from corral.errors import CorralError, InvalidOptions
from corral.spark.schema import arrow_schema

DATE = "date"
"""The column by which every table is partitioned."""
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
KEEP_VERSIONS_H = 24
"""Hours for which old versions stay readable."""
HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Deleting expired logs takes longer with every commit that is kept: maintenance does it now and then."""
FILES = "path string, day date, size long, rows long, note string"
"""What a writing task returns: a row per file; a note belongs to no file."""
ROW_GROUP = 128 * 1024
OPEN_DAYS = 32
"""Days of one task that are written side by side."""
READ_BYTES = 32 * 1024 * 1024
"""Bytes of files that one task reads, about."""
READ_ROWS = 64 * 1024

_STATUS = re.compile(r"\b([45]\d\d [A-Z][A-Za-z]+(?: [A-Z][a-z]+)*)|<Code>(\w+)</Code>|<Message>([^<]+)<")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class LakeBusy(CorralError):
    """Another process works on this lake."""


class LakeUnavailable(CorralError):
    """The storage of a lake refuses or does not answer."""


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a table; those of one day are in one folder."""

    path: str
    day: date | None
    size: int
    rows: int

    @property
    def partition(self) -> dict[str, str | None]:
        return {DATE: None if self.day is None else self.day.isoformat()}


@dataclass(frozen=True)
class LakeTable:
    """A Delta table on a folder or on object storage. Picklable: tasks use it on executors."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict)
    """Options of the object storage, by delta-rs's names; what is missing comes from the environment."""
    as_of: datetime | None = None
    """Read the version of that time; default: the latest."""

    def open(self) -> DeltaTable | None:
        """Return the table; None before its first version."""
        with storage_errors(self.uri):
            try:
                table = DeltaTable(self.uri, storage_options=dict(self.storage))
            except TableNotFoundError:
                return None
            if self.as_of is not None:
                times = {one["version"]: one["timestamp"] for one in table.history()}
                table.load_as_version(self.as_of)
                if times.get(table.version(), 0) > self.as_of.timestamp() * 1000:
                    raise InvalidOptions(
                        f"{self.uri} has no version of {self.as_of.isoformat()}; corral lake history lists "
                        f"the versions that are kept"
                    )
            return table

    def create(self, schema: StructType) -> DeltaTable:
        """Return the table, made where it does not exist; refuse one that has other columns."""
        table = self.open()
        if table is None:
            with storage_errors(self.uri):
                return DeltaTable.create(
                    self.uri,
                    arrow_schema(schema),
                    mode="ignore",
                    partition_by=[DATE],
                    configuration={"delta.checkpointInterval": "50", **retention(KEEP_VERSIONS_H * 3600)},
                    storage_options=dict(self.storage),
                )
        columns = [column.name for column in table.schema().fields]
        if columns != schema.fieldNames():
            raise InvalidOptions(
                f"the table {self.uri} has the columns {', '.join(columns)}, which are not those of a lake "
                f"({', '.join(schema.fieldNames())}); give another folder"
            )
        return table

    def filesystem(self) -> PyFileSystem:
        """Return the table's folder as a file system of pyarrow."""
        return PyFileSystem(DeltaStorageHandler(self.uri, dict(self.storage)))

    def dataset(self) -> ds.Dataset:
        """Return the table for readers without Spark; `corral lake sql` is one."""
        table = self.open()
        if table is None:
            raise InvalidOptions(f"there is no table {self.uri}; make one: corral lake run")
        return table.to_pyarrow_dataset()

    def read(self, spark: SparkSession, schema: StructType, files: Sequence[DataFile]) -> DataFrame:
        """Return these columns of these files; tasks read them."""
        if not files:
            return spark.createDataFrame([], schema)
        rows = [(file.path, file.day) for file in files]
        paths = spark.createDataFrame(rows, "path string, day date")
        tasks = min(len(files), sum(file.size for file in files) // READ_BYTES + 2)
        paths = paths.repartition(tasks) if tasks > 1 else paths.coalesce(1)
        return paths.mapInArrow(FileReader(self, arrow_schema(schema)), schema)

    def write(self, frame: DataFrame, name: str) -> list[DataFile]:
        """Write a DataFrame to files that belong to no version yet; tasks write them."""
        writer = FileWriter(self, name, arrow_schema(frame.schema))
        return [DataFile(*row[:4]) for row in frame.mapInArrow(writer, FILES).collect()]


def retention(seconds: int) -> dict[str, str]:
    """Return the properties of a table that keeps old versions for so long."""
    names = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
    return dict.fromkeys(names, f"interval {seconds} seconds")


# -- versions -----------------------------------------------------------------------------------------------


def files_of(table: DeltaTable) -> list[DataFile]:
    """Return the files of the version that was opened."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", f"partition.{DATE}", "size_bytes", "num_records")
    columns = [
        actions.column(name).to_pylist() if name in actions.column_names else [None] * actions.num_rows
        for name in names
    ]
    return [DataFile(*row) for row in zip(*columns, strict=True)]


def commit(
    table: DeltaTable,
    add: Sequence[DataFile],
    remove: Sequence[DataFile] = (),
    versions: Mapping[str, int] | None = None,
) -> None:
    """Add and remove files in one version; `versions` are those of application transactions.

    Raises `CommitFailedError` where another process has changed the table since it was opened in a way that
    does not go together.
    """
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, file.partition, now, True, f'{{"numRecords":{file.rows}}}')
        for file in add
    ]
    actions += [RemoveAction(file.path, True, now, file.size, file.partition) for file in remove]
    counts = {"addedRows": sum(file.rows for file in add), "removedRows": sum(file.rows for file in remove)}
    transactions = [Transaction(name, version) for name, version in (versions or {}).items()]
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        [DATE],
        commit_properties=CommitProperties(custom_metadata=counts, app_transactions=transactions),
        post_commithook_properties=HOOKS,
    )


def covered(table: DeltaTable | None, names: Iterable[str]) -> dict[str, int]:
    """Return name -> the last version of that application's transactions."""
    if table is None:
        return {}
    found = {name: table.transaction_version(name) for name in names}
    return {name: version for name, version in found.items() if version is not None}


@contextmanager
def storage_errors(uri: str) -> Iterator[None]:
    """Turn errors of the storage into one sentence."""
    try:
        yield
    except CommitFailedError as error:
        raise LakeBusy(
            f"another process has changed {uri} meanwhile; let one process at a time write to a lake"
        ) from error
    except (OSError, DeltaError) as error:
        raise LakeUnavailable(
            f"{uri} cannot be used: {_cause(error)}; check the address, the rights and the options of the "
            f"storage, in the environment (such as AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL) or in --storage"
        ) from error


def _cause(error: Exception) -> str:
    """Return the part of a long message that says why: what the server answered, else its last line."""
    lines = [line.strip(" ↳:") for line in _COLOURS.sub("", str(error)).splitlines() if line.strip(" ↳:")]
    answers = ["".join(groups) for groups in _STATUS.findall(" ".join(lines))]
    return ", ".join(dict.fromkeys(answers)) or (lines[-1] if lines else type(error).__name__)


# -- on executors -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileReader:
    """The function given to `mapInArrow` that reads files: rows of (path, day) become rows of the table."""

    table: LakeTable
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem = self.table.filesystem()
        names = [name for name in self.schema.names if name != DATE]
        for batch in batches:
            for path, day in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                with filesystem.open_input_file(path) as file:
                    for rows in pq.ParquetFile(file).iter_batches(READ_ROWS, columns=names):
                        yield self._with_day(rows, day)

    def _with_day(self, rows: pa.RecordBatch, day: date | None) -> pa.RecordBatch:
        arrays = [
            pa.repeat(pa.scalar(day, one.type), len(rows))
            if one.name == DATE
            else rows.column(one.name).cast(one.type)
            for one in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True)
class FileWriter:
    """The function given to `mapInArrow` that writes files: a file per day; yields `FILES`.

    The names are new in each attempt of a task, so a repeated one never changes a file that was committed.
    """

    table: LakeTable
    name: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield files_batch(self.write(batches))

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
        """Write the rows; return the files."""
        filesystem = self.table.filesystem()
        open_files: dict[date | None, _DayFile] = {}
        done: list[DataFile] = []
        for batch in batches:
            rows = pa.Table.from_batches([batch]).cast(self.schema)
            days = pc.unique(rows.column(DATE))
            for day in days:
                part = rows if len(days) == 1 else rows.filter(pc.equal(rows.column(DATE), day))
                if day.as_py() not in open_files:
                    if len(open_files) == OPEN_DAYS:
                        done += [file.close() for file in open_files.values()]
                        open_files.clear()
                    open_files[day.as_py()] = _DayFile(filesystem, self.name, day.as_py(), part.schema)
                open_files[day.as_py()].add(part)
        return done + [file.close() for file in open_files.values()]


class _DayFile:
    """A file that is being written; rows are gathered to row groups."""

    def __init__(self, filesystem: PyFileSystem, name: str, day: date | None, schema: pa.Schema) -> None:
        folder = NO_DATE if day is None else day.isoformat()
        self._day = day
        self._path = f"{DATE}={folder}/{name}-{uuid4().hex}.parquet"
        self._stream = filesystem.open_output_stream(self._path)
        schema = schema.remove(schema.get_field_index(DATE))
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd", compression_level=1)
        self._gathered: list[pa.Table] = []
        self._rows = self._pending = 0

    def add(self, rows: pa.Table) -> None:
        self._gathered.append(rows.drop_columns([DATE]))
        self._rows += len(rows)
        self._pending += len(rows)
        if self._pending >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.concat_tables(self._gathered), row_group_size=ROW_GROUP * 2)
        self._gathered, self._pending = [], 0

    def close(self) -> DataFile:
        if self._gathered:
            self._flush()
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return DataFile(self._path, self._day, size, self._rows)


def files_batch(files: Sequence[DataFile], notes: Sequence[str] = ()) -> pa.RecordBatch:
    """Return files and notes as a record batch of `FILES`."""
    rows: list[tuple[Any, ...]] = [(file.path, file.day, file.size, file.rows, None) for file in files]
    rows += [(None, None, None, None, note) for note in notes]
    kinds = (pa.string(), pa.date32(), pa.int64(), pa.int64(), pa.string())
    arrays = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(kinds)]
    return pa.RecordBatch.from_arrays(arrays, names=["path", "day", "size", "rows", "note"])
