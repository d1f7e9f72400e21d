"""Writers: each row of a DataFrame becomes one job, however often Spark repeats a task or a batch."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql import datasource

from corral.core.job import Job, JobState
from corral.core.ports import Added, Ledger
from corral.errors import Refused, short_repr
from corral.spark.client import QueueClient
from corral.spark.options import QueueAddress, WriteOptions
from corral.spark.rows import RowConverter

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties in which a task finds its query and batch."""
STREAM_LEDGER_S = 7 * 86_400
"""An interrupted batch is repeated when its query starts again, which may be days later."""
POLL_S = 0.25
LOG_EVERY_S = 30.0

log = logging.getLogger("corral.spark")


@dataclass
class WriteResult(datasource.WriterCommitMessage):
    """What one task has written; sent from its executor to the driver."""

    query: str
    submitted: int
    known: int
    rejected: int


@dataclass
class _RowWriter:
    """The target of both writers; wrong options are refused on the driver, before the first task."""

    address: QueueAddress
    options: WriteOptions
    columns: list[str]

    def __post_init__(self) -> None:
        RowConverter(self.address, self.options, self.columns)
        self.write_id = self.options.write_id or f"write-{uuid4().hex}"


class JobWriter(_RowWriter, datasource.DataSourceArrowWriter):
    """Batch writer. Made on the driver; `write` runs on executors, `commit` on the driver."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        query, batch = _query_and_batch()
        # inside foreachBatch a batch write is repeated with its batch, so its ledger is that of the batch
        name = f"{query}/{batch}" if query and self.options.write_id is None else f"{self.write_id}/0"
        ledger = Ledger(name, self.options.ledger_s)
        return submit_rows(self.address, self.options, self.columns, ledger, iterator)

    def commit(self, messages: Sequence[datasource.WriterCommitMessage | None]) -> None:
        _log_results(self.address, messages)


class JobStreamWriter(_RowWriter, datasource.DataSourceStreamArrowWriter):
    """Streaming writer: each micro-batch has a ledger, which is dropped when the next batch is done.

    Made on the driver; `write` runs on executors, `commit` on the driver.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        query, batch = _query_and_batch()
        ledger = Ledger(f"{query}/{batch}", max(self.options.ledger_s, STREAM_LEDGER_S))
        return submit_rows(self.address, self.options, self.columns, ledger, iterator)

    def commit(self, messages: Sequence[datasource.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        queries = {result.query for result in _log_results(self.address, messages)}
        # Spark records that a batch is done only after this, and may die in between: the ledger of this batch
        # stays until the next one is done
        with QueueClient(self.address, self.options.retry_s) as client:
            broker = client.ports(self.address.queue).broker
            for query in queries:
                client.call(partial(broker.drop_ledger, Ledger(f"{query}/{batchId - 1}", 0)))


def _query_and_batch() -> tuple[str, str]:
    """Return (query id, batch id) of the micro-batch of this task; empty where there is none."""
    context = TaskContext.get()
    if context is None:
        return "", ""
    return context.getLocalProperty(QUERY) or "", context.getLocalProperty(BATCH) or ""


def _log_results(
    address: QueueAddress, messages: Sequence[datasource.WriterCommitMessage | None]
) -> list[WriteResult]:
    results = [message for message in messages if isinstance(message, WriteResult)]
    rejected = sum(result.rejected for result in results)
    log.log(
        logging.WARNING if rejected else logging.INFO,
        "queue %r: %d jobs submitted, %d known already, %d rows rejected",
        address.queue,
        sum(result.submitted for result in results),
        sum(result.known for result in results),
        rejected,
    )
    return results


# -- on executors -------------------------------------------------------------------------------------------


class DeadRows(AbstractContextManager["DeadRows"]):
    """One task's file of rejected rows, a JSON object per line; a repeated task writes the same file."""

    def __init__(self, folder: str, write: str, partition: int) -> None:
        if "://" in folder or folder.startswith("file:"):
            self._filesystem, path = fs.FileSystem.from_uri(folder)
        else:
            self._filesystem, path = fs.LocalFileSystem(), folder
        self._folder = f"{path.rstrip('/')}/{write}"
        self._path = f"{self._folder}/part-{partition:05d}.json"
        self._file: Any = None

    def add(self, row: Mapping[str, Any], error: Exception, now: int) -> None:
        """Write a row and why it was rejected."""
        if self._file is None:
            self._filesystem.create_dir(self._folder, recursive=True)
            self._file = self._filesystem.open_output_stream(self._path)
        line = {"reason": str(error), "error": type(error).__name__, "at": now, "row": row}
        self._file.write(orjson.dumps(line, default=repr, option=orjson.OPT_NON_STR_KEYS) + b"\n")

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()


def submit_rows(
    address: QueueAddress,
    options: WriteOptions,
    columns: list[str],
    ledger: Ledger,
    batches: Iterator[pa.RecordBatch],
) -> WriteResult:
    """Submit the rows of one task; rejected ones go to the dead rows, or stop the task."""
    converter = RowConverter(address, options, columns)
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    dead_rows = DeadRows(options.dead_rows, ledger.name, partition) if options.dead_rows else nullcontext()
    submitted = sent = rejected = 0
    with QueueClient(address, options.retry_s) as client, dead_rows as dead:
        for rows in _chunks(batches, options.batch_rows):
            if options.max_pending is not None:
                wait_for_capacity(client, address.queue, options.max_pending)
            jobs, errors = _convert(converter, rows, client.now())
            if dead is None:
                _raise_first(rows, errors)
            sent += len(rows)
            submitted += _submit(client, address.queue, ledger, jobs, errors, is_strict=dead is None)
            rejected += len(errors)
            for index, error in sorted(errors.items()):
                assert dead is not None
                dead.add(rows[index], error, client.now())
    return WriteResult(ledger.name.partition("/")[0], submitted, sent - submitted - rejected, rejected)


def _chunks(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[list[dict[str, Any]]]:
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size).to_pylist()


def _convert(
    converter: RowConverter, rows: list[dict[str, Any]], now: int
) -> tuple[dict[int, Job], dict[int, Refused]]:
    """Return jobs and errors by the index of their rows."""
    jobs: dict[int, Job] = {}
    errors: dict[int, Refused] = {}
    for index, row in enumerate(rows):
        try:
            jobs[index] = converter.job(row, now)
        except Refused as error:
            errors[index] = error
    return jobs, errors


def _submit(
    client: QueueClient,
    queue: str,
    ledger: Ledger,
    jobs: dict[int, Job],
    errors: dict[int, Refused],
    is_strict: bool,
) -> int:
    """Submit jobs; return how many are new. Refused ones go to `errors`, unless it is strict."""
    if not jobs:
        return 0
    submit = client.ports(queue).broker.submit
    answers = client.call(partial(submit, list(jobs.values()), ledger, together=is_strict))
    errors |= {
        index: answer for index, answer in zip(jobs, answers, strict=True) if isinstance(answer, Refused)
    }
    return sum(isinstance(answer, Added) and not answer.existed for answer in answers)


def _raise_first(rows: list[dict[str, Any]], errors: dict[int, Refused]) -> None:
    for index, error in sorted(errors.items()):
        raise type(error)(
            f"{error} (row {short_repr(rows[index])}); give option 'deadRows' a folder, and such rows go "
            f"there while the others become jobs"
        ) from None


def wait_for_capacity(client: QueueClient, queue: str, max_pending: int) -> None:
    """Return as soon as fewer than `max_pending` jobs wait in the queue."""
    inspector, logged_at = client.ports(queue).inspector, time.monotonic()
    while True:
        counts = client.call(inspector.counts)
        pending = counts.get(JobState.WAITING, 0) + counts.get(JobState.DELAYED, 0)
        if pending < max_pending:
            return
        if time.monotonic() - logged_at > LOG_EVERY_S:
            log.info("queue %r has %d jobs waiting, maxPending is %d: waiting", queue, pending, max_pending)
            logged_at = time.monotonic()
        time.sleep(POLL_S)
