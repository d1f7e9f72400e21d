"""What the demo shows while it runs, and the counting behind it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from corral.app import Corral
from corral.cli.screen import Screen
from corral.core.outcome import Completed, Dead, Retry
from corral.errors import CorralError
from corral.worker import Worker, WorkerEvent, WorkerEventKind

LONGEST_STEP_S = 60.0
"""A step that has not ended by then has failed."""
PLAIN_LINES = 4
"""How often a step says how far it is where no bar can be drawn."""


class Broken(CorralError):
    """A part of the demo did not do what it should."""


class Skipped(CorralError):
    """A part of the demo cannot be shown here, and the others can."""


@dataclass(frozen=True)
class Report:
    """How a step ended, as the server has it."""

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


Step = Callable[[str, "Stage"], Awaitable[Report]]
"""(address of the server, stage) -> how it went; raises a CorralError where it went wrong."""


@dataclass
class Tally:
    """Counts what a worker tells; `hear` is its listener."""

    total: int
    clock: Callable[[], int]
    show: Callable[["Tally"], None]
    began: float = field(default_factory=perf_counter)
    completed: int = 0
    dead: int = 0
    retries: int = 0
    seconds: float = 0.0
    times: list[int] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, event: WorkerEvent) -> None:
        """One thing a worker did."""
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
        self.seconds = perf_counter() - self.began
        self.show(self)
        if self.ended >= self.total:
            self.finished.set()

    @property
    def ended(self) -> int:
        return self.completed + self.dead

    @property
    def rate(self) -> float:
        """Jobs ended in a second."""
        return self.ended / self.seconds if self.seconds else 0.0

    @property
    def p95_ms(self) -> float:
        """The time from add to end that 95 of 100 jobs did not exceed."""
        return percentile(self.times, 0.95)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed; 0 where there are none.

    >>> percentile([5, 1, 4, 2, 3], 0.8)
    4
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(-(-int(share * 1000) * len(ordered) // 1000) - 1, 0)]


class Stage:
    """Bars on a terminal, lines elsewhere, and a table at the end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._reports: list[Report] = []
        self._failed: list[str] = []

    @property
    def screen(self) -> Screen:
        return self._screen

    def show(self, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table for people."""
        if not self._screen.as_json:
            self._screen.table(titles, rows)

    def skip(self, title: str, why: BaseException) -> None:
        """A yellow line: this part cannot be shown here."""
        if self._screen.as_json:
            self._screen.document({"title": title, "skipped": str(why)})
        else:
            self._screen.line(Text(f"skipped: {title}", "yellow"), str(why))

    def say(self, text: str) -> None:
        """A line for people."""
        if not self._screen.as_json:
            self._screen.line(text)

    def fail(self, title: str, error: BaseException) -> None:
        """A red line: this part went wrong."""
        self._failed.append(title)
        self._screen.fail(Broken(f"{title}: {str(error) or type(error).__name__}"))

    def add(self, report: Report) -> None:
        """Keep the report of a step for the end."""
        self._reports.append(report)
        if self._screen.as_json:
            self._screen.document(vars(report))

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[Tally], None]]:
        """Shows a tally whenever it is called with it."""
        if self._screen.as_json:
            yield lambda tally: None
        elif not self._screen.out.is_terminal:
            yield self._plain(title)
        else:
            with Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:>6,.0f} jobs/s", markup=False),
                TextColumn("p95 {task.fields[p95]:>4,.0f} ms from add to end", markup=False),
                console=self._screen.out,
            ) as progress:
                task = progress.add_task(f"{title:<28}", total=total, rate=0.0, p95=0.0)
                yield self._drawing(progress, task)

    @staticmethod
    def _drawing(progress: Progress, task: Any) -> Callable[[Tally], None]:
        def show(tally: Tally) -> None:
            # ten looks at the numbers are enough for an eye, and sorting them all each time is not free
            if tally.ended == tally.total or tally.ended % 50 == 0:
                progress.update(task, rate=tally.rate, p95=tally.p95_ms)
            progress.update(task, completed=tally.ended)

        return show

    def _plain(self, title: str) -> Callable[[Tally], None]:
        def show(tally: Tally) -> None:
            # counted from the end, so that the last line is the last job's
            if (tally.total - tally.ended) % max(tally.total // PLAIN_LINES, 1) == 0:
                self.say(
                    f"{title:<28}  {tally.ended:>4} of {tally.total}  {tally.rate:>6,.0f} jobs/s  "
                    f"p95 {tally.p95_ms:>4,.0f} ms from add to end"
                )

        return show

    def close(self, seconds: float) -> None:
        """The table, and how it all went."""
        if self._screen.as_json:
            return
        if self._reports:
            titles = ("step", "protocol", "jobs", "completed", "dead", "retries", "jobs/s", "p95 add to end")
            self.say("")
            self._screen.table(titles, [_row(report) for report in self._reports])
            for report in self._reports:
                if report.remark:
                    self.say(report.remark)
        self.say("")
        if self._failed:
            self._screen.line(Text(f"failed: {', '.join(self._failed)}", "bold red"))
        else:
            self._screen.line(Text(f"done in {seconds:.1f} s", "green"))


def _row(report: Report) -> list[str]:
    counts = (report.jobs, report.completed, report.dead, report.retries)
    return [
        report.title,
        report.protocol,
        *(f"{count:,}" for count in counts),
        f"{report.rate:,.0f}",
        f"{report.p95_ms:,.0f} ms",
    ]


async def work_off(
    app: Corral, title: str, total: int, produce: Callable[[], Awaitable[Any]], stage: Stage, concurrency: int
) -> Tally:
    """The tally of `total` jobs that `produce` adds while a worker runs them."""
    with stage.bar(title, total) as show:
        tally = Tally(total, app.clock, show)
        [worker] = app.workers(concurrency=concurrency, listener=tally.hear)
        try:
            async with asyncio.timeout(LONGEST_STEP_S):
                await _until_finished(worker, tally, produce)
        except TimeoutError:
            raise Broken(f"only {tally.ended} of {total} jobs ended within {LONGEST_STEP_S:.0f} s") from None
    return tally


async def _until_finished(worker: Worker, tally: Tally, produce: Callable[[], Awaitable[Any]]) -> None:
    working = asyncio.create_task(worker.run())
    finished = asyncio.create_task(tally.finished.wait())
    try:
        await produce()
        await asyncio.wait([working, finished], return_when=asyncio.FIRST_COMPLETED)
    finally:
        finished.cancel()
        await worker.stop(1.0)
        with suppress(asyncio.CancelledError):
            await working


def expect(what: str, found: object, wanted: object) -> None:
    """Refuse a result that is not the right one."""
    if found != wanted:
        raise Broken(f"{what}: {found}, and it should be {wanted}")
