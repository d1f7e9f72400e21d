"""DataFrames as jobs: each row is submitted once, whatever Spark repeats."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import orjson
import pyarrow as pa
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from corral.core.bulk import Ledger
from corral.core.job import Job, JobState
from corral.errors import Refused, short_repr
from corral.spark.client import Visit
from corral.spark.options import Where, Writing
from corral.spark.rows import RowReader
from corral.worker.worker import wall_clock

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Under these names Spark tells a task which query and batch it works for."""
STREAM_LEDGER_S = 7 * 86_400
"""A batch that was broken off is repeated when its query starts again, which may be days later."""
POLL_S = 0.25
SAY_EVERY_S = 30.0

log = logging.getLogger("corral.spark")


@dataclass
class Written(WriterCommitMessage):
    """What one task did."""

    query: str
    submitted: int
    known: int
    rejected: int


class JobWriter(DataSourceArrowWriter):
    """A batch write. Made on the driver, `write` runs on executors, `commit` on the driver."""

    def __init__(self, where: Where, writing: Writing, columns: list[str]) -> None:
        RowReader(where, writing, columns)
        self.where = where
        self.writing = writing
        self.columns = columns
        self.write_id = writing.write_id or f"write-{uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = _task_of_a_query()
        # inside foreachBatch a batch write is repeated with its batch, so it goes by that
        name = f"{query}/{batch}" if query and self.writing.write_id is None else f"{self.write_id}/0"
        ledger = Ledger(name, self.writing.ledger_s)
        return submit_rows(self.where, self.writing, self.columns, ledger, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _tell(self.where, messages)


class JobStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: each micro-batch has a ledger, which goes when the batch after it is done."""

    def __init__(self, where: Where, writing: Writing, columns: list[str]) -> None:
        RowReader(where, writing, columns)
        self.where = where
        self.writing = writing
        self.columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = _task_of_a_query()
        ledger = Ledger(f"{query}/{batch}", max(self.writing.ledger_s, STREAM_LEDGER_S))
        return submit_rows(self.where, self.writing, self.columns, ledger, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _tell(self.where, messages)
        queries = {message.query for message in messages if isinstance(message, Written)}
        # Spark notes that a batch is done only after this, and may die in between: the ledger of this batch
        # stays until the next one is done
        with Visit(self.where, self.writing.retry_s) as visit:
            intake = visit.intake(self.where.queue)
            for query in queries:
                visit.ask(partial(intake.forget, Ledger(f"{query}/{batchId - 1}", 0)))


def _task_of_a_query() -> tuple[str, str]:
    """(query id, batch id) of the micro-batch this task is part of; empty where there is none."""
    context = TaskContext.get()
    if context is None:
        return "", ""
    return context.getLocalProperty(QUERY) or "", context.getLocalProperty(BATCH) or ""


def _tell(where: Where, messages: Sequence[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    submitted, known, rejected = (
        sum(getattr(message, what) for message in done) for what in ("submitted", "known", "rejected")
    )
    say = log.warning if rejected else log.info
    say(
        "queue %r: %d jobs submitted, %d known already, %d rows rejected",
        where.queue, submitted, known, rejected,
    )  # fmt: skip


# -- on executors -------------------------------------------------------------------------------------------


def submit_rows(
    where: Where, writing: Writing, columns: list[str], ledger: Ledger, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Submit the rows of one task; what was refused goes to the dead rows, or stops the task."""
    reader = RowReader(where, writing, columns)
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    submitted = sent = rejected = 0
    with Visit(where, writing.retry_s) as visit:
        dead = DeadRows(writing.dead_rows, ledger.name, partition) if writing.dead_rows else None
        submit = partial(_submit, visit, where.queue, ledger)
        try:
            for rows in _chunks(batches, writing.batch_rows):
                if writing.max_pending is not None:
                    wait_for_protocol(visit, where.queue, writing.max_pending)
                made, refused = _made(reader, rows)
                if dead is None:
                    _stop_at_first(rows, refused)
                sent += len(rows)
                submitted += _submit_all(submit, made, refused, is_strict=dead is None)
                rejected += len(refused)
                for place, error in sorted(refused.items()):
                    assert dead is not None
                    dead.add(rows[place], error, wall_clock())
        finally:
            if dead is not None:
                dead.__exit__(None, None, None)
    return Written(ledger.name.partition("/")[0], submitted, sent - submitted - rejected, rejected)


def _chunks(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[list[dict[str, Any]]]:
    for batch in batches:
        for start in range(0, batch.num_rows, most):
            yield batch.slice(start, most).to_pylist()


def _made(reader: RowReader, rows: list[dict[str, Any]]) -> tuple[dict[int, Job], dict[int, Refused]]:
    """Jobs and refusals by the place of their rows."""
    made: dict[int, Job] = {}
    refused: dict[int, Refused] = {}
    now = wall_clock()
    for place, row in enumerate(rows):
        try:
            made[place] = reader.job(row, now)
        except Refused as error:
            refused[place] = error
    return made, refused


def _submit_all(
    submit: Callable[[Sequence[Job]], int],
    made: dict[int, Job],
    refused: dict[int, Refused],
    is_strict: bool,
) -> int:
    """Submit jobs; those the protocol refuses move to `refused`, and the others go without them."""
    while made:
        places = list(made)
        try:
            return submit([made[place] for place in places])
        except Refused as error:
            if error.position is None or is_strict:
                raise
            place = places[error.position]
            refused[place] = error
            del made[place]
    return 0


def _submit(visit: Visit, queue: str, ledger: Ledger, jobs: Sequence[Job]) -> int:
    return visit.ask(partial(visit.intake(queue).submit_once, jobs, ledger))


def _stop_at_first(rows: list[dict[str, Any]], refused: dict[int, Refused]) -> None:
    for place, error in sorted(refused.items()):
        raise type(error)(
            f"{error} (row {short_repr(rows[place])}); give option 'deadRows' a folder, and such rows go "
            f"there while the others become jobs"
        ) from None


def wait_for_protocol(visit: Visit, queue: str, most: int) -> None:
    """Return when fewer than `most` jobs wait in the queue, now or later."""
    inspector, said_at = visit.inspector(queue), time.monotonic()
    while True:
        counts = visit.ask(inspector.counts)
        pending = counts.get(JobState.WAITING, 0) + counts.get(JobState.DELAYED, 0)
        if pending < most:
            return
        if time.monotonic() - said_at > SAY_EVERY_S:
            log.info("queue %r has %d jobs waiting, and maxPending is %d: waiting too", queue, pending, most)
            said_at = time.monotonic()
        time.sleep(POLL_S)


class DeadRows:
    """One task's file of refused rows, JSON, one a line; a task that runs again writes the same file."""

    def __init__(self, folder: str, write: str, partition: int) -> None:
        self._system, path = filesystem(folder)
        self._folder = f"{path.rstrip('/')}/{write}"
        self._path = f"{self._folder}/part-{partition:05d}.json"
        self._file: Any = None
        self.count = 0

    def add(self, row: Mapping[str, Any], error: Exception, now: int) -> None:
        """Keep a row and why it was refused."""
        if self._file is None:
            self._system.create_dir(self._folder, recursive=True)
            self._file = self._system.open_output_stream(self._path)
        told = {"reason": str(error), "error": type(error).__name__, "at": now, "row": row}
        self._file.write(orjson.dumps(told, default=repr, option=orjson.OPT_NON_STR_KEYS) + b"\n")
        self.count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def filesystem(folder: str) -> tuple[Any, str]:
    """(file system, path in it) of a path on this machine or an address such as s3://bucket/folder."""
    if "://" in folder or folder.startswith("file:"):
        system, path = fs.FileSystem.from_uri(folder)
        return system, path
    return fs.LocalFileSystem(), folder
