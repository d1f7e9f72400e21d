"""What a handler holds: its job, a voice, and the news that it should end."""

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any

from corral.core.job import Claim, Job, JobOptions
from corral.core.naming import check_step
from corral.core.payload import check_progress
from corral.core.ports import Reporter


class JobView:
    """The job as it was claimed, and what has become known of it since."""

    __slots__ = ("cancelled", "claim", "job", "lost")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.job: Job = claim.job
        self.cancelled = False
        """Has someone asked for this job to end, or has its time run out?"""
        self.lost = False
        """Has the lock been lost? The attempt may go on, but its outcome will be refused."""

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

    def cancel(self) -> None:
        """Tell the handler that it should end; it decides how."""
        self.cancelled = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} id={self.id!r} attempt={self.attempt}>"


class JobContext(JobView):
    """The `job` of an async handler."""

    __slots__ = ("_bell", "_reporter")

    def __init__(self, claim: Claim, reporter: Reporter) -> None:
        # written out: this runs once a job
        self.claim = claim
        self.job = claim.job
        self.cancelled = False
        self.lost = False
        self._reporter = reporter
        self._bell: asyncio.Event | None = None

    async def progress(self, value: Any, message: str | None = None) -> None:
        """Tell how far the job is: a number from 0 to 100, or any JSON value.

        >>> await job.progress(25, "half a scene")  # doctest: +SKIP
        """
        await self._reporter.progress(self.claim, progress_value(value, message))

    async def log(self, line: str) -> int:
        """Append a line to the job's log; how many lines it has now."""
        return await self._reporter.log(self.claim, log_line(line))

    async def emit(self, step: str, data: Any = None) -> None:
        """Tell an event of the handler's own."""
        await self._reporter.emit(self.claim, check_step(step), data)

    async def wait_cancelled(self) -> None:
        """Return when the job should end."""
        if self._bell is None:
            self._bell = asyncio.Event()
        if self.cancelled:
            self._bell.set()
        await self._bell.wait()

    def cancel(self) -> None:
        self.cancelled = True
        if self._bell is not None:
            self._bell.set()


Ask = Callable[..., Any]
"""(verb, *arguments) -> answer: a Reporter's verb, called for this claim and waited for."""


class BlockingJobContext(JobView):
    """The `job` of a sync handler: the same words, as plain calls that return when they are done."""

    __slots__ = ("_ask", "_bell")

    def __init__(self, claim: Claim, ask: Ask) -> None:
        super().__init__(claim)
        self._ask = ask
        self._bell = Event()

    def progress(self, value: Any, message: str | None = None) -> None:
        """Tell how far the job is: a number from 0 to 100, or any JSON value."""
        self._ask("progress", progress_value(value, message))

    def log(self, line: str) -> int:
        """Append a line to the job's log; how many lines it has now."""
        count: int = self._ask("log", log_line(line))
        return count

    def emit(self, step: str, data: Any = None) -> None:
        """Tell an event of the handler's own."""
        self._ask("emit", check_step(step), data)

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait until the job should end, at most `timeout` seconds; should it?"""
        return self._bell.wait(timeout)

    def cancel(self) -> None:
        self.cancelled = True
        self._bell.set()


def progress_value(value: Any, message: str | None) -> Any:
    """What goes on the wire for a progress report."""
    value = check_progress(value)
    return value if message is None else {"progress": value, "message": message}


def log_line(line: Any) -> str:
    """What goes on the wire for a line of a log; half a surrogate pair is no reason to fail the job."""
    return str(line).encode("utf-8", "backslashreplace").decode()
