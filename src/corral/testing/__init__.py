"""Help for the tests of programs that use Corral: a private server, a clock that moves, direct calls.

The pytest plugin (`corral.testing.plugin`, registered by itself) has the fixtures `corral_app` and
`corral_clock`.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar

from corral.app import Corral
from corral.core.job import Claim, Job, JobState
from corral.errors import InvalidOptions
from corral.job_type import JobType
from corral.worker import JobContext, SyncJobContext, wall_clock
from corral.worker.context import T, WorkerScope

P = ParamSpec("P")
R = TypeVar("R")

MOST_ADDED = 100_000
"""Jobs that `added` reads at most."""


class Clock:
    """A clock that stands still until it is moved.

    >>> clock = Clock(1_700_000_000_000)
    >>> clock.move(timedelta(minutes=5))
    >>> clock()
    1700000300000
    """

    def __init__(self, now_ms: int | None = None) -> None:
        self._now = wall_clock() if now_ms is None else now_ms

    def __call__(self) -> int:
        """Return the milliseconds since the epoch."""
        return self._now

    def move(self, by: timedelta) -> None:
        """Go forward in time."""
        if by < timedelta():
            raise InvalidOptions(f"a clock moves forward only, not by {by}")
        self._now += by // timedelta(milliseconds=1)

    def move_to(self, now_ms: int) -> None:
        """Go to a later time, in milliseconds since the epoch; an earlier one changes nothing."""
        self._now = max(self._now, now_ms)


@contextmanager
def using(app: Corral, url: str, clock: Clock | None = None) -> Iterator[Corral]:
    """Let an app use another server, and another clock, for a while."""
    with app.replaced(url=url, clock=clock):
        yield app


async def added(job_type: JobType[P, R]) -> list[Job]:
    """Return the jobs of that type that wait or are delayed, the next to run first."""
    jobs: list[Job] = []
    for state in (JobState.WAITING, JobState.DELAYED):
        jobs += await job_type.queue.jobs(state, MOST_ADDED)
    return [job for job in jobs if job.name == job_type.name]


async def assert_added(job_type: JobType[P, R], *arguments: P.args, **named: P.kwargs) -> Job:
    """Return a job of that type with these arguments that waits or is delayed; fail where there is none.

    >>> await assert_added(charge, Order(17, 9.5))                                      # doctest: +SKIP
    """
    data = job_type.call(*arguments, **named).data
    jobs = await added(job_type)
    for job in jobs:
        if job.data == data:
            return job
    others = "".join(f"\n  {job.data!r}" for job in jobs) or " none"
    raise AssertionError(f"no job {job_type.name!r} was added with {data!r}; those that were added:{others}")


# -- handlers called directly -------------------------------------------------------------------------------


class Reports:
    """What a handler reported in a direct call."""

    def __init__(self) -> None:
        self.progress: list[Any] = []
        self.log: list[str] = []
        self.events: list[tuple[str, Any]] = []
        self.children: list[Any] = []
        """What `job.children_results()` is to find: set it before the call, as JSON has it."""


class TestContext(JobContext[T], Generic[T]):
    """A `job` for an async handler that is called directly; `reports` has what it reported."""

    __test__ = False  # no class of tests, whatever pytest makes of its name

    def __init__(self, claim: Claim, resources: T) -> None:
        self.reports = Reports()
        super().__init__(claim, WorkerScope(resources), _Recorder(self.reports))


class SyncTestContext(SyncJobContext[T], Generic[T]):
    """A `job` for a sync handler that is called directly; `reports` has what it reported."""

    def __init__(self, claim: Claim, resources: T) -> None:
        self.reports = Reports()
        super().__init__(claim, WorkerScope(resources), _SyncRecorder(self.reports))


def context(resources: T = None, *, data: Any = None, **fields: Any) -> TestContext[T]:  # type: ignore[assignment]
    """Return a context for a direct call of an async handler; `fields` are those of its `Job`.

    >>> await charge(context(resources), Order(17, 9.5))                                # doctest: +SKIP
    """
    return TestContext(_claim(data, fields), resources)


def sync_context(resources: T = None, *, data: Any = None, **fields: Any) -> SyncTestContext[T]:  # type: ignore[assignment]
    """Return a context for a direct call of a sync handler."""
    return SyncTestContext(_claim(data, fields), resources)


def _claim(data: Any, fields: dict[str, Any]) -> Claim:
    return Claim(Job(**{"name": "test", "queue": "test", "id": "1", **fields}, data=data), None)


class _Recorder:
    """A Reporter that keeps what is reported."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    async def progress(self, claim: Claim, value: Any) -> None:
        self._reports.progress.append(value)

    async def log(self, claim: Claim, line: str, mark: str = "") -> int:
        self._reports.log.append(line)
        return len(self._reports.log)

    async def emit(self, claim: Claim, step: str, data: Any, mark: str = "") -> None:
        self._reports.events.append((step, data))

    async def children_results(
        self, claim: Claim, queue: str | None = None, name: str | None = None
    ) -> list[Any]:
        return self._reports.children

    async def beat(self, stopping: bool = False) -> int | None:
        return None


class _SyncRecorder:
    """A ClaimReporter that keeps what is reported."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    def progress(self, value: Any) -> "Future[None]":
        self._reports.progress.append(value)
        return _done(None)

    def log(self, line: str) -> "Future[int]":
        self._reports.log.append(line)
        return _done(len(self._reports.log))

    def emit(self, step: str, data: Any) -> "Future[None]":
        self._reports.events.append((step, data))
        return _done(None)

    def children_results(self, queue: str | None, name: str | None) -> "Future[list[Any]]":
        return _done(self._reports.children)


def _done(value: R) -> "Future[R]":
    future: Future[R] = Future()
    future.set_result(value)
    return future
