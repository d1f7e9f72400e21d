"""`corral events`: what happens, as it happens."""

import asyncio
import re
import select
import sys
from contextlib import aclosing, suppress
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from corral.cli.looking import look
from corral.cli.screen import Screen, moment, printable, shown
from corral.cli.session import FAILED, Here, QueuesArgument, at_server
from corral.core.event import EventKind, JobEvent
from corral.errors import CorralError, InvalidOptions
from corral.queue import Queue

LOOK_S = 0.5
"""How often it is looked whether anybody reads still."""
_POSITION = re.compile(r"[$-]|[0-9]+(-[0-9]+)?")
COLOURS: dict[str, str] = {
    EventKind.COMPLETED: "green",
    EventKind.DEAD: "red",
    EventKind.RETRY: "yellow",
    EventKind.STALLED: "yellow",
    EventKind.ACTIVE: "cyan",
}


@at_server
async def tail(
    here: Here,
    queue: QueuesArgument = None,
    after: Annotated[
        str, typer.Option("--from", metavar="ID", help="Events later than this id; - from the first kept.")
    ] = "$",
    count: Annotated[int | None, typer.Option(min=1, help="End after so many events.")] = None,
) -> int | None:
    """Follow events until Ctrl-C, or --count of them; without a queue, of every one there is now."""
    _check(after)
    queues = [await here.readable(queue)] if queue else await _used(here)
    if not queues:
        told = f"no queues are in use at {here.dialled}; name one to wait for its events"
        here.screen.fail(CorralError(told))
        return FAILED
    await _follow(queues, after, count, here.screen)
    return None


async def _used(here: Here) -> list[Queue]:
    """Every queue of these protocols that anything was ever done with."""
    looks = await asyncio.gather(*map(look, await here.every()))
    return [seen.queue for seen in looks if seen.is_used]


def _check(after: str) -> None:
    if not _POSITION.fullmatch(after):
        raise InvalidOptions(
            f"--from {after!a} is no event id; use one such as 1700000000000-0, "
            f"- (from the first that is kept) or $ (only new ones)"
        )


async def _follow(queues: list[Queue], after: str, count: int | None, screen: Screen) -> None:
    """Print the events of all these queues as they come, until there were enough."""
    coming: asyncio.Queue[JobEvent] = asyncio.Queue(maxsize=1000)

    async def listen(queue: Queue) -> None:
        async with aclosing(queue.events.tail(after)) as events:
            async for event in events:
                await coming.put(event)

    async def tell() -> None:
        left = count
        while left is None or left > 0:
            say_event(await coming.get(), screen)
            left = None if left is None else left - 1

    listening = [asyncio.create_task(listen(queue)) for queue in queues]
    # a listener ends only by an error, such as a key of the wrong type
    tasks = [asyncio.create_task(tell()), asyncio.create_task(_nobody_reads()), *listening]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _nobody_reads() -> None:
    """Return when the other end of the pipe is closed: `… | head -1` need not wait for another event."""
    watch = select.poll()
    with suppress(OSError, ValueError):  # not every output is a file
        watch.register(sys.stdout.fileno(), 0)
    while True:
        if watch.poll(0):
            return
        await asyncio.sleep(LOOK_S)


def say_event(event: JobEvent, screen: Screen) -> None:
    """Print one event."""
    if screen.as_json:
        screen.document(msgspec.to_builtins(event))
        return
    screen.line(
        Text(moment(event.at), "dim"),
        Text(event.id, "dim"),
        Text(event.protocol, "dim"),
        event.queue,
        Text(f"{printable(event.kind):<10}", COLOURS.get(event.kind, "")),
        *(part for part in (event.job_id, event.name, event.worker) if part),
        *([shown(event.data)] if event.data is not None else []),
    )
