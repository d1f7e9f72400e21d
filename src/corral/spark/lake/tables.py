"""Lake: a folder with the history of jobs, and each of its tables as a DataFrame."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DateType, StructType

from corral.errors import InvalidOptions, short_repr
from corral.spark.lake import gold, silver
from corral.spark.lake.versions import WORK, TableVersions, locked, read_json
from corral.spark.schema import EVENTS

LAYOUT = 2
"""Written into a lake; 1 had other names of columns: `room` for `protocol`, `life` for `generation`."""
BRONZE, BACKFILL, ATTEMPTS, JOBS, MINUTES = "bronze", "backfill", "attempts", "jobs", "minutes"

BRONZE_SCHEMA = StructType([*EVENTS.fields]).add("date", DateType())
"""The columns of events, and the day of the event."""


@dataclass(frozen=True)
class Lake:
    """A folder with the history of jobs.

    >>> Lake("history").attempts(spark).groupBy("outcome").count().show()          # doctest: +SKIP
    """

    path: str

    def __post_init__(self) -> None:
        scheme, separator, rest = self.path.partition("://")
        if separator and scheme != "file":
            raise InvalidOptions(
                f"the lake {short_repr(self.path)} is no folder of this machine; give one, or a shared "
                f"folder that all machines of the cluster see under the same name"
            )
        if not self.path.strip():
            raise InvalidOptions("the lake's folder has an empty name; give a path such as ./lake")
        object.__setattr__(self, "path", str(Path(rest if separator else self.path).expanduser().absolute()))

    @property
    def root(self) -> Path:
        return Path(self.path)

    @property
    def work(self) -> Path:
        """The folder of unfinished files; nothing in it is part of a table."""
        return self.root / WORK

    @property
    def settings_file(self) -> Path:
        return self.root / "_lake.json"

    def settings(self) -> dict[str, Any]:
        """Return the layout of the lake and the sources of its events."""
        return read_json(self.settings_file) or {}

    @property
    def exists(self) -> bool:
        return self.settings_file.exists()

    def check_layout(self) -> None:
        """Refuse a lake whose tables have the columns of an earlier layout."""
        layout = self.settings().get("layout", LAYOUT)
        if layout < LAYOUT:
            raise InvalidOptions(
                f"the lake {self.path} was written by an earlier Corral, with the column 'room' in place of "
                f"'protocol'; make a new one in another folder (corral lake run NEW, then corral lake "
                f"backfill NEW for jobs whose events are gone); any Parquet reader still reads the old one"
            )

    def checkpoint(self, source: str) -> Path:
        """Return the folder of Spark's checkpoint for the events of one source."""
        return self.root / "_checkpoints" / source

    def versions(self, table: str) -> TableVersions:
        return TableVersions(self.root, table)

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the lake's lock: one process at a time writes, any number may read."""
        self.check_layout()
        return locked(self.root / "_run.lock", wait=False)

    def bronze_lock(self) -> AbstractContextManager[None]:
        """Hold the lock for the moment in which bronze changes."""
        return locked(self.root / "_turn.lock")

    def bronze(self, spark: SparkSession) -> DataFrame:
        """Return all events as they were, and the rows of gaps: the columns of events, and `date`."""
        return self._read(spark, BRONZE, BRONZE_SCHEMA)

    def backfilled(self, spark: SparkSession) -> DataFrame:
        """Return the events that were derived from snapshots, for jobs whose events are gone."""
        return self._read(spark, BACKFILL, BRONZE_SCHEMA)

    def attempts(self, spark: SparkSession) -> DataFrame:
        """Return one row per attempt: `silver.attempts`, and whether the job was backfilled."""
        return self._read(spark, ATTEMPTS, table_schema(spark, ATTEMPTS))

    def jobs(self, spark: SparkSession) -> DataFrame:
        """Return one row per generation of a job: `silver.jobs`, and whether it was backfilled."""
        return self._read(spark, JOBS, table_schema(spark, JOBS))

    def minutes(self, spark: SparkSession) -> DataFrame:
        """Return one row per queue and minute: `gold.minutes`."""
        return self._read(spark, MINUTES, table_schema(spark, MINUTES))

    def _read(self, spark: SparkSession, table: str, schema: StructType) -> DataFrame:
        self.check_layout()
        folder = self.versions(table).current()
        if folder is None:
            return spark.createDataFrame([], schema)
        # the folder itself, not the link to it: it does not change while it is read
        return spark.read.schema(schema).parquet(str(folder)).select(*schema.fieldNames())


_SCHEMAS: dict[str, StructType] = {}


def table_schema(spark: SparkSession, table: str) -> StructType:
    """Return the columns of a table of silver or gold, as the functions that make it define them."""
    if not _SCHEMAS:
        events = spark.createDataFrame([], EVENTS)
        attempts, jobs = silver.attempts(events), silver.jobs(events)
        for name, frame in ((ATTEMPTS, attempts), (JOBS, jobs)):
            _SCHEMAS[name] = StructType([*frame.schema.fields]).add("backfilled", BooleanType())
        _SCHEMAS[MINUTES] = gold.minutes(attempts, jobs).schema
    return _SCHEMAS[table]
