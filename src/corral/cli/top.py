"""`corral top`: queues, rates, times and workers, live; read from the event logs as they are written."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from corral.cli.looking import Look, look
from corral.cli.pulse import Beat, Pulse
from corral.cli.screen import Screen, as_text, moment, printable
from corral.cli.session import Here, at_server
from corral.core.event import EventKind
from corral.core.job import JobState
from corral.core.pages import EventColumns
from corral.errors import RedisError, RedisResponseError
from corral.queue import Queue

READ_S = 0.25
"""How often the logs are read."""
PAGE = 2000
MOST_PAGES = 10
"""Pages of one log in one go; a log that is written faster is skipped to its end, and the rate is a floor."""
LOOK_FOR_QUEUES_S = 5.0
DEATHS = 5
TITLES = ("queue", "protocol", "waiting", "delayed", "active", "dead", "workers", "added/s", "done/s",
          "dead/s", "retries/s", "p95 wait", "p95 run")  # fmt: skip


@dataclass
class Watch:
    """One queue that is watched."""

    queue: Queue
    position: str
    pulse: Pulse
    is_behind: bool = False

    async def read(self, deaths: "deque[Death]") -> None:
        """Take in what was written since the last read."""
        log = self.queue.events
        self.is_behind = False
        for _ in range(MOST_PAGES):
            page = await log.page(self.position, "+", PAGE)
            self._hear(page.columns, deaths)
            self.position = page.last or self.position
            if page.seen < PAGE:
                return
        self.is_behind = True
        self.position = (await log.extent()).last or self.position

    def _hear(self, columns: EventColumns, deaths: "deque[Death]") -> None:
        kinds, ids = [list(map(_text, column)) for column in (columns.kinds, columns.job_ids)]
        self.pulse.hear(zip(map(str, kinds), ids, columns.at, strict=True), monotonic())
        for kind, job_id, at in zip(kinds, ids, columns.at, strict=True):
            if kind == EventKind.DEAD and job_id is not None:
                deaths.append(Death(self.queue, job_id, at))


@dataclass(frozen=True)
class Death:
    """A job that ended dead just now."""

    queue: Queue
    job_id: str
    at: int


@dataclass
class Floor:
    """All queues of a server that are watched."""

    here: Here
    watches: dict[tuple[str, str], Watch] = field(default_factory=dict)
    deaths: deque[Death] = field(default_factory=lambda: deque(maxlen=DEATHS))

    async def find(self, is_first: bool = False) -> None:
        """Watch queues that are not watched yet: from now on, or from their beginning where they are new."""
        for queue in await self.here.every():
            key = queue.protocol.spec.name, queue.name
            if key not in self.watches:
                last = (await queue.events.extent()).last if is_first else None
                self.watches[key] = Watch(queue, last or "-", Pulse(monotonic()))

    async def follow(self) -> None:
        """Read every log again and again; an outage is waited for."""
        found_at = monotonic()
        while True:
            await asyncio.sleep(READ_S)
            try:
                if monotonic() - found_at > LOOK_FOR_QUEUES_S:
                    await self.find()
                    found_at = monotonic()
                await self.read()
            except RedisResponseError:
                raise  # it will be refused again
            except RedisError:
                continue  # the next look says it aloud

    async def read(self) -> None:
        """Read every log once."""
        await asyncio.gather(*(watch.read(self.deaths) for watch in self.watches.values()))

    async def rows(self) -> list["Row"]:
        """Every queue that is used, as it stands now."""
        looks = await asyncio.gather(*(look(watch.queue) for watch in self.watches.values()))
        now = monotonic()
        return [
            Row(seen, watch.pulse.beat(now), watch.is_behind)
            for watch, seen in zip(self.watches.values(), looks, strict=True)
            if seen.is_used
        ]

    async def told_deaths(self) -> list[tuple[Death, str]]:
        """The last to die, the last first, each with its reason where that is known."""
        deaths = list(reversed(self.deaths))
        jobs = await asyncio.gather(*(one.queue.job(one.job_id) for one in deaths))
        return [(one, (job.reason if job else None) or "") for one, job in zip(deaths, jobs, strict=True)]


@dataclass(frozen=True)
class Row:
    """One queue at one moment."""

    seen: Look
    beat: Beat
    is_behind: bool

    @property
    def document(self) -> dict[str, Any]:
        """For programs."""
        times = {"p95_wait_ms": self.beat.wait_ms, "p95_run_ms": self.beat.run_ms}
        return {**self.seen.document, "per_second": self.beat.rates, **times, "is_behind": self.is_behind}

    @property
    def cells(self) -> list[str | Text]:
        """For people."""
        counts, rates = self.seen.counts, self.beat.rates
        dead = counts.get(JobState.DEAD)
        floor = "≥" if self.is_behind else ""
        words = (EventKind.ADDED, EventKind.COMPLETED, EventKind.DEAD, EventKind.RETRY)
        return [
            self.seen.queue.name,
            Text(f"{self.seen.queue.protocol.spec.name}{' paused' if self.seen.is_paused else ''}",
                 "yellow" if self.seen.is_paused else ""),
            *("–" if state not in counts else f"{counts[state]:,}"
              for state in (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE)),
            "–" if dead is None else Text(f"{dead:,}", "red" if dead else ""),
            Text(str(len(self.seen.workers)), "" if self.seen.workers else "yellow"),
            *(f"{floor}{rates[word]:,.1f}" for word in words),
            _duration(self.beat.wait_ms),
            _duration(self.beat.run_ms),
        ]  # fmt: skip


@at_server
async def command(
    here: Here,
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look for one interval, print it, and end.")] = False,
) -> None:
    """Watch queues, rates, times and workers until Ctrl-C.

    Rates and times are those of the last ten seconds. Without a terminal, or with --json: the same as lines.
    """
    floor = Floor(here)
    await floor.find(is_first=True)
    following = asyncio.create_task(floor.follow())
    try:
        if once:
            await _sleep(interval, following)
            await floor.read()
            await _print(floor, here.screen)
        elif here.screen.as_json or not here.screen.out.is_terminal:
            await _print_again_and_again(floor, here.screen, interval, following)
        else:
            await _draw(floor, here, interval, following)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _sleep(seconds: float, following: "asyncio.Task[None]") -> None:
    """Wait; where the reading of the logs has failed, that is raised."""
    done, _ = await asyncio.wait([following], timeout=seconds)
    for task in done:
        task.result()


async def _print_again_and_again(
    floor: Floor, screen: Screen, interval: float, following: "asyncio.Task[None]"
) -> None:
    is_away = False
    while True:
        await _sleep(interval, following)
        try:
            await _print(floor, screen)
            is_away = False
        except RedisResponseError:
            raise  # it will be refused again
        except RedisError as error:
            if not is_away:  # said once an outage
                screen.fail(error)
            is_away = True


async def _print(floor: Floor, screen: Screen) -> None:
    rows = await floor.rows()
    if screen.as_json:
        for row in rows:
            screen.document(row.document)
    elif rows:
        screen.table(TITLES, [row.cells for row in rows])
    else:
        screen.line("no queues here yet")


async def _draw(floor: Floor, here: Here, interval: float, following: "asyncio.Task[None]") -> None:
    console = here.screen.out
    with Live(Text("…"), console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                live.update(await picture(floor, here), refresh=True)
            except RedisError as error:
                live.update(Text(printable(f"no answer: {error}; trying again"), "bold red"), refresh=True)
            await _sleep(interval, following)


async def picture(floor: Floor, here: Here) -> RenderableType:
    """The whole screen."""
    rows = await floor.rows()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(TITLES):
        table.add_column(title, justify="left" if number < 2 else "right", overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*(as_text(cell) for cell in row.cells))
    done = sum(row.beat.rates[EventKind.COMPLETED] for row in rows)
    waiting = sum(row.seen.counts.get(JobState.WAITING, 0) for row in rows)
    head = Text.assemble(
        ("corral top ", "bold"), (printable(here.dialled), "dim"),
        f"  {len(rows)} queues, {waiting:,} waiting, {done:,.1f} done/s  ", ("Ctrl-C ends", "dim"),
    )  # fmt: skip
    parts: list[RenderableType] = [head, Text(""), table if rows else Text("no queues here yet")]
    if deaths := await floor.told_deaths():
        parts += [Text(""), Text("died just now", "bold")]
        parts += [_obituary(one, reason) for one, reason in deaths]
    return Group(*parts)


def _obituary(one: Death, reason: str) -> Text:
    where = f"  {printable(one.queue.name)}  {printable(one.job_id)}  "
    return Text.assemble((moment(one.at), "dim"), where, (printable(reason)[:100], "red"))


def _duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds:,.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:,.1f} s"


def _text(value: Any) -> str | None:
    """A text of a column: as it came from the wire, or decoded already."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
