"""`corral events`: follow job events."""

import asyncio
import re
import select
import sys
from contextlib import aclosing, suppress
from typing import Annotated

import msgspec
import typer
from rich.text import Text
from typer import Option

from corral.cli.options import OptionalQueue
from corral.cli.output import Output, json_text, printable, time_text
from corral.cli.session import Session, at_server
from corral.cli.status import in_use
from corral.core.event import EventKind, JobEvent
from corral.errors import CorralError, InvalidOptions
from corral.queue import Queue

POLL_S = 0.5
"""Between two checks whether the output is still read."""
_POSITION = re.compile(r"[$-]|[0-9]+(-[0-9]+)?")
COLOURS: dict[str, str] = {
    EventKind.COMPLETED: "green",
    EventKind.DEAD: "red",
    EventKind.RETRY: "yellow",
    EventKind.STALLED: "yellow",
    EventKind.ACTIVE: "cyan",
}

group = typer.Typer(help="Follow job events.", no_args_is_help=True)


@group.command("tail")
@at_server
async def tail(
    session: Session,
    queue_name: OptionalQueue = None,
    after: Annotated[
        str, Option("--from", metavar="ID", help="Only events after this id; -: from the first one kept.")
    ] = "$",
    count: Annotated[int | None, Option(min=1, help="Stop after so many events.")] = None,
) -> None:
    """Follow the events of queues until Ctrl-C, or --count of them.

    Without a queue: the events of every queue that is in use now.
    """
    if not _POSITION.fullmatch(after):
        raise InvalidOptions(
            f"--from {after!a} is not an event id; use one such as 1700000000000-0, "
            f"- (from the first one kept) or $ (only new ones)"
        )
    if queue_name is None:
        queues = [status.queue for status in await in_use(await session.queues())]
    else:
        queues = [await session.find_or_default(queue_name)]
    if not queues:
        raise CorralError(f"no queues are in use at {session.address}; name a queue to wait for its events")
    await _follow(queues, after, count, session.output)


async def _follow(queues: list[Queue], after: str, count: int | None, output: Output) -> None:
    """Print the events of all these queues as they come, at most `count` of them."""
    incoming: asyncio.Queue[JobEvent] = asyncio.Queue(maxsize=1000)

    async def read(queue: Queue) -> None:
        async with aclosing(queue.events.tail(after)) as events:
            async for event in events:
                await incoming.put(event)

    async def write() -> None:
        left = count
        while left is None or left > 0:
            print_event(await incoming.get(), output)
            left = None if left is None else left - 1

    # a reader ends only by an error, such as a key of the wrong type
    work = [write(), _until_output_closes(), *map(read, queues)]
    tasks = [asyncio.create_task(part) for part in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_output_closes() -> None:
    """Return when the other end of a pipe is closed: `… | head -1` need not wait for another event."""
    poll = select.poll()
    with suppress(OSError, ValueError):  # not every output is a file
        poll.register(sys.stdout.fileno(), 0)
    while True:
        if poll.poll(0):
            return
        await asyncio.sleep(POLL_S)


def print_event(event: JobEvent, output: Output) -> None:
    """Print one event."""
    if output.as_json:
        output.document(msgspec.to_builtins(event))
        return
    output.line(
        Text(time_text(event.at), "dim"),
        Text(event.id, "dim"),
        Text(event.protocol, "dim"),
        event.queue,
        Text(f"{printable(event.kind):<10}", COLOURS.get(event.kind, "")),
        *(part for part in (event.job_id, event.name, event.worker) if part),
        *([json_text(event.data)] if event.data is not None else []),
    )
