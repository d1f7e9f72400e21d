"""`work`: the handlers of an app in the tasks of a Spark job, supervised by the driver."""

import atexit
import logging
import re
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, Unpack
from uuid import uuid4

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from corral.app import GRACE_S, Corral
from corral.app_loader import load_app
from corral.core.job import JobState
from corral.core.options import seconds
from corral.errors import CorralError, InvalidOptions, RedisError, Unsupported
from corral.spark.tasks import PADDING, QueueTask, WorkerOrder, task_error
from corral.worker import DEFAULT_CONCURRENCY
from corral.worker_options import ProfileOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_S = 60.0
"""How long a cluster may take to give the first executor."""
LOOK_S = 0.5
"""How often the driver looks at its tasks and queues."""
CALL_S = 10.0
"""How long one look at the queues may take."""
LAST_TRIP_S = 5.0
"""How long a worker may take to end after its grace."""
SHORTEST_DELAY_S, LONGEST_DELAY_S, HEALTHY_S = 0.5, 30.0, 60.0
"""Between two submissions of a job that has failed: it grows with each that failed early."""
MOST_FAILURES = 20
"""How often in a row a job may fail early."""
MOST_PARTITIONS = 10_000

_EXECUTOR_LOST = re.compile(
    "ExecutorLostFailure|Python worker exited unexpectedly|Python worker failed to connect|worker lost"
)

log = logging.getLogger("corral.spark")


class SparkError(CorralError):
    """Spark could not run the tasks."""


class NoExecutor(SparkError):
    """The cluster gave no executor."""


class WorkProgress(NamedTuple):
    """What the driver saw when it last looked."""

    tasks: int
    """Tasks that run now."""
    waiting: int
    active: int
    delayed: int


@dataclass(frozen=True)
class WorkSummary:
    """What the tasks did until they ended: attempts by outcome.

    Those of a task that was lost are not counted, and a run that was stopped counts none: the queue itself
    knows what became of its jobs.
    """

    outcomes: Mapping[str, int] = field(default_factory=dict)
    """completed, retried, dead, cancelled: how many attempts ended so."""
    is_stopped: bool = False
    """Whether a signal or a cancelled job ended it."""
    submissions: int = 1
    """How often the Spark job was submitted: once, and again after it had lost too many executors."""


def work(
    spark: "SparkSession",
    app: str,
    *,
    queue: str | Sequence[str] | Mapping[str, int] | None = None,
    protocol: str | None = None,
    partitions: int | None = None,
    until: Literal["idle", "forever"] = "forever",
    concurrency: int = DEFAULT_CONCURRENCY,
    grace: float | timedelta = GRACE_S,
    name: str | None = None,
    url: str | None = None,
    start_timeout: float | timedelta = START_S,
    log_level: str = "warning",
    progress: bool | Callable[[WorkProgress], None] | None = None,
    **options: Unpack[ProfileOptions],
) -> WorkSummary:
    """Run the handlers of an app on executors: each of `partitions` tasks is a worker.

    `until="idle"` ends when no job is waiting and no worker holds one; delayed jobs, retries among them,
    stay. The first SIGINT or SIGTERM, and a job that is cancelled in Spark, stop the workers gracefully.
    Without `partitions` there are as many tasks as Spark has cores. `progress` shows a bar, or is called
    with what the driver sees; None: a bar on a terminal. The other options are those of `app.run`.

    >>> work(spark, "shop:app", queue="embed", partitions=8, until="idle")         # doctest: +SKIP
    """
    if until not in ("idle", "forever"):
        raise InvalidOptions(f"until={until!r}: use 'idle' or 'forever'")
    _check_classic(spark)
    count = _checked_partitions(spark, partitions)
    corral, order = prepared(
        spark,
        app,
        url,
        queues=[queue] if isinstance(queue, str) else queue,
        protocol=protocol,
        concurrency=concurrency,
        grace=seconds(grace),
        name=name,
        log_level=log_level,
        options=dict(options),
    )
    corral.sync(corral.start_schedules(), CALL_S)
    task = QueueTask(order, until_idle=until == "idle")
    with ExitStack() as stack:
        if progress is True or (progress is None and sys.stderr.isatty()):
            progress = stack.enter_context(ProgressBar(", ".join(order.queues)))
        on_progress = progress if callable(progress) else None
        driver = _Driver(spark, corral, order, task, count, seconds(start_timeout), on_progress)
        stack.enter_context(_stopped_by_signals(driver))
        return driver.run()


def prepared(
    spark: "SparkSession",
    app: str,
    url: str | None,
    *,
    queues: Sequence[str] | Mapping[str, int] | None,
    protocol: str | None,
    concurrency: int,
    grace: float,
    name: str | None,
    log_level: str,
    options: dict[str, Any],
) -> tuple[Corral, WorkerOrder]:
    """Load the app, check what its workers are asked to do, and let executors find it."""
    corral = load_app(app, url)
    prefix = f"spark-{uuid4().hex[:8]}" if name is None else name
    # the workers themselves are made on executors: these refuse what does not fit
    workers = corral.workers(
        concurrency=concurrency, name=prefix, queues=queues, protocol=protocol, **options
    )
    _check_reachable(spark, corral)
    slots = {worker.queue: worker.config.concurrency for worker in workers}
    _ship(spark, app)
    return corral, WorkerOrder(
        app=app, url=corral.url, name=prefix, queues=slots, protocol=protocol, concurrency=concurrency,
        grace=grace, log_level=log_level, options=options,
    )  # fmt: skip


def _check_classic(spark: "SparkSession") -> None:
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise Unsupported(
            "work() supervises the tasks of a Spark job, which Spark Connect does not show; start it where "
            "the driver runs, or use map_in_corral()"
        )
    if spark.sparkContext._jsc is None:
        raise SparkError("this SparkSession was stopped; make another: corral.spark.session()")


def _checked_partitions(spark: "SparkSession", partitions: int | None) -> int:
    if partitions is None:
        return spark.sparkContext.defaultParallelism
    if type(partitions) is not int or not 1 <= partitions <= MOST_PARTITIONS:
        raise InvalidOptions(f"partitions={partitions!r} is not a whole number from 1 to {MOST_PARTITIONS}")
    return partitions


def _check_reachable(spark: "SparkSession", corral: Corral) -> None:
    master = spark.conf.get("spark.master", "") or ""
    if corral.is_private and not master.startswith("local"):
        raise InvalidOptions(
            f"no Redis address was given, and executors of {master} cannot reach the private server of this "
            f"machine; set REDIS_URL"
        )

    async def check() -> None:
        await corral.store().check_connection()

    corral.sync(check(), CALL_S)


def _ship(spark: "SparkSession", app: str) -> None:
    """Give the app's module to executors, where it is in the current directory and they are elsewhere."""
    if (spark.conf.get("spark.master", "") or "").startswith("local["):
        return
    top = app.partition(":")[0].partition(".")[0]
    folder, file = Path.cwd() / top, Path.cwd() / f"{top}.py"
    if file.is_file():
        spark.addArtifacts(str(file), pyfile=True)
    elif folder.is_dir():
        temporary = tempfile.mkdtemp(prefix="corral-")
        atexit.register(
            shutil.rmtree, temporary, ignore_errors=True
        )  # executors that come later fetch it too
        archive = Path(temporary) / f"{top}.zip"
        with zipfile.ZipFile(archive, "w") as zipped:
            for path in sorted(folder.rglob("*.py")):
                zipped.write(path, path.relative_to(Path.cwd()))
        spark.addArtifacts(str(archive), pyfile=True)


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """A bar on standard error: of the most jobs that waited or ran at once, how many have ended."""

    def __init__(self, queues: str) -> None:
        words = ("{task.fields[tasks]} tasks", "{task.fields[left]} jobs left")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            *map(TextColumn, words),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(queues, total=None, tasks=0, left=0)
        self._most = 0

    def __call__(self, progress: WorkProgress) -> None:
        left = progress.waiting + progress.active
        self._most = max(self._most, left)
        self._bar.update(
            self._task,
            total=self._most or None,
            completed=self._most - left,
            tasks=progress.tasks,
            left=left,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class _Driver:
    """Submits the Spark job, again where it has lost too many executors, and looks after it."""

    def __init__(
        self,
        spark: "SparkSession",
        corral: Corral,
        order: WorkerOrder,
        task: QueueTask,
        partitions: int,
        start_s: float,
        on_progress: Callable[[WorkProgress], None] | None,
    ) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._corral = corral
        self._order = order
        self._task = task
        self._partitions = partitions
        self._start_s = start_s
        self._on_progress = on_progress
        self._queues = [
            corral.queue(worker.queue, worker.config.protocol)
            for worker in corral.workers(queues=order.queues, protocol=order.protocol)
        ]
        self._signals = 0
        self._has_started = False

    def stop(self) -> None:
        """Let the workers end what they run; called again, wait for nothing."""
        self._signals += 1

    def run(self) -> WorkSummary:
        """Return when the tasks have ended."""
        submissions = failures = 0
        while True:
            submissions += 1
            submitted_at = time.monotonic()
            job = _SparkJob(self._spark, self._rows(), f"{self._order.name}-{submissions}", self._description)
            try:
                self._wait(job)
            except BaseException:
                job.cancel()
                self._wait_until_drained()
                raise
            if job.error is None:
                return WorkSummary(job.outcomes, bool(self._signals), submissions)
            if self._signals or job.is_cancelled:
                self._wait_until_drained()
                return WorkSummary({}, True, submissions)
            failures = 0 if time.monotonic() - submitted_at > HEALTHY_S else failures + 1
            self._check_is_temporary(job, failures)
            delay = min(SHORTEST_DELAY_S * 2**failures, LONGEST_DELAY_S)
            log.warning("the tasks have lost their executors; they are submitted again in %s s", delay)
            self._sleep(delay)

    @property
    def _description(self) -> str:
        return f"corral worker {self._order.app}: {', '.join(self._order.queues)}"

    def _rows(self) -> "DataFrame":
        count = self._partitions
        tasks = self._spark.range(0, count, 1, count)
        rows = tasks.mapInArrow(self._task.run, f"outcome string, {PADDING} binary")
        # "number of output rows" of this filter, in Spark's UI, is the number of attempts that were settled
        return rows.where("outcome IS NOT NULL").groupBy("outcome").count()

    def _wait(self, job: "_SparkJob") -> None:
        deadline = time.monotonic() + self._start_s
        while not job.join(LOOK_S):
            tasks = job.active_tasks()
            self._has_started = self._has_started or tasks > 0
            if self._signals:
                job.cancel()
            elif not self._has_started and time.monotonic() > deadline:
                raise NoExecutor(
                    f"the cluster {self._context.master} gave no executor within {self._start_s:g} s; see "
                    f"whether it has free cores and memory for one, or allow more time: start_timeout=…"
                )
            if self._on_progress is not None:
                self._look(self._on_progress, tasks)

    def _look(self, on_progress: Callable[[WorkProgress], None], tasks: int) -> None:
        # a server that is unavailable is the workers' concern
        with suppress(RedisError, TimeoutError):
            counts = [self._corral.sync(queue.counts(), CALL_S) for queue in self._queues]
            states = (JobState.WAITING, JobState.ACTIVE, JobState.DELAYED)
            on_progress(WorkProgress(tasks, *[sum(one.get(state, 0) for one in counts) for state in states]))

    def _check_is_temporary(self, job: "_SparkJob", failures: int) -> None:
        """Raise what ended the job, unless it was the loss of executors or of Redis, and not too often."""
        text = str(job.error)
        reported = task_error(text)
        if reported is not None:
            kind, message = reported
            is_temporary = kind.startswith("Redis") and kind != "RedisResponseError"
            if not (is_temporary and self._has_started):
                error = RedisError(message) if kind.startswith("Redis") else InvalidOptions(message)
                raise error from None
        elif failures > MOST_FAILURES or not _EXECUTOR_LOST.search(text):
            raise SparkError(f"Spark ended the tasks: {_first_line(text)}") from job.error

    def _wait_until_drained(self) -> None:
        """Return when the workers are gone, or must be: their grace is over, or a second signal came."""
        deadline = time.monotonic() + self._order.grace + LAST_TRIP_S
        with suppress(RedisError, TimeoutError):
            while time.monotonic() < deadline and self._signals < 2 and self._workers_left():
                self._sleep(LOOK_S)

    def _workers_left(self) -> bool:
        prefix = f"{self._order.name}-"
        return any(
            worker.name.startswith(prefix)
            for queue in self._queues
            for worker in self._corral.sync(queue.workers(), CALL_S)
        )

    def _sleep(self, delay: float) -> None:
        signals, deadline = self._signals, time.monotonic() + delay
        while self._signals == signals and time.monotonic() < deadline:
            time.sleep(min(LOOK_S, delay))


class _SparkJob:
    """One submission: the job runs in a thread, for which Spark keeps its group."""

    def __init__(self, spark: "SparkSession", rows: "DataFrame", group: str, description: str) -> None:
        from pyspark import InheritableThread

        self._context = spark.sparkContext
        self._rows = rows
        self._group = group
        self._description = description
        self.outcomes: dict[str, int] = {}
        self.error: Exception | None = None
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._description)
            self.outcomes = {row["outcome"]: row["count"] for row in self._rows.collect()}
        except Exception as error:
            self.error = error

    def join(self, timeout: float) -> bool:
        """Wait so long; return whether the job has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Cancel the job; its Python processes find out within a second and end what they run."""
        with suppress(Exception):  # the context may be stopped
            self._context.cancelJobGroup(self._group)

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody cancelled the job: this driver, or a person in Spark's UI."""
        return "SPARK_JOB_CANCELLED" in str(self.error)

    def active_tasks(self) -> int:
        """Return how many of its tasks run now."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)


@contextmanager
def _stopped_by_signals(driver: _Driver) -> Iterator[None]:
    """While entered, SIGINT and SIGTERM stop the driver; outside the main thread they are the caller's."""
    if current_thread() is not main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: driver.stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first_line(text: str) -> str:
    """Return the line of Spark's text that says what happened."""
    lines = [line.strip(" :") for line in text.splitlines() if line.strip(" :")]
    telling = [
        line for line in lines if "Exception: " in line or "Error: " in line or "SparkException" in line
    ]
    return (telling or lines or ["no reason was given"])[0][:500]
