"""Reader of the table `jobs`: a snapshot of every job in any state, each exactly once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa
from pyspark.sql import datasource

from corral.core.event import as_json
from corral.core.filter import JobFilter
from corral.core.job import Job
from corral.core.ports import Snapshot
from corral.spark.client import QueueClient
from corral.spark.filters import FilterPushdown, narrow_jobs
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
        self.pushFilters = FilterPushdown(self._narrow)  # type: ignore[method-assign]

    def _narrow(self, condition: datasource.Filter) -> bool:
        self.filter, is_exact = narrow_jobs(self.filter, condition)
        return is_exact

    def partitions(self) -> Sequence[datasource.InputPartition]:
        count = self.options.partitions
        with QueueClient(self.address, self.options.retry_s) as client:
            return [JobPartition(queue, index, count) for queue in client.queues() for index in range(count)]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        if not isinstance(partition, JobPartition):
            return iter(())  # Spark's own partition, where there was nothing to plan
        return read_partition(self.address, self.options, partition, self.filter)


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
