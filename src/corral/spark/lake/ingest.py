"""Filing: the query that brings a protocol's events into bronze, once to the present or for good."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.errors import PySparkException

from corral.errors import CorralError, InvalidOptions
from corral.spark.lag import lag_of
from corral.spark.lake import bronze
from corral.spark.lake.bronze import BronzeSink
from corral.spark.lake.tables import Lake
from corral.spark.lake.versions import write_json
from corral.spark.options import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_EVENTS = 1_000_000
"""Of one batch at most: what a lake that is far behind reads before it notes how far it is."""
LOOK_S = 0.2
FINISH_S = 60.0
"""So long a batch has to end once a stop is asked for; one that is broken off is read again later."""
TIME_ZONE = "spark.sql.session.timeZone"
_PYTHON_ERROR = re.compile(r"(?!org\.|java\.|py4j\.)([a-z_]\w*\.)*\w+(Error|Exception): \S")


class LakeFailed(CorralError):
    """A run of the lake was broken off; the next one goes on where it was."""


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    doing: str
    read: int = 0
    behind: int = 0


Tell = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Tells nobody."""


def file_events(
    spark: "SparkSession",
    lake: Lake,
    places: Sequence[Where],
    batch_events: int = BATCH_EVENTS,
    tell: Tell = silent,
) -> None:
    """Bring bronze alone to the present end of the events of these places.

    >>> file_events(spark, Lake("history"), [where])                                 # doctest: +SKIP
    """
    with lake.alone(), in_utc(spark):
        prepare(lake, places)
        with filing(spark, lake, places, batch_events) as queries:
            follow(queries, tell)


@contextmanager
def filing(
    spark: "SparkSession",
    lake: Lake,
    places: Sequence[Where],
    batch_events: int,
    every_s: float | None = None,
) -> Iterator[list["StreamingQuery"]]:
    """A query for each place, started; they end by themselves at the present, or look again `every_s`."""
    queries: list[StreamingQuery] = []
    try:
        for where in places:
            queries.append(_start(spark, lake, where, batch_events, every_s))
        yield queries
    except PySparkException as error:
        raise LakeFailed(f"the lake {lake.path} was not brought up to date: {_cause(error)}") from error
    finally:
        for query in queries:
            query.stop()


def _start(
    spark: "SparkSession", lake: Lake, where: Where, batch_events: int, every_s: float | None
) -> "StreamingQuery":
    source = source_name(where)
    checkpoint = lake.checkpoint(source)
    # a query that has lost its notes goes on where bronze says it was
    starting = None if checkpoint.exists() else bronze.last_positions(lake, source)
    events = events_as_they_come(spark, where, batch_events, starting)
    writer = events.writeStream.queryName(f"corral-lake-{source}-{uuid4().hex[:8]}")
    writer = writer.option("checkpointLocation", str(checkpoint))
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{every_s} seconds")
    return writer.foreachBatch(BronzeSink(lake, source)).start()


def follow(
    queries: Sequence["StreamingQuery"],
    tell: Tell = silent,
    should_stop: Callable[[], bool] = lambda: False,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Stay until the queries have read what there is, or a stop is asked for and their batches are done."""
    seen = [_Seen() for _ in queries]
    tell(Progress("reading events"))
    while True:
        have_ended = [query.awaitTermination(LOOK_S / len(queries)) for query in queries]  # type: ignore[arg-type]
        news = [one.look(query) for one, query in zip(seen, queries, strict=True)]
        if any(news):
            read, behind = sum(one.read for one in seen), sum(one.behind for one in seen)
            tell(Progress("reading events", read, behind))
        if all(have_ended):
            return
        if should_stop():
            for query in queries:
                _let_finish(query)
            return
        meanwhile()


@dataclass
class _Seen:
    """What a query has told of its progress so far."""

    read: int = 0
    behind: int = 0
    batch: int = -1

    def look(self, query: "StreamingQuery") -> bool:
        """Is there news?"""
        news = [progress for progress in query.recentProgress if progress["batchId"] > self.batch]
        for progress in news:
            self.batch = progress["batchId"]
            # over Spark Connect only the sources tell
            self.read += sum(source["numInputRows"] or 0 for source in progress["sources"])
            self.behind = sum(lag_of(progress["sources"]).values())
        return bool(news)


def prepare(lake: Lake, places: Sequence[Where]) -> None:
    """A folder that is a lake, with nothing in it that a killed run has left half done."""
    is_strange = (
        lake.root.exists()
        and not lake.exists
        and any(not child.name.startswith("_") for child in lake.root.iterdir())
    )
    if is_strange:
        raise InvalidOptions(
            f"the folder {lake.path} has other things in it and is no lake; give an empty one or a new name"
        )
    shutil.rmtree(lake.work, ignore_errors=True)
    lake.work.mkdir(parents=True)
    before: dict[str, Any] = lake.settings().get("sources", {})
    sources = before | {
        source_name(where): {
            "protocol": where.protocol_name,
            "namespace": where.namespace,
            "queue": where.queue,
        }
        for where in places
    }
    if sources != before:
        write_json(lake.settings_file, {"layout": 1, "sources": sources})


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
    ours = [line for line in lines if line.startswith("corral.")]
    told = ours or [line for line in lines if _PYTHON_ERROR.match(line)]
    return told[-1] if told else lines[0] if lines else type(error).__name__


def source_name(where: Where) -> str:
    """The protocol and namespace as the name of a folder; queues may join and leave.

    >>> source_name(Where("redis://localhost", "bullmq", "bull", "mail"))
    'bullmq-535a5307'
    """
    named = json.dumps([where.protocol_name, where.namespace]).encode()
    return f"{where.protocol_name}-{sha256(named).hexdigest()[:8]}"


def events_as_they_come(
    spark: "SparkSession", where: Where, batch_events: int, starting: Mapping[str, Any] | None
) -> "DataFrame":
    """A stream of events; what was trimmed before it was read is a row of its own."""
    options = {"maxOffsetsPerTrigger": str(batch_events), "failOnDataLoss": "false"}
    if starting is not None:
        options["startingOffsets"] = json.dumps(starting)
    return spark.readStream.format("corral").options(**_named(where), **options).load()


def snapshot_of(spark: "SparkSession", where: Where) -> "DataFrame":
    """Every job there is now, in any state."""
    return spark.read.format("corral").options(**_named(where), table="jobs").load()


def _named(where: Where) -> dict[str, str]:
    return {
        "url": where.url,
        "protocol": where.protocol_name,
        "namespace": where.namespace,
        "queue": where.queue,
    }
