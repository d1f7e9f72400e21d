"""Where a command works, and how it is run: one server, one event loop, errors as lines and exit codes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from corral.app import Corral
from corral.cli.screen import Screen
from corral.errors import CorralError, NoServer, Refused, StoreFault
from corral.queue import Queue
from corral.store.connect import first_contact
from corral.wiring import ROOMS, Room, room_named

FAILED = 1
"""It was asked well and did not succeed, or what was asked for is not there."""
MISTAKEN = 2
"""What was asked cannot be done, and nothing was written; typer's own code for a wrong command line."""
UNREACHABLE = 3
"""No server, or one that does not serve."""

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server; else REDIS_URL, else a private one."),
]
RoomOption = Annotated[
    str | None, typer.Option("--room", metavar="ROOM", help=f"The wire contract: {' or '.join(ROOMS)}.")
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", metavar="TEXT", help="What the room's keys begin with.")
]
FolderOption = Annotated[
    Path | None, typer.Option("--folder", metavar="PATH", help="Where the private server keeps its data.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]


@dataclass(frozen=True)
class Where:
    """The server, the room and the way to print that a command line asked for."""

    url: str | None = None
    room: str | None = None
    namespace: str | None = None
    folder: Path | None = None
    as_json: bool = False

    def app(self) -> Corral:
        """The Corral these options mean."""
        room = self.chosen_room()
        namespaces = {} if self.namespace is None else {room.name: self.namespace}
        return Corral(self.url, room=room.name, namespaces=namespaces, folder=self.folder)

    def chosen_room(self) -> Room:
        """The room that was named, or the usual one."""
        return room_named(self.room or next(iter(ROOMS)))

    def queue(self, app: Corral, name: str) -> Queue:
        """A queue to look at: any name that may be on the wire, also one that nobody could give here."""
        return Queue(app, self.chosen_room(), name, is_read=True)


def remember(
    context: typer.Context,
    url: str | None,
    room: str | None,
    namespace: str | None,
    folder: Path | None,
    as_json: bool,
) -> Where:
    """The options of this command; what it was not given, the words before it may have been."""
    before = context.obj if isinstance(context.obj, Where) else Where()
    where = Where(
        url=url or before.url,
        room=room or before.room,
        namespace=before.namespace if namespace is None else namespace,
        folder=folder or before.folder,
        as_json=as_json or before.as_json,
    )
    context.obj = where
    return where


Act = Callable[[Corral, Screen], Awaitable[int | None]]
"""What a command does; it returns an exit code, None for success."""


def perform(where: Where, act: Act) -> None:
    """Do it on the server that was asked for; exit as it says."""

    async def at_the_server(screen: Screen) -> int | None:
        async with where.app() as app:
            await first_contact(app.store())
            return await act(app, screen)

    finish(where.as_json, at_the_server)


def finish(as_json: bool, run: Callable[[Screen], Coroutine[Any, Any, int | None]]) -> None:
    """Run to the end, and exit with its code; what Corral refuses becomes a line and a code."""
    screen = Screen(as_json)
    try:
        code = run_on_loop(run(screen))
    except CorralError as error:
        screen.fail(error)
        code = code_of(error)
    raise typer.Exit(code or 0)


def code_of(error: CorralError) -> int:
    """The exit code that tells what kind of error this was."""
    match error:
        case Refused():
            return MISTAKEN
        case StoreFault() | NoServer():
            return UNREACHABLE
    return FAILED


def run_on_loop(work: Coroutine[Any, Any, int | None]) -> int | None:
    """What the coroutine returns, run on uvloop where that is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
