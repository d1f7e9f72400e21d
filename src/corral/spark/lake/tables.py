"""Lake: where its tables lie, and each of them as a DataFrame."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BooleanType, DateType, StructType

from corral.errors import InvalidOptions, short_repr
from corral.spark.lake import gold, silver
from corral.spark.lake.versions import WORK, Generations, locked, read_json
from corral.spark.schema import EVENTS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

BRONZE, BACKFILL, ATTEMPTS, JOBS, MINUTES = "bronze", "backfill", "attempts", "jobs", "minutes"

HISTORY = StructType([*EVENTS.fields]).add("date", DateType())
"""The columns of bronze: those of events, and the day they are filed under."""


@dataclass(frozen=True)
class Lake:
    """A folder with the history of jobs in it.

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

    # -- paths ------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        return Path(self.path)

    @property
    def work(self) -> Path:
        """For what is being made; nothing in it counts."""
        return self.root / WORK

    @property
    def settings_file(self) -> Path:
        return self.root / "_lake.json"

    def settings(self) -> dict[str, Any]:
        """What the lake knows of itself: where its events came from."""
        return read_json(self.settings_file) or {}

    @property
    def exists(self) -> bool:
        return self.settings_file.exists()

    def checkpoint(self, source: str) -> Path:
        """Where Spark notes how far the events of one source were read."""
        return self.root / "_checkpoints" / source

    def generations(self, table: str) -> Generations:
        return Generations(self.root, table)

    def alone(self) -> "AbstractContextManager[None]":
        """One process at a time works on a lake; readers are always welcome."""
        return locked(self.root / "_run.lock", wait=False)

    def turning(self) -> "AbstractContextManager[None]":
        """Held for the moment in which bronze changes."""
        return locked(self.root / "_turn.lock")

    # -- tables -----------------------------------------------------------------------------------------

    def bronze(self, spark: "SparkSession") -> "DataFrame":
        """Every event as it was, and the rows of gaps: the columns of events, and `date`."""
        return self._read(spark, BRONZE, HISTORY)

    def backfilled(self, spark: "SparkSession") -> "DataFrame":
        """What snapshots told of jobs whose events are gone, in the shape of events."""
        return self._read(spark, BACKFILL, HISTORY)

    def attempts(self, spark: "SparkSession") -> "DataFrame":
        """One row an attempt: `silver.attempts`, and whether a backfill told of it."""
        return self._read(spark, ATTEMPTS, shape_of(spark, ATTEMPTS))

    def jobs(self, spark: "SparkSession") -> "DataFrame":
        """One row a job's life: `silver.jobs`, and whether a backfill told of it."""
        return self._read(spark, JOBS, shape_of(spark, JOBS))

    def minutes(self, spark: "SparkSession") -> "DataFrame":
        """One row a queue and minute: `gold.minutes`."""
        return self._read(spark, MINUTES, shape_of(spark, MINUTES))

    def _read(self, spark: "SparkSession", table: str, schema: StructType) -> "DataFrame":
        folder = self.generations(table).current()
        if folder is None:
            return spark.createDataFrame([], schema)
        # the folder itself, not the name that points to it: it stays as it is while it is read
        return spark.read.schema(schema).parquet(str(folder)).select(*schema.fieldNames())


_SHAPES: dict[str, StructType] = {}


def shape_of(spark: "SparkSession", table: str) -> StructType:
    """The columns of a table of silver or gold, as the functions that make it say."""
    if not _SHAPES:
        events = spark.createDataFrame([], EVENTS)
        attempts, jobs = silver.attempts(events), silver.jobs(events)
        for name, frame in ((ATTEMPTS, attempts), (JOBS, jobs)):
            _SHAPES[name] = StructType([*frame.schema.fields]).add("backfilled", BooleanType())
        _SHAPES[MINUTES] = gold.minutes(attempts, jobs).schema
    return _SHAPES[table]
