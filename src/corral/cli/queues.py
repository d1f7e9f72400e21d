"""`corral queue`: what queues there are, and new jobs for them."""

import asyncio
import json
import sys
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from corral.app import Corral
from corral.cli.screen import Screen
from corral.cli.session import (
    FolderOption,
    JsonOption,
    NamespaceOption,
    RoomOption,
    UrlOption,
    perform,
    remember,
)
from corral.core.job import JobState
from corral.core.ports import WorkerInfo
from corral.errors import InvalidPayload
from corral.queue import Queue
from corral.wiring import ROOMS

STATES = (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE, JobState.COMPLETED, JobState.DEAD)


class Look(NamedTuple):
    """A queue at one moment."""

    queue: Queue
    counts: dict[JobState, int]
    is_paused: bool
    workers: list[WorkerInfo]
    events: int

    @property
    def is_used(self) -> bool:
        """Is there anything? A room with one queue by contract has it even where nobody came yet."""
        return bool(self.events or self.workers or self.is_paused or any(self.counts.values()))


def list_queues(
    context: typer.Context,
    url: UrlOption = None,
    room: RoomOption = None,
    namespace: NamespaceOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the queues: jobs by state, paused or not, workers. Without --room, those of every room."""
    where = remember(context, url, room, namespace, folder, as_json)

    async def act(app: Corral, screen: Screen) -> None:
        rooms = [where.chosen_room().name] if where.room else list(ROOMS)
        found = [queue for name in rooms for queue in await app.queues(name)]
        looks: list[Look] = await asyncio.gather(*map(_look, found))
        if where.room is None:
            looks = [look for look in looks if look.is_used]
        _show(screen, looks)

    perform(where, act)


async def _look(queue: Queue) -> Look:
    inspector = queue.inspector
    counts, is_paused, workers, extent = await asyncio.gather(
        inspector.counts(), inspector.is_paused(), inspector.workers(), queue.events.extent()
    )
    return Look(queue, counts, is_paused, workers, extent.length)


def _show(screen: Screen, looks: list[Look]) -> None:
    if screen.as_json:
        for look in looks:
            screen.document(
                {
                    "room": look.queue.room.name,
                    "queue": look.queue.name,
                    "counts": {state.value: count for state, count in look.counts.items()},
                    "paused": look.is_paused,
                    "workers": [worker.name for worker in look.workers],
                }
            )
    elif not looks:
        screen.line("no queues here yet; `corral queue add` makes one")
    else:
        screen.table(("queue", "room", *STATES, "paused", "workers"), map(_row, looks))


def _row(look: Look) -> list[str | Text]:
    return [
        look.queue.name,
        look.queue.room.name,
        # a state the room's contract does not count
        *("–" if state not in look.counts else str(look.counts[state]) for state in STATES),
        Text("paused", "yellow") if look.is_paused else "no",
        str(len(look.workers)),
    ]


def add(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue's name.", show_default=False)],
    name: Annotated[str, typer.Argument(help="The job's name: which handler runs it.", show_default=False)],
    data: Annotated[
        str, typer.Argument(metavar="[JSON]", help="The job's data; - reads it from a pipe.")
    ] = "{}",
    job_id: Annotated[str | None, typer.Option("--id", help="An id of your own.")] = None,
    delay: Annotated[int | None, typer.Option(help="Milliseconds to wait before it may run.")] = None,
    priority: Annotated[int | None, typer.Option(help="Lower runs earlier; 0 (none) runs first.")] = None,
    attempts: Annotated[int | None, typer.Option(help="How often it may run.")] = None,
    backoff: Annotated[
        str | None, typer.Option(help="Between attempts: milliseconds, fixed, exponential, or JSON.")
    ] = None,
    lifo: Annotated[bool, typer.Option("--lifo", help="Run it next.")] = False,
    ttl: Annotated[int | None, typer.Option(help="Seconds it is kept (room streams).")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key gives the same job (room streams).")
    ] = None,
    url: UrlOption = None,
    room: RoomOption = None,
    namespace: NamespaceOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add one job, and print its id."""
    where = remember(context, url, room, namespace, folder, as_json)
    asked = {
        "delay": delay,
        "priority": priority,
        "attempts": attempts,
        "backoff": _backoff(backoff),
        "lifo": lifo or None,
        "ttl_s": ttl,
        "idempotency_key": idempotency_key,
    }

    async def act(app: Corral, screen: Screen) -> None:
        options = {option: value for option, value in asked.items() if value is not None}
        job = await app.queue(queue).add(name, read_json(data), id=job_id, **options)
        if screen.as_json:
            screen.document({"room": where.chosen_room().name, "queue": queue, "id": job.id})
        else:
            screen.line(job.id)

    perform(where, act)


def _backoff(given: str | None) -> Any:
    """The option as the API takes it; what it is not, the API says."""
    if given is None or not given.lstrip().startswith(("{", *"+-0123456789")):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given


def read_json(text: str) -> Any:
    """The data that was written on the command line, or piped in for `-`."""
    if text == "-":
        text = sys.stdin.read()
    try:
        # not orjson: it would round an integer beyond 64 bits where the API refuses it by name
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise InvalidPayload("the data is nested too deeply; flatten it") from None
    except ValueError as error:
        raise InvalidPayload(
            f"the data is no JSON ({error}); quote it for the shell, as in '{{\"to\": \"a@b.c\"}}'"
        ) from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")
