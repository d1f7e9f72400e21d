"""The context passed to a handler: job data, progress, log, emit, cancellation, the worker's stop."""

import asyncio
import typing
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from corral.core.job import Claim, Job, JobOptions
from corral.core.naming import check_step
from corral.core.options import seconds
from corral.core.payload import check_progress
from corral.core.ports import Reporter

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=None)
    """What the app's lifespan yields; `JobContext` alone is that of an app without one."""
else:
    from typing import TypeVar

    T = TypeVar("T")

R = typing.TypeVar("R")
R_co = typing.TypeVar("R_co", covariant=True)


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str: ...


class ResultType(Protocol[R_co]):
    """A job type, as far as the results of its jobs are concerned."""

    @property
    def name(self) -> str: ...
    @property
    def queue(self) -> Named: ...
    def decode_result(self, value: Any) -> R_co: ...


class WorkerScope:
    """What all jobs of a worker share: whether it stops, its event loop, and the app's resources."""

    __slots__ = ("_event", "_flag", "_loop", "resources")

    def __init__(self, resources: Any = None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._flag = Event()
        self._event = asyncio.Event()
        self._loop = loop
        self.resources = resources

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that async handlers run on."""
        assert self._loop is not None
        return self._loop

    @property
    def is_set(self) -> bool:
        return self._flag.is_set()

    def set(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake those that wait; `loop` is the one that async handlers run on."""
        self._flag.set()
        with suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        await self._event.wait()

    def wait_blocking(self, timeout: float | None) -> bool:
        return self._flag.wait(timeout)


class BaseJobContext(Generic[T]):
    """The job as it was claimed, and whether its attempt should end."""

    __slots__ = ("cancel_requested", "cancelled", "claim", "job", "lost", "scope")

    def __init__(self, claim: Claim, scope: WorkerScope) -> None:
        self.claim = claim
        self.job: Job = claim.job
        self.scope = scope
        self.cancelled = False
        """Whether the attempt should end now: the job was cancelled, its timeout is over, or the worker stops
        and its grace period is over."""
        self.cancel_requested = False
        """Whether somebody cancelled the job."""
        self.lost = False
        """Whether the lock was lost: the attempt may go on, but its outcome will be refused."""

    @property
    def resources(self) -> T:
        """What the app's lifespan yields; None without one."""
        resources: T = self.scope.resources
        return resources

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def data(self) -> Any:
        return self.job.data

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def options(self) -> JobOptions:
        return self.job.options

    @property
    def attempt(self) -> int:
        """The number of this attempt; the first is 1."""
        return self.job.attempts_made + 1

    @property
    def created_at(self) -> int:
        """Milliseconds since the epoch."""
        return self.job.created_at

    @property
    def stopping(self) -> bool:
        """Whether the worker stops: what does not end within its grace period is given back to the queue.

        A handler may end sooner: `raise Release` gives the job back, and so does `raise JobCancelled` unless
        somebody cancelled the job.
        """
        return self.scope.is_set

    def cancel(self) -> None:
        """Set `cancelled`; the handler decides how to end."""
        self.cancelled = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} id={self.id!r} attempt={self.attempt}>"


class JobContext(BaseJobContext[T]):
    """The `job` of an async handler."""

    __slots__ = ("_event", "_reporter")

    def __init__(self, claim: Claim, scope: WorkerScope, reporter: Reporter) -> None:
        # written out instead of super(): this runs once a job
        self.claim = claim
        self.job = claim.job
        self.scope = scope
        self.cancelled = self.cancel_requested = False
        self.lost = False
        self._reporter = reporter
        self._event: asyncio.Event | None = None

    async def progress(self, value: Any, message: str | None = None) -> None:
        """Report the job's progress: a number from 0 to 100, or any JSON value.

        >>> await job.progress(25, "half a scene")  # doctest: +SKIP
        """
        await self._reporter.progress(self.claim, _progress(value, message))

    async def log(self, line: str) -> int:
        """Append a line to the job's log; return how many lines it has now."""
        return await self._reporter.log(self.claim, _log_line(line))

    async def emit(self, step: str, data: Any = None) -> None:
        """Add an event of the handler's own to the job's events."""
        await self._reporter.emit(self.claim, check_step(step), data)

    @overload
    async def children_results(self) -> list[Any]: ...
    @overload
    async def children_results(self, job_type: ResultType[R]) -> list[R]: ...
    async def children_results(self, job_type: ResultType[Any] | None = None) -> list[Any]:
        """Return the results of the job's children that completed, in the order of the flow.

        With a job type those of its jobs, converted to their type.

        >>> receipts = await job.children_results(charge)                               # doctest: +SKIP
        """
        if job_type is None:
            return await self._reporter.children_results(self.claim)
        results = await self._reporter.children_results(self.claim, job_type.queue.name, job_type.name)
        return [job_type.decode_result(result) for result in results]

    async def wait_cancelled(self) -> None:
        """Return when the attempt should end: `cancelled` is true then."""
        if self._event is None:
            self._event = asyncio.Event()
        if self.cancelled:
            self._event.set()
        await self._event.wait()

    async def wait_stopping(self) -> None:
        """Return when the worker stops; its grace period begins then."""
        await self.scope.wait()

    def cancel(self) -> None:
        self.cancelled = True
        if self._event is not None:
            self._event.set()


class ClaimReporter(Protocol):
    """A Reporter for one claim that may be called from any thread; replies are futures."""

    def progress(self, value: Any) -> "Future[None]": ...
    def log(self, line: str) -> "Future[int]": ...
    def emit(self, step: str, data: Any) -> "Future[None]": ...
    def children_results(self, queue: str | None, name: str | None) -> "Future[list[Any]]": ...


class SyncJobContext(BaseJobContext[T]):
    """The `job` of a sync handler: the same methods, as blocking calls."""

    __slots__ = ("_event", "_reporter")

    def __init__(self, claim: Claim, scope: WorkerScope, reporter: ClaimReporter) -> None:
        super().__init__(claim, scope)
        self._reporter = reporter
        self._event = Event()

    def progress(self, value: Any, message: str | None = None) -> None:
        """Report the job's progress: a number from 0 to 100, or any JSON value."""
        self._reporter.progress(_progress(value, message)).result()

    def log(self, line: str) -> int:
        """Append a line to the job's log; return how many lines it has now."""
        return self._reporter.log(_log_line(line)).result()

    def emit(self, step: str, data: Any = None) -> None:
        """Add an event of the handler's own to the job's events."""
        self._reporter.emit(check_step(step), data).result()

    @overload
    def children_results(self) -> list[Any]: ...
    @overload
    def children_results(self, job_type: ResultType[R]) -> list[R]: ...
    def children_results(self, job_type: ResultType[Any] | None = None) -> list[Any]:
        """Return the results of the job's children that completed, in the order of the flow.

        With a job type those of its jobs, converted to their type.
        """
        if job_type is None:
            return self._reporter.children_results(None, None).result()
        results = self._reporter.children_results(job_type.queue.name, job_type.name).result()
        return [job_type.decode_result(result) for result in results]

    def wait_cancelled(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the attempt should end, at most `timeout` seconds; return whether it should."""
        return self._event.wait(seconds(timeout))

    def wait_stopping(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the worker stops, at most `timeout` seconds; return whether it does."""
        return self.scope.wait_blocking(seconds(timeout))

    def cancel(self) -> None:
        self.cancelled = True
        self._event.set()


def _progress(value: Any, message: str | None) -> Any:
    value = check_progress(value)
    return value if message is None else {"progress": value, "message": message}


def _log_line(line: Any) -> str:
    # half a surrogate pair is no reason to fail the job
    return str(line).encode("utf-8", "backslashreplace").decode()
