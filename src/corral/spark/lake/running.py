"""A run of the lake: new events into bronze, then silver and gold, once or until it is told to stop."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.errors import PySparkException

from corral.errors import CorralError, InvalidOptions
from corral.spark.lag import lag_of
from corral.spark.lake import bronze
from corral.spark.lake.bronze import BronzeSink
from corral.spark.lake.compaction import ENOUGH, compact
from corral.spark.lake.feeds import BATCH_EVENTS, events_as_they_come, source_name
from corral.spark.lake.generations import write_json
from corral.spark.lake.layout import Lake
from corral.spark.lake.publishing import PARQUET, check_format, publish
from corral.spark.lake.refreshing import refresh
from corral.spark.lake.retention import retain
from corral.spark.options import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.2
FINISH_S = 60.0
"""So long a batch has to end once a stop is asked for; one that is broken off is read again later."""
_PYTHON_ERROR = re.compile(r"(?!at |Caused by|JVM|org\.|py4j\.Py4J)[A-Za-z_][\w.]*: \S")
TIME_ZONE = "spark.sql.session.timeZone"


class LakeFailed(CorralError):
    """A run of the lake was broken off; the next one goes on where it was."""


@dataclass(frozen=True)
class RunOptions:
    """How a lake is run."""

    is_continuous: bool = False
    """Until it is told to stop; else until the events that are there now have been read."""
    every_s: float = 10.0
    """In a continuous run: the time between two looks for new events."""
    refresh_s: float = 60.0
    """In a continuous run: the time between two refreshes of silver and gold."""
    batch_events: int = BATCH_EVENTS
    keep_days: int | None = None
    fold_after: int = ENOUGH
    format: str = PARQUET


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    doing: str
    read: int = 0
    behind: int = 0


@dataclass(frozen=True)
class Ran:
    """What a run has done."""

    events: int = 0
    """Rows of bronze that silver and gold now tell of, gaps among them."""
    batches: int = 0
    days: int = 0
    """Days of silver and gold that were written anew."""
    folded: int = 0
    """Folders of bronze that became bigger ones."""
    dropped: int = 0
    """Days that retention has dropped."""
    missing: int = 0
    """Events that were gone before they were read, of all times; each gap is a row of bronze."""
    unknown_gaps: int = 0
    """Gaps whose size nobody knows."""


def run(
    spark: "SparkSession",
    lake: Lake,
    where: Where,
    options: RunOptions | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Ran:
    """Bring a lake up to date with the events of a room; what that took.

    >>> run(spark, Lake("history"), where(url="redis://localhost")).events          # doctest: +SKIP
    """
    with lake.alone(), in_utc(spark):
        return _Run(spark, lake, where, options or RunOptions(), tell).go(should_stop)


class _Run:
    def __init__(
        self,
        spark: "SparkSession",
        lake: Lake,
        where: Where,
        options: RunOptions,
        tell: Callable[[Progress], None],
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._where = where
        self._options = options
        self._tell = tell
        self._done = Ran()
        self._days: set[date] = set()

    def go(self, should_stop: Callable[[], bool]) -> Ran:
        prepare(self._lake, self._where)
        if self._options.format != PARQUET:
            check_format(self._spark, self._lake, self._options.format)
        query = self._start()
        try:
            self._follow(query, should_stop)
        except PySparkException as error:
            raise LakeFailed(
                f"the lake {self._lake.path} was not brought up to date: {_cause(error)}"
            ) from error
        finally:
            query.stop()
        self._renew()
        gaps = bronze.missing(self._spark, self._lake)
        return replace(
            self._done,
            days=len(self._days),
            missing=sum(gap["missing"] or 0 for gap in gaps),
            unknown_gaps=sum(gap["missing"] is None for gap in gaps),
        )

    def _start(self) -> "StreamingQuery":
        source, options = source_name(self._where), self._options
        checkpoint = self._lake.checkpoint(source)
        # a query that has lost its notes goes on where bronze says it was
        starting = None if checkpoint.exists() else bronze.last_positions(self._lake, source)
        events = events_as_they_come(self._spark, self._where, options.batch_events, starting)
        writer = events.writeStream.queryName(f"corral-lake-{source}-{uuid4().hex[:8]}")
        writer = writer.option("checkpointLocation", str(checkpoint))
        if options.is_continuous:
            writer = writer.trigger(processingTime=f"{options.every_s} seconds")
        else:
            writer = writer.trigger(availableNow=True)
        return writer.foreachBatch(BronzeSink(self._lake, source)).start()

    def _follow(self, query: "StreamingQuery", should_stop: Callable[[], bool]) -> None:
        """Stay until the query has read what there is, or a stop is asked for and its batch is done."""
        renewed_at, read, last = time.monotonic(), 0, -1
        self._tell(Progress("reading events"))
        while not query.awaitTermination(LOOK_S):  # type: ignore[arg-type]
            progress = query.lastProgress
            if progress is not None and progress["batchId"] > last:
                last = progress["batchId"]
                read += progress["numInputRows"]
                behind = sum(lag_of(progress["sources"]).values())
                self._tell(Progress("reading events", read, behind))
            if should_stop():
                _let_finish(query)
                return
            if self._options.is_continuous and time.monotonic() - renewed_at >= self._options.refresh_s:
                self._renew()
                renewed_at = time.monotonic()

    def _renew(self) -> None:
        """Silver, gold, and the tidying that follows."""
        spark, lake, options = self._spark, self._lake, self._options
        self._tell(Progress("silver and gold", self._done.events))
        made = refresh(spark, lake)
        self._days |= made.dates
        self._tell(Progress("tidying", self._done.events + made.events))
        folded = compact(spark, lake, options.fold_after)
        today = datetime.now(UTC).date()
        dropped = [] if options.keep_days is None else retain(lake, options.keep_days, today)
        if options.format != PARQUET and (made.dates or dropped):
            publish(spark, lake, options.format)
        self._done = replace(
            self._done,
            events=self._done.events + made.events,
            batches=self._done.batches + made.batches,
            folded=self._done.folded + folded,
            dropped=self._done.dropped + len(dropped),
        )


def prepare(lake: Lake, where: Where) -> None:
    """A folder that is a lake, with nothing in it that a killed run has left half done."""
    is_strange = lake.root.exists() and not lake.exists and any(
        not child.name.startswith("_") for child in lake.root.iterdir()
    )
    if is_strange:
        raise InvalidOptions(
            f"the folder {lake.path} has other things in it and is no lake; give an empty one or a new name"
        )
    shutil.rmtree(lake.work, ignore_errors=True)
    lake.work.mkdir(parents=True)
    sources = lake.settings().get("sources", {})
    known = {"room": where.room_name, "namespace": where.namespace, "queue": where.queue}
    if sources.get(source_name(where)) != known:
        write_json(lake.settings_file, {"layout": 1, "sources": {**sources, source_name(where): known}})


@contextmanager
def in_utc(spark: "SparkSession") -> Iterator[None]:
    """Days begin at midnight in UTC, whatever the session's own zone is."""
    before = spark.conf.get(TIME_ZONE)
    spark.conf.set(TIME_ZONE, "UTC")
    try:
        yield
    finally:
        spark.conf.set(TIME_ZONE, before or "UTC")


def _let_finish(query: "StreamingQuery") -> None:
    """Wait for the batch at hand: a query that is stopped in the middle would have to read it again."""
    deadline = time.monotonic() + FINISH_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(LOOK_S / 4)


def _cause(error: PySparkException) -> str:
    """The one line of a long story that tells what went wrong: the last that a Python error wrote."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if _PYTHON_ERROR.match(line)]
    return told[-1] if told else lines[0] if lines else type(error).__name__
