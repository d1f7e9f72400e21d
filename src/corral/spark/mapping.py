"""`map_in_corral`: the rows of a DataFrame as jobs, and their results as a DataFrame."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from corral.app import GRACE_S, Corral
from corral.core.event import as_json
from corral.core.job import Job
from corral.core.options import Capability, seconds
from corral.core.ports import JobEnd, Ledger, NotEnded
from corral.errors import InvalidOptions, RedisError, RedisResponseError, Refused, ResultGone, short_repr
from corral.job_type import JobType, job_type_of
from corral.spark.rows import derived_id
from corral.spark.schema import valid_text
from corral.spark.tasks import PADDING, TICK_S, WorkerLoop, WorkerOrder, padding, worker_loop
from corral.spark.working import prepared
from corral.store.client import Reconnect
from corral.worker import ANY_NAME, DEFAULT_CONCURRENCY
from corral.worker_options import ProfileOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

RESULTS = pa.schema(
    [
        ("job_id", pa.string()),
        ("state", pa.string()),
        ("attempts", pa.int32()),
        ("result", pa.string()),
        ("reason", pa.string()),
    ]
)
"""The columns beside those of the rows; `result` is JSON."""
REFUSED = "refused"
"""The state of a row that could not become a job."""
CHUNK_ROWS = 1000
MOST_CHUNKS = 4
"""How many chunks of a task's rows are under way at a time."""
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.02, 0.5
RETRY_S = 60.0
"""How long a call is retried while no server answers."""
RESULTS_KEPT = timedelta(days=1)

_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


def map_in_corral(
    rows: "DataFrame",
    app: str,
    job: str,
    *,
    run_id: str | None = None,
    queue: str | None = None,
    protocol: str | None = None,
    id_column: str | None = None,
    value_column: str | None = None,
    keep: timedelta = RESULTS_KEPT,
    concurrency: int = DEFAULT_CONCURRENCY,
    grace: float | timedelta = GRACE_S,
    name: str | None = None,
    url: str | None = None,
    log_level: str = "warning",
    **options: Unpack[ProfileOptions],
) -> "DataFrame":
    """Return the rows with what became of their jobs: `job_id`, `state`, `attempts`, `result`, `reason`.

    Each row is a job of the handler `job`, with its columns as data, or the value of one column alone. Each
    task submits its rows, works, and returns them when their jobs have ended. As any DataFrame this one is
    computed when it is used; with the same `run_id` no row becomes a job again, and results are read back.

    >>> map_in_corral(texts, "shop:app", "embed", run_id="2025-01-31", value_column="text")  # doctest: +SKIP
    """
    corral, order = prepared(
        rows.sparkSession,
        app,
        url,
        queues=None if queue is None else [queue],
        protocol=protocol,
        concurrency=concurrency,
        grace=seconds(grace),
        name=name,
        log_level=log_level,
        options=dict(options),
    )
    job_type = _checked_type(corral, app, job, queue, protocol)
    task = MapTask(
        order=_only_queue(order, job_type, concurrency),
        job=job_type.name,
        run_id=f"map-{uuid4().hex}" if run_id is None else _checked_run_id(run_id),
        id_column=_checked_column(rows, "id_column", id_column),
        value_column=_checked_column(rows, "value_column", value_column),
        ledger_s=int(keep.total_seconds()),
    )
    task.job_options(job_type)
    taken = [name for name in (*RESULTS.names, PADDING) if name in rows.columns]
    if taken:
        raise InvalidOptions(f"the rows have a column {taken[0]!r}, as the results do; rename it")
    return rows.mapInArrow(task.run, _with_results(rows)).where(f"{PADDING} IS NULL").drop(PADDING)


def _with_results(rows: "DataFrame") -> StructType:
    """Return the columns of the rows, which a row of padding has as nulls, and those of the results."""
    columns = StructType()
    for column in rows.schema:
        columns.add(column.name, column.dataType)
    for result in RESULTS:
        columns.add(result.name, IntegerType() if result.name == "attempts" else StringType())
    return columns.add(PADDING, BinaryType())


def _checked_type(
    corral: Corral, app: str, job: str, queue: str | None, protocol: str | None
) -> JobType[..., Any]:
    job_type = job_type_of(corral.job_types, job, queue, protocol)
    if job_type is None or job == ANY_NAME:
        names = sorted({name for _, _, name in corral.job_types if name != ANY_NAME})
        raise InvalidOptions(f"{app} has no handler {job!r}; it has {', '.join(names) or 'none'}")
    spec = job_type.queue.protocol.spec
    if Capability.CUSTOM_ID not in spec.capabilities:
        raise InvalidOptions(
            f"the protocol {spec.name!r} gives out job ids itself, so rows could not be known again"
        )
    return job_type


def _only_queue(order: WorkerOrder, job_type: JobType[..., Any], concurrency: int) -> WorkerOrder:
    queue = job_type.queue
    slots = {queue.name: order.queues.get(queue.name, concurrency)}
    return replace(order, queues=slots, protocol=queue.protocol.spec.name)


def _checked_run_id(run_id: str) -> str:
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise InvalidOptions(f"run_id={run_id!r}: use up to 200 letters, digits, '-', '_' and '.'")
    return run_id


def _checked_column(rows: "DataFrame", option: str, column: str | None) -> str | None:
    if column is not None and column not in rows.columns:
        raise InvalidOptions(
            f"{option} is {short_repr(column)}, which is no column; there are {', '.join(rows.columns)}"
        )
    return column


# -- on executors -------------------------------------------------------------------------------------------


@dataclass
class _Chunk:
    """Some rows of a task, and what is known of their jobs."""

    rows: pa.RecordBatch
    ids: list[str | None]
    """None: the row could not become a job."""
    refused: dict[int, Refused]
    """By the index of the row."""
    pending: set[str] = field(default_factory=set)
    ends: dict[str, JobEnd] = field(default_factory=dict)

    @property
    def output(self) -> pa.Schema:
        """The columns of its rows, as Spark sent them, and those of their results; all may be null."""
        columns = [column.with_nullable(True) for column in self.rows.schema]
        return pa.schema([*columns, *RESULTS, pa.field(PADDING, pa.binary())])


@dataclass(frozen=True)
class MapTask:
    """Submits rows as jobs, works, and returns their results; made on the driver, run on executors."""

    order: WorkerOrder
    job: str
    run_id: str
    id_column: str | None
    value_column: str | None
    ledger_s: int

    def job_options(self, job_type: JobType[..., Any]) -> dict[str, Any]:
        """Return the options of the jobs: those of the handler; and they are kept until they are read."""
        capabilities = job_type.queue.protocol.spec.capabilities
        options = dict(job_type.defaults)
        if Capability.REMOVAL in capabilities:
            options |= {"remove_on_complete": False, "remove_on_fail": False}
        if Capability.TTL in capabilities:
            options.setdefault("ttl_s", self.ledger_s)
        job_type.queue.options(options)
        return options

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with their results, in order: a function for `DataFrame.mapInArrow`."""
        chunks = _chunks(batches)
        under_way: deque[_Chunk] = deque()
        filler, pause, flushed_at = padding(), SHORTEST_LOOK_S, monotonic()
        with worker_loop(self.order) as loop:
            jobs = _RowJobs(self, loop.app)
            is_last = False
            while True:
                while not is_last and len(under_way) < MOST_CHUNKS:
                    # Spark may take long to bring more rows: the worker goes on meanwhile
                    rows = loop.run(asyncio.to_thread(next, chunks, None))
                    is_last = rows is None
                    if rows is not None:
                        under_way.append(loop.run(jobs.submit(rows)))
                        loop.run(jobs.look(under_way[-1]))
                if not under_way:
                    return
                ended = self._take_ended(under_way)
                yield from ended
                if ended:
                    pause = SHORTEST_LOOK_S
                    continue
                before = len(under_way[0].pending)
                self._work(loop, pause)
                loop.run(jobs.look(under_way[0]))
                has_progress = len(under_way[0].pending) < before
                pause = SHORTEST_LOOK_S if has_progress else min(pause * 2, LONGEST_LOOK_S)
                if monotonic() - flushed_at > TICK_S:
                    flushed_at = monotonic()
                    yield _filled(under_way[0].output, filler)

    def _work(self, loop: WorkerLoop, seconds: float) -> None:
        if not loop.has_started:
            loop.start()
        if not loop.run_for(seconds):
            raise InterruptedError("the worker was stopped by a signal before all rows of its task had ended")
        loop.outcomes.clear()

    def _take_ended(self, under_way: deque[_Chunk]) -> list[pa.RecordBatch]:
        ended = []
        while under_way and not under_way[0].pending:
            ended.append(self._results(under_way.popleft()))
        return ended

    def _results(self, chunk: _Chunk) -> pa.RecordBatch:
        columns = zip(
            *(self._result(chunk, index, job_id) for index, job_id in enumerate(chunk.ids)), strict=True
        )
        results = [pa.array(column, one.type) for column, one in zip(columns, RESULTS, strict=True)]
        unpadded = pa.nulls(chunk.rows.num_rows, pa.binary())
        return pa.RecordBatch.from_arrays([*chunk.rows.columns, *results, unpadded], schema=chunk.output)

    def _result(self, chunk: _Chunk, index: int, job_id: str | None) -> tuple[Any, ...]:
        if job_id is None or index in chunk.refused:
            return job_id, REFUSED, 0, None, valid_text(str(chunk.refused[index]))
        end = chunk.ends[job_id]
        result = None if end.result is None else as_json(end.result).decode()
        return job_id, str(end.state), end.attempts_made, result, valid_text(end.reason)


def _filled(output: pa.Schema, filler: bytes) -> pa.RecordBatch:
    """Return a row that goes through the buffer at once, and is filtered out."""
    columns = [pa.nulls(1, one.type) for one in output]
    columns[-1] = pa.array([filler], pa.binary())
    return pa.RecordBatch.from_arrays(columns, schema=output)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            yield batch.slice(start, CHUNK_ROWS)


class _RowJobs:
    """The jobs of a task's rows: submitted once, and read when they have ended."""

    def __init__(self, task: MapTask, app: Corral) -> None:
        [queue] = task.order.queues
        job_type = job_type_of(app.job_types, task.job, queue, task.order.protocol)
        assert job_type is not None
        self._task = task
        self._app = app
        self._check = job_type.signature.check
        self._ports = job_type.queue.ports
        self._new_job = job_type.queue.new_job
        self._name = job_type.name
        self._options = task.job_options(job_type)
        self._ledger = Ledger(task.run_id, task.ledger_s)

    async def submit(self, rows: pa.RecordBatch) -> _Chunk:
        """Submit the jobs of these rows, but for those that the run knows already."""
        await self._app.check_clock()
        chunk = _Chunk(rows, [], {})
        jobs: dict[int, Job] = {}
        for index, row in enumerate(rows.to_pylist()):
            job_id = None
            try:
                job_id = self._id(row)
                jobs[index] = self._job(row, job_id)
            except Refused as error:
                chunk.refused[index] = error
            chunk.ids.append(job_id)
        submit = self._ports.broker.submit
        answers = await _retried(lambda: submit(list(jobs.values()), self._ledger, together=False))
        for index, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Refused):
                chunk.refused[index] = answer
            else:
                chunk.pending.add(answer.id)
        return chunk

    def _id(self, row: Mapping[str, Any]) -> str:
        """Return the id of a row's job: the same in the same run, and a UUID, as every protocol takes it."""
        column = self._task.id_column
        if column is not None and row[column] is None:
            raise InvalidOptions(f"id_column {column!r} is null in this row; give each row an id")
        return derived_id({"run": self._task.run_id, "row": row if column is None else row[column]})

    def _job(self, row: Mapping[str, Any], job_id: str) -> Job:
        column = self._task.value_column
        data = row if column is None else row[column]
        self._check(data)
        return self._new_job(self._name, data, {**self._options, "id": job_id})

    async def look(self, chunk: _Chunk) -> None:
        """Take note of the jobs that have ended since."""
        ids = list(chunk.pending)
        if not ids:
            return
        ends = await _retried(lambda: self._ports.inspector.ends(ids))
        missing = [job_id for job_id, end in zip(ids, ends, strict=True) if end is NotEnded.MISSING]
        found = {job_id: end for job_id, end in zip(ids, ends, strict=True) if isinstance(end, JobEnd)}
        if missing:
            found |= await self._removed(missing)
        chunk.ends |= found
        chunk.pending -= found.keys()

    async def _removed(self, ids: Sequence[str]) -> dict[str, JobEnd]:
        """Return how jobs ended that do not exist any more."""
        ends = await _retried(lambda: self._ports.events.ends_of(frozenset(ids), "0-0"))
        gone = [job_id for job_id in ids if job_id not in ends]
        if gone:
            raise ResultGone(
                f"job {gone[0]} of the run {self._task.run_id!r} was removed, and no event tells how it "
                f"ended; keep ended jobs longer, or use another run_id to run all rows again"
            )
        return ends


async def _retried(call: Callable[[], Awaitable[T]]) -> T:
    """Return what a call returns that may be repeated; while no server answers, retry."""
    reconnect, tries, deadline = Reconnect(most_ms=2000), 0, monotonic() + RETRY_S
    while True:
        try:
            return await call()
        except RedisResponseError:
            raise
        except RedisError:
            delay = reconnect.delay(tries)
            if monotonic() + delay > deadline:
                raise
            await asyncio.sleep(delay)
            tries += 1
