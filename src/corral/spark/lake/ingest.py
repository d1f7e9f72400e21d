"""Ingestion: the streaming queries that bring a protocol's events into bronze."""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from uuid import uuid4

from pyarrow.fs import FileSelector
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from corral.errors import CorralError, InvalidOptions
from corral.spark import offsets
from corral.spark.client import QueueClient
from corral.spark.lag import lag_of
from corral.spark.lake import bronze
from corral.spark.lake.delta import storage_errors
from corral.spark.lake.tables import BRONZE, BRONZE_SCHEMA, TABLES, Lake
from corral.spark.offsets import BEGINNING, Position
from corral.spark.options import EventReadOptions, QueueAddress

BATCH_EVENTS = 1_000_000
"""Events of one batch at most: what a lake that is far behind reads before it records its progress."""
POLL_S = 0.2
FINISH_S = 60.0
"""How long a batch may take to end once a stop is requested; one that is interrupted is read again later."""
TIME_ZONE = "spark.sql.session.timeZone"
_PYTHON_ERROR = re.compile(r"(?!org\.|java\.|py4j\.)([a-z_]\w*\.)*\w+(Error|Exception): \S")


class LakeFailed(CorralError):
    """A run of the lake was interrupted; the next one continues where it was."""


@dataclass(frozen=True)
class LakeProgress:
    """How far a run is."""

    step: str
    read: int = 0
    behind: int = 0


OnProgress = Callable[[LakeProgress], None]


def ingest(
    spark: SparkSession,
    lake: Lake,
    addresses: Sequence[QueueAddress],
    batch_events: int = BATCH_EVENTS,
    on_progress: OnProgress = lambda progress: None,
) -> None:
    """Bring bronze, and nothing else, to the present end of the events of these queues."""
    with lake.exclusive(), in_utc(spark):
        prepare(lake)
        with started_queries(spark, lake, addresses, batch_events) as queries:
            await_queries(queries, on_progress)


@contextmanager
def started_queries(
    spark: SparkSession,
    lake: Lake,
    addresses: Sequence[QueueAddress],
    batch_events: int = BATCH_EVENTS,
    every_s: float | None = None,
) -> Iterator[list[StreamingQuery]]:
    """Start a query for each address; they end by themselves at the present, or poll again `every_s`."""
    queries: list[StreamingQuery] = []
    try:
        for address in addresses:
            queries.append(_start(spark, lake, address, batch_events, every_s))
        yield queries
    except PySparkException as error:
        raise LakeFailed(f"the lake {lake.path} was not brought up to date: {_cause(error)}") from error
    finally:
        for query in queries:
            query.stop()


def _start(
    spark: SparkSession, lake: Lake, address: QueueAddress, batch_events: int, every_s: float | None
) -> StreamingQuery:
    source, location = source_name(address), lake.table(BRONZE)
    table = location.create(BRONZE_SCHEMA)
    reached = bronze.reached_by(location, table, source)
    # what was trimmed before it was read is a row of its own
    options = {
        "maxOffsetsPerTrigger": str(batch_events),
        "failOnDataLoss": "false",
        "includePositions": "true",
    }
    if reached is not None:
        # bronze knows where to go on, so Spark's own checkpoint need not outlive the query
        with QueueClient(address, EventReadOptions.retry_s) as client:
            starting = dict.fromkeys(client.queues(), Position(BEGINNING, 0)) | reached.positions
        options["startingOffsets"] = json.dumps(offsets.to_json(starting))
    run, first = uuid4().hex, bronze.last_version(table, source) + 1
    events = spark.readStream.format("corral").options(**address.as_options(), **options).load()
    writer = events.writeStream.queryName(f"corral-lake-{source}-{run[:8]}")
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{every_s} seconds")
    return writer.foreachBatch(bronze.BronzeSink(lake, source, first, run)).start()


def read_jobs(spark: SparkSession, address: QueueAddress) -> DataFrame:
    """Return a snapshot of every job, in any state."""
    return spark.read.format("corral").options(**address.as_options(), table="jobs").load()


def await_queries(
    queries: Sequence[StreamingQuery],
    on_progress: OnProgress = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Return when the queries have ended, or when a stop is requested and their batches are done."""
    counts = [_QueryCounts() for _ in queries]
    on_progress(LakeProgress("reading events"))
    while True:
        have_ended = [query.awaitTermination(POLL_S / len(queries)) for query in queries]  # type: ignore[arg-type]
        changes = [count.update(query) for count, query in zip(counts, queries, strict=True)]
        if any(changes):
            read, behind = sum(count.read for count in counts), sum(count.behind for count in counts)
            on_progress(LakeProgress("reading events", read, behind))
        if all(have_ended):
            return
        if should_stop():
            for query in queries:
                _await_batch(query)
            return
        meanwhile()


@dataclass
class _QueryCounts:
    """Events that a query has read and has not read yet, by its progress."""

    read: int = 0
    behind: int = 0
    batch: int = -1

    def update(self, query: StreamingQuery) -> bool:
        """Add up new progress; return whether there was any."""
        new = [progress for progress in query.recentProgress if progress["batchId"] > self.batch]
        for progress in new:
            self.batch = progress["batchId"]
            # over Spark Connect only the sources have the number of rows
            self.read += sum(source["numInputRows"] or 0 for source in progress["sources"])
            self.behind = sum(lag_of(progress["sources"]).values())
        return bool(new)


def _await_batch(query: StreamingQuery) -> None:
    """Wait for the current batch: a query that is stopped within it would have to read it again."""
    deadline = time.monotonic() + FINISH_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(POLL_S / 4)


def prepare(lake: Lake) -> None:
    """Make the folder a lake; refuse one with other things in it."""
    if lake.exists:
        return
    with storage_errors(lake.path):
        found = lake.table("").filesystem().get_file_info(FileSelector("", recursive=False))
    others = [one.base_name for one in found if one.base_name not in TABLES and one.base_name[:1] not in "_."]
    if others:
        raise InvalidOptions(
            f"{lake.path} has other things in it ({', '.join(sorted(others)[:3])}) and is no lake; give an "
            f"empty one or a new name"
        )
    lake.table(BRONZE).create(BRONZE_SCHEMA)


def source_name(address: QueueAddress) -> str:
    """Return the name of a protocol and namespace, whose queues may come and go.

    >>> source_name(QueueAddress("redis://localhost", "bullmq", "bull", "mail"))
    'bullmq-535a5307'
    """
    key = json.dumps([address.protocol_name, address.namespace]).encode()
    return f"{address.protocol_name}-{sha256(key).hexdigest()[:8]}"


@contextmanager
def in_utc(spark: SparkSession) -> Iterator[None]:
    """Make days begin at midnight in UTC, whatever the session's time zone is."""
    before = spark.conf.get(TIME_ZONE)
    spark.conf.set(TIME_ZONE, "UTC")
    try:
        yield
    finally:
        spark.conf.set(TIME_ZONE, before or "UTC")


def _cause(error: PySparkException) -> str:
    """Return the line of a long message that says what went wrong: the last one of a Python error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("corral.")]
    causes = ours or [line for line in lines if _PYTHON_ERROR.match(line)]
    return causes[-1] if causes else lines[0] if lines else type(error).__name__
