"""`corral top`: queues, rates, times and workers, live from the event logs."""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typer import Option

from corral.cli.output import Output, as_text, printable, time_text
from corral.cli.rates import QueueRates, RateMeter
from corral.cli.session import Session, at_server
from corral.cli.status import QueueStatus, status_of
from corral.core.event import EventColumns, EventKind
from corral.core.job import JobState
from corral.errors import RedisError, RedisResponseError, RedisWrongTypeError
from corral.queue import Queue

READ_S = 0.25
"""Between two reads of the event logs."""
PAGE = 2000
MAX_PAGES = 10
"""Pages of one log per read; a log that grows faster is skipped to its end, and its rates are minimums."""
DISCOVERY_S = 5.0
"""Between two searches for new queues."""
MAX_DEAD = 5
TITLES = ("queue", "protocol", "waiting", "delayed", "active", "dead", "workers", "added/s", "done/s",
          "dead/s", "retries/s", "p95 wait", "p95 run")  # fmt: skip


@dataclass(frozen=True)
class DeadJob:
    """A job that ended dead since the monitor was started."""

    queue: Queue
    job_id: str
    at: int


@dataclass
class QueueMonitor:
    """Reads the event log of one queue."""

    queue: Queue
    position: str
    meter: RateMeter
    is_behind: bool = False

    async def read(self, dead: deque[DeadJob]) -> None:
        """Read the events since the last read; append the jobs that ended dead."""
        with suppress(RedisWrongTypeError):  # its row says so, and the other queues go on
            await self._read(dead)

    async def _read(self, dead: deque[DeadJob]) -> None:
        log = self.queue.events
        self.is_behind = False
        for _ in range(MAX_PAGES):
            page = await log.page(self.position, "+", PAGE)
            self._count(page.columns, dead)
            self.position = page.last or self.position
            if page.seen < PAGE:
                return
        self.is_behind = True
        self.position = (await log.extent()).last or self.position

    def _count(self, columns: EventColumns, dead: deque[DeadJob]) -> None:
        kinds, ids = [list(map(_text, column)) for column in (columns.kinds, columns.job_ids)]
        self.meter.add(zip(map(str, kinds), ids, columns.at, strict=True), monotonic())
        for kind, job_id, at in zip(kinds, ids, columns.at, strict=True):
            if kind == EventKind.DEAD and job_id is not None:
                dead.append(DeadJob(self.queue, job_id, at))


@dataclass
class ServerMonitor:
    """Monitors all queues of a server."""

    session: Session
    queues: dict[tuple[str, str], QueueMonitor] = field(default_factory=dict)
    dead: deque[DeadJob] = field(default_factory=lambda: deque(maxlen=MAX_DEAD))
    discovered_at: float = 0.0

    async def discover(self, is_first: bool = False) -> None:
        """Monitor new queues: from their beginning, those of the first call from now on."""
        for queue in await self.session.queues():
            key = queue.protocol.spec.name, queue.name
            if key not in self.queues:
                last = None
                with suppress(RedisWrongTypeError):  # its row says so
                    last = (await queue.events.extent()).last if is_first else None
                self.queues[key] = QueueMonitor(queue, last or "-", RateMeter(monotonic()))
        self.discovered_at = monotonic()

    async def follow(self, seconds: float) -> None:
        """Read every log again and again for so long; an outage is left to `rows` to report."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            await asyncio.sleep(min(READ_S, left))
            try:
                if monotonic() - self.discovered_at > DISCOVERY_S:
                    await self.discover()
                await asyncio.gather(*(monitor.read(self.dead) for monitor in self.queues.values()))
            except RedisResponseError:
                raise  # it would be refused again
            except RedisError:
                continue

    async def rows(self) -> list["TopRow"]:
        """Return every queue that is in use, with its rates."""
        statuses = await asyncio.gather(*(status_of(monitor.queue) for monitor in self.queues.values()))
        now = monotonic()
        return [
            TopRow(status, monitor.meter.rates(now), monitor.is_behind)
            for monitor, status in zip(self.queues.values(), statuses, strict=True)
            if status.is_used
        ]

    async def latest_dead(self) -> list[tuple[DeadJob, str]]:
        """Return the last jobs that ended dead with their reasons, latest first."""
        dead = list(reversed(self.dead))
        reasons = await asyncio.gather(*map(_reason, dead))
        return list(zip(dead, reasons, strict=True))


async def _reason(dead: DeadJob) -> str:
    try:
        job = await dead.queue.job(dead.job_id)
    except RedisWrongTypeError as error:
        return str(error)
    return (job and job.reason) or ""


@dataclass(frozen=True)
class TopRow:
    """One queue at one moment."""

    status: QueueStatus
    rates: QueueRates
    is_behind: bool

    @property
    def document(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            **self.status.document,
            "per_second": self.rates.per_second,
            "p95_wait_ms": self.rates.wait_p95_ms,
            "p95_run_ms": self.rates.run_p95_ms,
            "is_behind": self.is_behind,
        }

    @property
    def cells(self) -> list[str | Text]:
        """The row as text."""
        status, counts = self.status, self.status.counts
        protocol = status.queue.protocol.spec.name
        dead = counts.get(JobState.DEAD)
        minimum = "≥" if self.is_behind else ""
        kinds = (EventKind.ADDED, EventKind.COMPLETED, EventKind.DEAD, EventKind.RETRY)
        return [
            status.queue.name,
            Text(f"{protocol} paused", "yellow")
            if status.is_paused
            else Text(f"{protocol} broken", "red") if status.error else protocol,
            *("–" if state not in counts else f"{counts[state]:,}"
              for state in (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE)),
            "–" if dead is None else Text(f"{dead:,}", "red" if dead else ""),
            Text(str(len(status.workers)), "" if status.workers else "yellow"),
            *(f"{minimum}{self.rates.per_second[kind]:,.1f}" for kind in kinds),
            _duration(self.rates.wait_p95_ms),
            _duration(self.rates.run_p95_ms),
        ]  # fmt: skip


@at_server
async def command(
    session: Session,
    interval: Annotated[float, Option(min=0.2, max=60, help="Seconds between updates.")] = 2.0,
    once: Annotated[bool, Option("--once", help="Print one update, and exit.")] = False,
) -> None:
    """Monitor queues, rates, times and workers until Ctrl-C.

    Rates and times are those of the last ten seconds. Without a terminal, or with --json, each update is
    printed below the last.
    """
    monitor, output = ServerMonitor(session), session.output
    await monitor.discover(is_first=True)
    if once:
        await monitor.follow(interval)
        await _print(monitor, output)
    elif output.as_json or not output.console.is_terminal:
        await _print_repeatedly(monitor, output, interval)
    else:
        await _draw(monitor, session, interval)


async def _print_repeatedly(monitor: ServerMonitor, output: Output, interval: float) -> None:
    is_unavailable = False
    while True:
        await monitor.follow(interval)
        try:
            await _print(monitor, output)
            is_unavailable = False
        except RedisResponseError:
            raise  # it would be refused again
        except RedisError as error:
            if not is_unavailable:  # reported once per outage
                output.error(error)
            is_unavailable = True


async def _print(monitor: ServerMonitor, output: Output) -> None:
    rows = await monitor.rows()
    output.listing(rows, lambda row: row.document, TITLES, lambda row: row.cells, "no queues yet")


async def _draw(monitor: ServerMonitor, session: Session, interval: float) -> None:
    with Live(Text("…"), console=session.output.console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                screen = await _screen(monitor, session)
            except RedisError as error:
                screen = Text(printable(f"Redis is unavailable: {error}; retrying"), "bold red")
            live.update(screen, refresh=True)
            await monitor.follow(interval)


async def _screen(monitor: ServerMonitor, session: Session) -> RenderableType:
    rows = await monitor.rows()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(TITLES):
        table.add_column(title, justify="left" if number < 2 else "right", overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*(as_text(cell) for cell in row.cells))
    done = sum(row.rates.per_second[EventKind.COMPLETED] for row in rows)
    waiting = sum(row.status.counts.get(JobState.WAITING, 0) for row in rows)
    heading = Text.assemble(
        ("corral top ", "bold"), (printable(session.address), "dim"),
        f"  {len(rows)} queues, {waiting:,} waiting, {done:,.1f} done/s  ", ("Ctrl-C to exit", "dim"),
    )  # fmt: skip
    parts: list[RenderableType] = [heading, Text(""), table if rows else Text("no queues yet")]
    if dead := await monitor.latest_dead():
        parts += [Text(""), Text("latest dead jobs", "bold")]
        parts += [
            Text.assemble(
                (time_text(entry.at), "dim"),
                f"  {printable(entry.queue.name)}  {printable(entry.job_id)}  ",
                (printable(reason)[:100], "red"),
            )
            for entry, reason in dead
        ]
    return Group(*parts)


def _duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds:,.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:,.1f} s"


def _text(value: Any) -> str | None:
    """Return the text of a column, which is encoded as on the wire or decoded already."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
