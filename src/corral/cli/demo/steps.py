"""The steps of the demo: how they are run, counted, shown and checked."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from corral.app import Corral
from corral.cli.output import Output
from corral.cli.rates import percentile
from corral.core.outcome import Completed, Dead, Retry
from corral.errors import CorralError
from corral.worker import WorkerEvent, WorkerEventKind
from corral.worker.worker import Worker

MAX_STEP_S = 60.0
"""A step that has not ended by then has failed."""
PLAIN_LINES = 4
"""Lines of progress per step where no bar can be drawn."""
TITLES = ("step", "protocol", "jobs", "completed", "dead", "retries", "jobs/s", "p95 add to end")


class StepFailed(CorralError):
    """A step of the demo did not give the expected result."""


class StepSkipped(CorralError):
    """A step of the demo cannot run here."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step, as the server has it."""

    title: str
    protocol: str
    jobs: int
    completed: int
    dead: int
    retries: int
    rate: float
    p95_ms: float
    """Of the time from add to end, over all jobs of the step."""
    remark: str = ""

    @property
    def cells(self) -> list[str]:
        """The result as a row of the table."""
        counts = (self.jobs, self.completed, self.dead, self.retries)
        times = (f"{self.rate:,.0f}", f"{self.p95_ms:,.0f} ms")
        return [self.title, self.protocol, *(f"{count:,}" for count in counts), *times]


Step = Callable[[str, "DemoOutput"], Awaitable[StepResult]]
"""(address of the server, output) -> result; raises a CorralError where it fails."""


@dataclass
class JobTally:
    """Counts the jobs that a worker has ended; `count` is its listener."""

    total: int
    clock: Callable[[], int]
    show: Callable[["JobTally"], None]
    started: float = field(default_factory=perf_counter)
    completed: int = 0
    dead: int = 0
    retries: int = 0
    seconds: float = 0.0
    times: list[int] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, event: WorkerEvent) -> None:
        """Count an event of a worker."""
        if event.kind is not WorkerEventKind.SETTLED or event.claim is None:
            return
        match event.outcome:
            case Retry():
                self.retries += 1
                return
            case Completed():
                self.completed += 1
            case Dead():
                self.dead += 1
            case _:
                return
        self.times.append(self.clock() - event.claim.job.created_at)
        self.seconds = perf_counter() - self.started
        self.show(self)
        if self.ended >= self.total:
            self.finished.set()

    @property
    def ended(self) -> int:
        return self.completed + self.dead

    @property
    def rate(self) -> float:
        """Jobs ended per second."""
        return self.ended / self.seconds if self.seconds else 0.0

    @property
    def p95_ms(self) -> float:
        """The time from add to end that 95 % of the jobs did not exceed."""
        return percentile(self.times, 0.95)

    def result(self, title: str, protocol: str, remark: str, **counts: int) -> StepResult:
        """Return the result of a step; `counts` are those that the server has."""
        counts = {"jobs": self.total, "completed": self.completed, "dead": self.dead, **counts}
        return StepResult(
            title=title,
            protocol=protocol,
            retries=self.retries,
            rate=self.rate,
            p95_ms=self.p95_ms,
            remark=remark,
            **counts,
        )


class DemoOutput(Output):
    """The demo's output: bars in a terminal, lines elsewhere, and a table at the end."""

    def __init__(self, as_json: bool) -> None:
        super().__init__(as_json)
        self._results: list[StepResult] = []
        self._failed: list[str] = []

    def skip(self, title: str, reason: BaseException) -> None:
        """Print that a step cannot run here."""
        self.document({"title": title, "skipped": str(reason)})
        self.line(Text(f"skipped: {title}", "yellow"), str(reason))

    def fail(self, title: str, error: BaseException) -> None:
        """Print that a step failed."""
        self._failed.append(title)
        self.error(StepFailed(f"{title}: {str(error) or type(error).__name__}"))

    def add(self, result: StepResult) -> None:
        """Keep the result of a step for the table."""
        self._results.append(result)
        self.document(vars(result))

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[JobTally], None]]:
        """Yield a function that shows a tally."""
        if self.as_json or not self.console.is_terminal:
            yield lambda tally: self._show_line(title, tally)
            return
        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>6,.0f} jobs/s", markup=False),
            TextColumn("p95 {task.fields[p95]:>4,.0f} ms from add to end", markup=False),
            console=self.console,
        ) as progress:
            task = progress.add_task(f"{title:<28}", total=total, rate=0.0, p95=0.0)

            def show(tally: JobTally) -> None:
                # not each time: the p95 sorts all times
                if tally.ended == tally.total or tally.ended % 50 == 0:
                    progress.update(task, rate=tally.rate, p95=tally.p95_ms)
                progress.update(task, completed=tally.ended)

            yield show

    def _show_line(self, title: str, tally: JobTally) -> None:
        # counted from the end, so that the last line is the last job's
        if (tally.total - tally.ended) % max(tally.total // PLAIN_LINES, 1) == 0:
            self.line(
                f"{title:<28}  {tally.ended:>4} of {tally.total}  {tally.rate:>6,.0f} jobs/s  "
                f"p95 {tally.p95_ms:>4,.0f} ms from add to end"
            )

    def summary(self, seconds: float) -> None:
        """Print the table of all results, their remarks, and what failed."""
        if self._results:
            self.line("")
            self.table(TITLES, [result.cells for result in self._results])
            for result in self._results:
                if result.remark:
                    self.line(result.remark)
        self.line("")
        if self._failed:
            self.line(Text(f"failed: {', '.join(self._failed)}", "bold red"))
        else:
            self.line(Text(f"done in {seconds:.1f} s", "green"))


async def run_jobs(
    app: Corral,
    title: str,
    total: int,
    produce: Callable[[], Awaitable[Any]],
    output: DemoOutput,
    workers: Callable[..., list[Worker]],
) -> JobTally:
    """Run workers until `total` jobs that `produce` adds have ended; return their tally."""
    with output.bar(title, total) as show:
        tally = JobTally(total, app.clock, show)
        try:
            async with asyncio.timeout(MAX_STEP_S):
                await _run_until_finished(workers(listener=tally.count), tally, produce)
        except TimeoutError:
            raise StepFailed(f"only {tally.ended} of {total} jobs ended within {MAX_STEP_S:.0f} s") from None
    return tally


async def _run_until_finished(
    workers: list[Worker], tally: JobTally, produce: Callable[[], Awaitable[Any]]
) -> None:
    running = [asyncio.create_task(worker.run()) for worker in workers]
    finished = asyncio.create_task(tally.finished.wait())
    try:
        await produce()
        await asyncio.wait([*running, finished], return_when=asyncio.FIRST_COMPLETED)
    finally:
        finished.cancel()
        for worker in workers:
            await worker.stop(1.0)
        for task in running:
            with suppress(asyncio.CancelledError):
                await task


def expect(name: str, value: object, expected: object) -> None:
    """Raise an error where a value is not the expected one."""
    if value != expected:
        raise StepFailed(f"{name}: {value}, and it should be {expected}")
