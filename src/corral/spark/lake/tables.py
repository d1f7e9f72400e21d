"""Lake: the history of jobs as Delta tables, on a folder or on object storage, each as a DataFrame."""

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DateType, StructField, StructType

from corral.errors import InvalidOptions, short_repr
from corral.spark.lake import gold, silver
from corral.spark.lake.delta import LakeBusy, LakeTable, files_of
from corral.spark.schema import EVENTS

BRONZE, BACKFILL, ATTEMPTS, JOBS, MINUTES = "bronze", "backfill", "attempts", "jobs", "minutes"
TABLES = (BRONZE, BACKFILL, ATTEMPTS, JOBS, MINUTES)
SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss", "az")
STORAGE_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
"""Of variables of the environment that are options of object storage."""
OLD_LAKE = "_lake.json"
"""In a lake that was written before its tables were Delta."""

BRONZE_SCHEMA = StructType([*EVENTS.fields]).add("date", DateType())
"""The columns of events, and the day of the event."""


@dataclass(frozen=True)
class Lake:
    """The history of jobs, in a folder or at an address such as `s3://bucket/path`.

    >>> Lake("history").attempts(spark).groupBy("outcome").count().show()          # doctest: +SKIP
    """

    path: str
    storage: Mapping[str, str] = field(default_factory=dict)
    """Options of the object storage, by delta-rs's names; what is missing comes from the environment."""
    as_of: datetime | None = None
    """Read the versions of that time; default: the latest."""

    def __post_init__(self) -> None:
        scheme, separator, rest = self.path.strip().partition("://")
        if separator and scheme != "file":
            if scheme not in SCHEMES or not rest.strip("/"):
                raise InvalidOptions(
                    f"the lake {short_repr(self.path)} is neither a folder nor an address of object storage; "
                    f"give ./lake, s3://bucket/path, gs://bucket/path or abfss://container@account/path"
                )
            path = f"{scheme}://{rest.strip('/')}"
        elif not self.path.strip():
            raise InvalidOptions("the lake's folder has an empty name; give a path such as ./lake")
        else:
            path = str(Path(rest if separator else self.path).expanduser().absolute())
        object.__setattr__(self, "path", path)

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None on object storage."""
        return None if "://" in self.path else Path(self.path)

    def at(self, as_of: datetime | None) -> "Lake":
        """Return the lake as it was at that time."""
        return replace(self, as_of=as_of)

    def table(self, name: str) -> LakeTable:
        """Return a table of the lake; to executors it takes along what this process knows of the storage."""
        known = {key: value for key, value in os.environ.items() if key.startswith(STORAGE_PREFIXES)}
        return LakeTable(
            f"{self.path}/{name}", {**({} if self.folder else known), **self.storage}, self.as_of
        )

    @property
    def exists(self) -> bool:
        """Whether there is a lake; one of an earlier Corral is refused."""
        self.check_convertible()
        return self.table(BRONZE).open() is not None

    def check_convertible(self) -> None:
        """Refuse a lake that was written before its tables were Delta."""
        if self.folder is not None and (self.folder / OLD_LAKE).exists():
            raise InvalidOptions(
                f"the lake {self.path} was written by an earlier Corral, and its tables are not Delta; "
                f"convert it into a new one: corral lake convert {self.path} NEW"
            )

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Refuse a second writing process at once; on object storage the second one fails when it commits."""
        self.check_convertible()
        if self.folder is None:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "_run.lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LakeBusy(
                    f"another process works on the lake {self.path}; wait until it has ended, or stop it"
                ) from None
            yield

    def bronze(self, spark: SparkSession) -> DataFrame:
        """Return all events as they were, and the rows of gaps: the columns of events, and `date`."""
        return self.read(spark, BRONZE)

    def backfilled(self, spark: SparkSession) -> DataFrame:
        """Return the events that were derived from snapshots, for jobs whose events are gone."""
        return self.read(spark, BACKFILL)

    def attempts(self, spark: SparkSession) -> DataFrame:
        """Return one row per attempt: `silver.attempts`, and whether the job was backfilled."""
        return self.read(spark, ATTEMPTS)

    def jobs(self, spark: SparkSession) -> DataFrame:
        """Return one row per generation of a job: `silver.jobs`, and whether it was backfilled."""
        return self.read(spark, JOBS)

    def minutes(self, spark: SparkSession) -> DataFrame:
        """Return one row per queue and minute: `gold.minutes`."""
        return self.read(spark, MINUTES)

    def read(self, spark: SparkSession, name: str, days: Collection[date] | None = None) -> DataFrame:
        """Return a table as it is now, whatever is written meanwhile; `days`: only of these."""
        self.check_convertible()
        location = self.table(name)
        table = location.open()
        # rows without a day are positions, which are no events
        files = [] if table is None else [file for file in files_of(table) if file.day is not None]
        if days is not None:
            files = [file for file in files if file.day in days]
        return location.read(spark, table_schema(spark, name), files)


_SCHEMAS: dict[str, StructType] = {BRONZE: BRONZE_SCHEMA, BACKFILL: BRONZE_SCHEMA}


def table_schema(spark: SparkSession, table: str) -> StructType:
    """Return the columns of a table; those of silver and gold as the functions that make it define them."""
    if MINUTES not in _SCHEMAS:
        events = spark.createDataFrame([], EVENTS)
        attempts, jobs = silver.attempts(events), silver.jobs(events)
        for name, frame in ((ATTEMPTS, attempts), (JOBS, jobs)):
            _SCHEMAS[name] = _nullable(frame.schema).add("backfilled", BooleanType())
        _SCHEMAS[MINUTES] = _nullable(gold.minutes(attempts, jobs).schema)
    return _SCHEMAS[table]


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(column.name, column.dataType) for column in schema])
