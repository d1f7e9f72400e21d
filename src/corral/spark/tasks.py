"""What runs on executors: a task of a Spark job that is a Corral worker."""

import asyncio
import os
import re
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext

from corral.app import Corral
from corral.app_loader import AppNotFound, BrokenModule, load_app
from corral.errors import CorralError
from corral.running import Signals, backlog_of, loop_factory, serve_all
from corral.store.address import without_password
from corral.telemetry import logs
from corral.worker import WorkerEvent, WorkerEventKind
from corral.worker.records import COUNTED

T = TypeVar("T")

TICK_S = 0.5
"""How often a task sends something to Spark, which tells it in turn whether it was cancelled."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Spark's daemon sends SIGHUP to its Python processes when their executor ends."""
PADDING = "corral_padding"
"""The column of rows that only fill the buffer between Python and Java; they are filtered out."""

_ERROR = re.compile(r"\[corral (\w+)\] (.*?) \[/corral\]", re.DOTALL)


class TaskError(CorralError):
    """A task that cannot work; Spark takes its text to the driver, inside of a text of its own."""

    def __init__(self, error: CorralError) -> None:
        notes = getattr(error, "__notes__", [])
        super().__init__(f"[corral {type(error).__name__}] {' '.join([str(error), *notes])} [/corral]")


def task_error(text: str) -> tuple[str, str] | None:
    """Return the kind and the text of the `TaskError` that Spark reports here, if it is one."""
    match = _ERROR.search(text)
    return None if match is None else (match.group(1), match.group(2))


@dataclass(frozen=True)
class WorkerOrder:
    """What the worker of each task is to do; made on the driver."""

    app: str
    """As `module:name`."""
    url: str
    name: str
    """What the names of the workers begin with."""
    queues: dict[str, int]
    protocol: str | None
    concurrency: int
    grace: float
    log_level: str
    options: dict[str, Any] = field(default_factory=dict)

    def load(self) -> Corral:
        """Import the app, on an executor."""
        try:
            app = load_app(self.app, self.url)
        except (AppNotFound, BrokenModule) as error:
            raise type(error)(
                f"an executor cannot load {self.app}: {error}; install it where the executors run, or give "
                f"Spark its files: spark.submit.pyFiles"
            ) from None
        logs.configure(self.log_level)
        return app

    def worker_name(self) -> str:
        """Return the name of this task's worker: the run, the task, and its attempt."""
        context = TaskContext.get()
        if context is None:
            return f"{self.name}-{os.getpid()}"
        return f"{self.name}-{context.partitionId()}.{context.taskAttemptId()}"


class WorkerLoop:
    """The event loop of a task, which runs between two record batches that go to Spark.

    The worker's heartbeat has a thread of its own, so a Spark that takes its time costs no lock.
    """

    def __init__(self, order: WorkerOrder, app: Corral) -> None:
        self.app = app
        self._order = order
        self._runner = asyncio.Runner(loop_factory=loop_factory())
        self._loop = self._runner.get_loop()
        self._signals: Signals
        self._working: asyncio.Task[None] | None = None
        self.outcomes: list[type] = []
        """Of the attempts that were settled since this was last emptied."""

    @property
    def has_started(self) -> bool:
        """Whether the worker was started."""
        return self._working is not None

    def start(self, *, until_idle: bool = False) -> None:
        """Start the worker."""
        self._working = self._loop.create_task(self._work(until_idle))

    async def _work(self, until_idle: bool) -> None:
        order = self._order
        workers = self.app.workers(
            concurrency=order.concurrency,
            name=order.worker_name(),
            queues=order.queues,
            protocol=order.protocol,
            listener=self._listen,
            **order.options,
        )
        queues = {worker: self.app.queue(worker.queue, worker.config.protocol) for worker in workers}
        counts = {worker: backlog_of(queue, with_held=True) for worker, queue in queues.items()}
        with Signals(order.grace, SIGNALS) as self._signals:
            await serve_all(workers, self._signals, counts if until_idle else None)

    def _listen(self, event: WorkerEvent) -> None:
        if event.kind is WorkerEventKind.SETTLED:
            self.outcomes.append(type(event.outcome))

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run an operation beside the worker."""
        return self._loop.run_until_complete(operation)

    def run_for(self, seconds: float) -> bool:
        """Let the worker work for so long; return whether it goes on. Raise what ended it."""
        if self._working is None or self._working.done():
            raise AssertionError("the worker does not run")
        self.run(asyncio.wait([self._working], timeout=seconds))
        if self._working.done():
            self._working.result()
            return False
        return True

    def close(self) -> None:
        """Stop gracefully: no more claims, and running jobs may end within the grace."""
        try:
            working = self._working
            if working is not None and not working.done():
                self.run(self._stop(working))
            self.run(self.app.close())
        finally:
            self._runner.close()

    async def _stop(self, working: "asyncio.Task[None]") -> None:
        await asyncio.sleep(0)  # it has begun then, and has its signals
        self._signals.stop()
        await asyncio.wait([working])


@contextmanager
def worker_loop(order: WorkerOrder) -> Iterator[WorkerLoop]:
    """Load the app and open an event loop for its worker; stop it gracefully at the end, whatever that is.

    Where Spark cancels a task, its generator is closed: that ends this block too. Nothing kills the Python
    process meanwhile, so running jobs have their grace.
    """
    try:
        loop = WorkerLoop(order, order.load())
        try:
            yield loop
        finally:
            loop.close()
    except CorralError as error:
        error.add_note(f"(the server is {without_password(order.url)})")
        raise TaskError(error) from error


def padding() -> bytes:
    """Return as much as fills the buffer between Python and Java: smaller batches would stay in it."""
    return os.urandom(int(os.environ.get("SPARK_BUFFER_SIZE", 65536)))


OUTCOMES = pa.schema([("outcome", pa.string()), (PADDING, pa.binary())])
"""A row for each attempt that was settled."""


@dataclass(frozen=True)
class QueueTask:
    """Serves queues; made on the driver, run on executors."""

    order: WorkerOrder
    until_idle: bool

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each attempt that was settled: a function for `DataFrame.mapInArrow`."""
        for _ in batches:
            pass  # a task has one row, which says nothing
        filler = padding()
        with worker_loop(self.order) as loop:
            loop.start(until_idle=self.until_idle)
            goes_on = True
            while goes_on:
                goes_on = loop.run_for(TICK_S)
                outcomes = [COUNTED[outcome] for outcome in loop.outcomes if outcome in COUNTED]
                loop.outcomes.clear()
                columns = [[*outcomes, None], [None] * len(outcomes) + [filler]]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column, one.type) for column, one in zip(columns, OUTCOMES, strict=True)],
                    schema=OUTCOMES,
                )
