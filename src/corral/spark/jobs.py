"""The table `jobs`: a snapshot of every job in any state, each exactly once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from corral.core.bulk import Census, Wanted
from corral.core.job import Job, JobState
from corral.core.pages import as_json
from corral.spark.client import Visit
from corral.spark.options import Where
from corral.spark.schema import JOBS, arrow_schema

USUAL_PARTITIONS = 2
READ_TOGETHER = 500


@dataclass
class JobPartition(InputPartition):
    """One share of one queue's jobs: those whose id, as a number, leaves `index` when divided by `of`."""

    queue: str
    index: int
    of: int

    def has(self, job_id: str) -> bool:
        return crc32(job_id.encode("utf-8", "surrogateescape")) % self.of == self.index


class JobReader(DataSourceReader):
    """Planned on the driver, read on executors: each walks over all records and reads its own share.

    The server promises that a walk meets whatever is there all the while, so a job that changes its state
    meanwhile is met; each share remembers whom it has met, so it is met once.
    """

    def __init__(self, where: Where, share_count: int, retry_s: float) -> None:
        self.where = where
        self.share_count = share_count
        self.retry_s = retry_s
        self.wanted = Wanted()
        # Spark refuses a reader with this method where filters are not pushed down, which is its default;
        # as an attribute it is there for a Spark that does, and no harm to one that does not
        self.pushFilters = _Push(self)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        with Visit(self.where, self.retry_s) as visit:
            return [
                JobPartition(queue, index, self.share_count)
                for queue in visit.queues()
                for index in range(self.share_count)
            ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, JobPartition):
            return iter(())  # Spark's own, where there was nothing to plan
        return read_share(self.where, self.retry_s, partition, self.wanted)


class _Push:
    """`pushFilters` of a reader, looking to Spark like the one that pushes nothing."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: JobReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        left = []
        for asked in filters:
            narrowed, is_exact = narrow(self._reader.wanted, asked)
            self._reader.wanted = narrowed
            if not is_exact:
                left.append(asked)
        return left


def narrow(wanted: Wanted, asked: Filter) -> tuple[Wanted, bool]:
    """What is wanted under one more filter, and whether Spark need not look again."""
    match asked:
        case EqualTo(("state",), str(value)):
            return _with_states(wanted, [value]), True
        case In(("state",), values):
            return _with_states(wanted, values), True
        case EqualTo(("name",), str(value)):
            return _with_names(wanted, [value]), True
        case In(("name",), values):
            return _with_names(wanted, values), True
        case GreaterThan() | GreaterThanOrEqual() if _is_about_time(asked):
            since = _milliseconds(asked.value)
            return msgspec.structs.replace(wanted, since=max(since, wanted.since or since)), False
        case LessThan() | LessThanOrEqual() if _is_about_time(asked):
            until = _milliseconds(asked.value)
            return msgspec.structs.replace(wanted, until=min(until, wanted.until or until)), False
    return wanted, False


def _is_about_time(asked: Any) -> bool:
    return asked.attribute == ("created_at",) and isinstance(asked.value, datetime)


def _with_states(wanted: Wanted, words: Iterable[Any]) -> Wanted:
    known = {str(state): state for state in JobState}
    states = frozenset(known[word] for word in words if word in known)
    return msgspec.structs.replace(wanted, states=states if wanted.states is None else wanted.states & states)


def _with_names(wanted: Wanted, words: Iterable[Any]) -> Wanted:
    names = frozenset(word for word in words if isinstance(word, str))
    return msgspec.structs.replace(wanted, names=names if wanted.names is None else wanted.names & names)


def _milliseconds(at: datetime) -> int:
    # a time without a zone is one of Spark's own, in UTC
    exact = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000
    return int(exact // 1)


# -- on executors -------------------------------------------------------------------------------------------


def read_share(where: Where, retry_s: float, share: JobPartition, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The jobs of one share as record batches."""
    with Visit(where, retry_s) as visit:
        census = visit.census(share.queue)
        for ids in _pages(visit, census, share):
            for start in range(0, len(ids), READ_TOGETHER):
                jobs = visit.ask(partial(census.read, ids[start : start + READ_TOGETHER], wanted))
                if jobs:
                    yield record_batch(jobs, where.protocol_name)


def _pages(visit: Visit, census: Census, share: JobPartition) -> Iterator[list[str]]:
    """Ids that were not met before, until all were."""
    met: set[str] = set()
    cursor, gathered = "0", []
    while True:
        ids, cursor = visit.ask(partial(census.ids, cursor))
        fresh = [job_id for job_id in dict.fromkeys(ids) if job_id not in met and share.has(job_id)]
        met.update(fresh)
        gathered += fresh
        # a page of a crowded server may hold few of ours: they are read together
        if len(gathered) >= READ_TOGETHER or cursor == "0":
            yield gathered
            gathered = []
        if cursor == "0":
            return


_SCHEMA = arrow_schema(JOBS)
_TIMES = ("created_at", "started_at", "finished_at")


def record_batch(jobs: Sequence[Job], protocol: str) -> pa.RecordBatch:
    """Jobs as Spark takes them."""
    columns: dict[str, Callable[[Job], Any]] = {
        "protocol": lambda job: protocol,
        "queue": lambda job: _clean(job.queue),
        "job_id": lambda job: _clean(job.id),
        "name": lambda job: _clean(job.name),
        "state": lambda job: None if job.state is None else str(job.state),
        "attempts_made": lambda job: job.attempts_made,
        "starts": lambda job: job.starts,
        "stalls": lambda job: job.stalls,
        "priority": lambda job: job.options.priority,
        "delay": lambda job: job.options.delay,
        "created_at": lambda job: job.created_at * 1000,
        "started_at": lambda job: None if job.started_at is None else job.started_at * 1000,
        "finished_at": lambda job: None if job.finished_at is None else job.finished_at * 1000,
        "worker": lambda job: None if job.worker is None else _clean(job.worker),
        "reason": lambda job: None if job.reason is None else _clean(job.reason),
        "data": lambda job: None if job.data is None else as_json(job.data).decode(),
        "result": lambda job: None if job.result is None else as_json(job.result).decode(),
        "progress": lambda job: None if job.progress is None else as_json(job.progress).decode(),
        "options": lambda job: as_json(msgspec.to_builtins(job.options)).decode(),
    }
    arrays = []
    for field in _SCHEMA:
        values = pa.array([columns[field.name](job) for job in jobs], _plain(field))
        arrays.append(values.cast(field.type) if field.name in _TIMES else values)
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _plain(field: Any) -> Any:
    return pa.int64() if field.name in _TIMES else field.type


def _clean(text: str) -> str:
    # a stranger's bytes that are no UTF-8
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
