"""Where a command works, and how it is run: one server, one event loop, errors as lines and exit codes."""

import asyncio
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from corral.app import Corral
from corral.cli.advice import advise
from corral.cli.looking import look
from corral.cli.screen import Screen
from corral.errors import CorralError, EmbeddedServerError, InvalidOptions, RedisError, Refused
from corral.protocols import DEFAULT_PROTOCOL, PROTOCOLS, Protocol, protocol_named, protocol_names
from corral.queue import Queue
from corral.store.address import without_password

FAILED = 1
"""It was asked well and did not succeed, or what was asked for is not there."""
MISTAKEN = 2
"""What was asked cannot be done, and nothing was written; typer's own code for a wrong command line."""
UNREACHABLE = 3
"""No server, or one that does not serve."""
COMPLETION_S = 1.0
"""How long a shell waits for names."""

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server; else REDIS_URL, else a private one."),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="PROTOCOL",
        help=f"The wire contract: {' or '.join(protocol_names())}.",
        autocompletion=protocol_names,
    ),
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", metavar="TEXT", help="What the protocol's keys begin with.")
]
FolderOption = Annotated[
    Path | None, typer.Option("--folder", metavar="PATH", help="Where the private server keeps its data.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


@dataclass(frozen=True)
class Where:
    """The server, the protocol and the way to print that a command line asked for."""

    url: str | None = None
    protocol: str | None = None
    namespace: str | None = None
    folder: Path | None = None
    as_json: bool = False

    def app(self) -> Corral:
        """The Corral these options mean."""
        protocol = self.chosen_protocol()
        namespaces = {} if self.namespace is None else {protocol.spec.name: self.namespace}
        return Corral(self.url, protocol=protocol.spec.name, namespaces=namespaces, folder=self.folder)

    def chosen_protocol(self) -> Protocol:
        """The protocol that was named, or the usual one."""
        return protocol_named(self.protocol or DEFAULT_PROTOCOL)

    def queue(self, app: Corral, name: str) -> Queue:
        """A queue to look at: any name that may be on the wire, also one that nobody could give here."""
        return Queue(app, self.chosen_protocol(), name, is_read=True)


def remember(
    context: typer.Context,
    url: str | None,
    protocol: str | None,
    namespace: str | None,
    folder: Path | None,
    as_json: bool,
) -> Where:
    """The options of this command; what it was not given, the words before it may have been."""
    before = context.obj if isinstance(context.obj, Where) else Where()
    where = Where(
        url=url or before.url,
        protocol=protocol or before.protocol,
        namespace=before.namespace if namespace is None else namespace,
        folder=folder or before.folder,
        as_json=as_json or before.as_json,
    )
    context.obj = where
    return where


class NoQueue(CorralError):
    """There is no such queue."""


@dataclass(frozen=True)
class Here:
    """Where a verb works: an app at a server that answers, and a screen."""

    app: Corral
    screen: Screen
    where: Where

    @property
    def protocols(self) -> list[Protocol]:
        """The protocol that was asked for, or all of them."""
        is_one_meant = self.where.protocol is not None or self.where.namespace is not None
        return [self.where.chosen_protocol()] if is_one_meant else list(PROTOCOLS)

    @property
    def dialled(self) -> str:
        """The server's address as it may be shown."""
        return without_password(self.app.url)

    async def every(self) -> list[Queue]:
        """Every queue of these protocols."""
        return [queue for protocol in self.protocols for queue in await self.app.queues(protocol.spec.name)]

    async def find(self, name: str) -> Queue:
        """The queue of that name, in whichever protocol has it; `NoQueue` tells which there are."""
        queues = await self.every()
        found = [queue for queue in queues if queue.name == self.app.queue_name(queue.protocol, name)]
        if len(found) > 1:
            used = [seen.queue for seen in await asyncio.gather(*map(look, found)) if seen.is_used]
            found = used or found[:1]
        if len(found) == 1:
            return found[0]
        if found:
            names = " and ".join(queue.protocol.spec.name for queue in found)
            raise InvalidOptions(f"queue {name!a} is in the protocols {names}; choose one with --protocol")
        place = f"protocol {self.protocols[0].spec.name!r}" if len(self.protocols) == 1 else "any protocol"
        known = ", ".join(f"{queue.name!a} ({queue.protocol.spec.name})" for queue in queues) or "none yet"
        raise NoQueue(f"no queue {name!a} in {place} at {self.dialled}; there are: {known}")

    async def readable(self, name: str) -> Queue:
        """That queue where it is there, else the one of the usual protocol: it may have had jobs once."""
        if self.where.protocol is not None:
            return self.where.queue(self.app, name)
        try:
            return await self.find(name)
        except NoQueue:
            return self.where.queue(self.app, name)

    def agree(self, what: str, is_agreed: bool) -> bool:
        """Is this to be done? Asked at the terminal; refused where there is none and nobody said --yes."""
        if is_agreed:
            return True
        if not sys.stdin.isatty():
            raise InvalidOptions(
                f"{what}? There is no terminal to ask at; say --yes to do it. Nothing was changed"
            )
        if typer.confirm(f"{what}?", err=True):
            return True
        self.screen.fail(CorralError("nothing was changed"))
        return False


P = ParamSpec("P")


def at_server(verb: Callable[Concatenate[Here, P], Awaitable[int | None]]) -> Callable[..., None]:
    """The verb as a command: with the options of all that talk to a server, run there, exit as it says."""
    common: dict[str, tuple[Any, Any]] = {
        "url": (UrlOption, None),
        "protocol": (ProtocolOption, None),
        "namespace": (NamespaceOption, None),
        "folder": (FolderOption, None),
        "as_json": (JsonOption, False),
    }

    def command(context: typer.Context, **words: Any) -> None:
        where = remember(context, *(words.pop(name) for name in common))

        async def act(app: Corral, screen: Screen) -> int | None:
            return await verb(Here(app, screen, where), **words)  # type: ignore[call-arg]

        perform(where, act)

    only = inspect.Parameter.KEYWORD_ONLY
    own = list(inspect.signature(verb).parameters.values())[1:]
    parameters = [
        inspect.Parameter("context", only, annotation=typer.Context),
        *(parameter.replace(kind=only) for parameter in own),
        *(
            inspect.Parameter(name, only, annotation=annotation, default=default)
            for name, (annotation, default) in common.items()
        ),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__name__, command.__doc__ = getattr(verb, "__name__", "command"), verb.__doc__
    return command


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names for the shell to complete; none where no address is known, or nobody answers there."""
    given = {name: context.params.get(name) for name in ("url", "protocol", "namespace")}
    parent = context.find_root().params
    url = given["url"] or parent.get("url") or os.environ.get("REDIS_URL")
    if not url:
        return []  # a key press is no reason to start a server

    async def ask() -> list[str]:
        where = Where(url, given["protocol"] or parent.get("protocol"), given["namespace"])
        async with asyncio.timeout(COMPLETION_S), where.app() as app:
            return [queue.name for queue in await Here(app, Screen(), where).every()]

    try:
        return sorted({name for name in asyncio.run(ask()) if name.startswith(incomplete)})
    except (CorralError, TimeoutError):
        return []


QueueArgument = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False, autocompletion=queue_names),
]
QueuesArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="QUEUE", help="The queue's name; without one, every queue.", autocompletion=queue_names
    ),
]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.", show_default=False)]


Act = Callable[[Corral, Screen], Awaitable[int | None]]
"""What a command does; it returns an exit code, None for success."""


def perform(where: Where, act: Act) -> None:
    """Do it on the server that was asked for; exit as it says."""

    async def at_the_server(screen: Screen) -> int | None:
        async with where.app() as app:
            await app.store().check_connection()
            return await act(app, screen)

    finish(where.as_json, at_the_server)


def finish(as_json: bool, run: Callable[[Screen], Coroutine[Any, Any, int | None]]) -> None:
    """Run to the end, and exit with its code; what Corral refuses becomes a line and a code."""
    screen = Screen(as_json)
    try:
        code = run_on_loop(run(screen))
    except CorralError as error:
        if isinstance(error, RedisError):
            advise(error)
        screen.fail(error)
        code = code_of(error)
    raise typer.Exit(code or 0)


def code_of(error: CorralError) -> int:
    """The exit code that tells what kind of error this was."""
    match error:
        case Refused():
            return MISTAKEN
        case RedisError() | EmbeddedServerError():
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
