"""Reader of the table `jobs`: a snapshot of every job in any state, each exactly once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa
from pyspark.sql import datasource

from corral.core.event import as_json
from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.ports import Snapshot
from corral.spark.client import QueueClient
from corral.spark.options import JobReadOptions, QueueAddress
from corral.spark.schema import JOBS, arrow_schema, valid_text

READ_JOBS = 500
"""Jobs read in one call."""


@dataclass
class JobPartition(datasource.InputPartition):
    """One share of one queue's jobs: those whose id's checksum modulo `count` is `index`."""

    queue: str
    index: int
    count: int

    def has(self, job_id: str) -> bool:
        return crc32(job_id.encode("utf-8", "surrogateescape")) % self.count == self.index


class JobReader(datasource.DataSourceReader):
    """Batch reader of jobs. `pushFilters` and `partitions` run on the driver, `read` on executors.

    Each task scans all ids of its queue and reads its own share. A Redis scan returns every element that
    exists throughout it, so a job that changes its state meanwhile is found; a task remembers the ids it has
    seen, so it is found once.
    """

    def __init__(self, address: QueueAddress, options: JobReadOptions) -> None:
        self.address = address
        self.options = options
        self.filter = JobFilter()
        # Spark refuses a reader with this method where filters are not pushed down, which is its default;
        # as an attribute it serves a Spark that does, and the others do not see it
        self.pushFilters = _FilterPushdown(self)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[datasource.InputPartition]:
        count = self.options.partitions
        with QueueClient(self.address, self.options.retry_s) as client:
            return [JobPartition(queue, index, count) for queue in client.queues() for index in range(count)]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        if not isinstance(partition, JobPartition):
            return iter(())  # Spark's own partition, where there was nothing to plan
        return read_partition(self.address, self.options, partition, self.filter)


class _FilterPushdown:
    """`pushFilters` of a reader; `__func__` makes Spark take it for the inherited one."""

    __func__ = staticmethod(datasource.DataSourceReader.pushFilters)

    def __init__(self, reader: JobReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        remaining = []
        for one in filters:
            self._reader.filter, is_exact = narrow(self._reader.filter, one)
            if not is_exact:
                remaining.append(one)
        return remaining


def narrow(jobs: JobFilter, condition: datasource.Filter) -> tuple[JobFilter, bool]:
    """Return the filter under one more condition, and whether Spark need not apply the condition again."""
    match condition:
        case datasource.EqualTo(("state",), str(value)):
            return _with_states(jobs, [value]), True
        case datasource.In(("state",), values):
            return _with_states(jobs, values), True
        case datasource.EqualTo(("name",), str(value)):
            return _with_names(jobs, [value]), True
        case datasource.In(("name",), values):
            return _with_names(jobs, values), True
        case datasource.GreaterThan(("created_at",), datetime() as at) | datasource.GreaterThanOrEqual(
            ("created_at",), datetime() as at
        ):
            since = _milliseconds(at)
            return msgspec.structs.replace(jobs, since=max(since, jobs.since or since)), False
        case datasource.LessThan(("created_at",), datetime() as at) | datasource.LessThanOrEqual(
            ("created_at",), datetime() as at
        ):
            until = _milliseconds(at)
            return msgspec.structs.replace(jobs, until=min(until, jobs.until or until)), False
    return jobs, False


def _with_states(jobs: JobFilter, values: Iterable[Any]) -> JobFilter:
    states = frozenset(state for state in JobState if str(state) in values)
    return msgspec.structs.replace(jobs, states=states if jobs.states is None else jobs.states & states)


def _with_names(jobs: JobFilter, values: Iterable[Any]) -> JobFilter:
    names = frozenset(value for value in values if isinstance(value, str))
    return msgspec.structs.replace(jobs, names=names if jobs.names is None else jobs.names & names)


def _milliseconds(at: datetime) -> int:
    # a time without a zone comes from Spark, in UTC
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000 // 1)


# -- on executors -------------------------------------------------------------------------------------------


def read_partition(
    address: QueueAddress, options: JobReadOptions, partition: JobPartition, jobs: JobFilter
) -> Iterator[pa.RecordBatch]:
    """Yield the jobs of one partition as record batches."""
    with QueueClient(address, options.retry_s) as client:
        snapshot = client.ports(partition.queue).snapshot
        for ids in _pages(client, snapshot, partition):
            for start in range(0, len(ids), READ_JOBS):
                page = client.call(partial(snapshot.read, ids[start : start + READ_JOBS], jobs))
                if page:
                    yield record_batch(page, address.protocol_name)


def _pages(client: QueueClient, snapshot: Snapshot, partition: JobPartition) -> Iterator[list[str]]:
    """Yield the ids of the partition, each once, until the scan is complete."""
    seen: set[str] = set()
    cursor, page = "0", []
    while True:
        ids, cursor = client.call(partial(snapshot.ids, cursor))
        new = [job_id for job_id in dict.fromkeys(ids) if job_id not in seen and partition.has(job_id)]
        seen.update(new)
        page += new
        # a page of a server with many other keys may have few ids: they are gathered
        if len(page) >= READ_JOBS or cursor == "0":
            yield page
            page = []
        if cursor == "0":
            return


_SCHEMA = arrow_schema(JOBS)


def record_batch(jobs: Sequence[Job], protocol: str) -> pa.RecordBatch:
    """Return jobs as a record batch of the table `jobs`."""
    columns = zip(*(_row(job, protocol) for job in jobs), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _row(job: Job, protocol: str) -> tuple[Any, ...]:
    """A job's values, in the order of the columns."""
    return (
        protocol, valid_text(job.queue), valid_text(job.id), valid_text(job.name),
        None if job.state is None else str(job.state), job.attempts_made, job.starts, job.stalls,
        job.options.priority, job.options.delay,
        *[None if at is None else at * 1000 for at in (job.created_at, job.started_at, job.finished_at)],
        valid_text(job.worker), valid_text(job.reason),
        _json(job.data), _json(job.result), _json(job.progress), _json(msgspec.to_builtins(job.options)),
    )  # fmt: skip


def _json(value: Any) -> str | None:
    return None if value is None else as_json(value).decode()
