"""Session: a command at a server. Commands run on one event loop; errors become lines and exit codes."""

import asyncio
import getpass
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import typer

from corral.app import Corral
from corral.audit import AuditLog, detail_of
from corral.cli.hints import add_hint
from corral.cli.option_groups import with_groups
from corral.cli.options import ServerOptions
from corral.cli.output import Output
from corral.cli.status import in_use
from corral.errors import (
    CorralError,
    EmbeddedServerError,
    InvalidOptions,
    RedisError,
    RedisResponseError,
    Refused,
)
from corral.protocols.base import Protocol
from corral.queue import Queue
from corral.running import loop_factory
from corral.store.address import without_password
from corral.telemetry.logs import logger

FAILED = 1
"""Exit code: the command did not succeed for every job, or what it names does not exist."""
INVALID = 2
"""Exit code: the command is invalid and nothing was written; also typer's own code for a usage error."""
UNAVAILABLE = 3
"""Exit code: Redis is unavailable."""


class NoQueue(CorralError):
    """There is no such queue."""


@dataclass(frozen=True)
class Session:
    """One command at one server: the app, the output and the options."""

    app: Corral
    output: Output
    options: ServerOptions

    @property
    def protocols(self) -> list[Protocol]:
        """The protocol that was named, else all of them."""
        return self.options.protocols

    @property
    def address(self) -> str:
        """The server's address without its password."""
        return without_password(self.app.url)

    async def queues(self, name: str | None = None) -> list[Queue]:
        """Return the queue of that name; without one, every queue of these protocols."""
        return await self.options.queues(self.app) if name is None else [await self.find(name)]

    async def find(self, name: str) -> Queue:
        """Return the queue of that name in any protocol; `NoQueue` lists the queues that exist."""
        queues = await self.queues()
        matches = [queue for queue in queues if queue.name == self.app.queue_name(queue.protocol, name)]
        if len(matches) > 1:
            matches = [status.queue for status in await in_use(matches)] or matches[:1]
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = " and ".join(queue.protocol.spec.name for queue in matches)
            raise InvalidOptions(f"queue {name!a} is in the protocols {names}; choose one with --protocol")
        where = f"protocol {self.protocols[0].spec.name!r}" if len(self.protocols) == 1 else "any protocol"
        existing = ", ".join(f"{queue.name!a} ({queue.protocol.spec.name})" for queue in queues) or "none yet"
        raise NoQueue(f"no queue {name!a} in {where} at {self.address}; there are: {existing}")

    async def find_or_default(self, name: str) -> Queue:
        """Return the queue of that name; where none exists, the one of the default protocol, for reading."""
        if self.options.protocol is None:
            try:
                return await self.find(name)
            except NoQueue:
                pass  # its jobs and events may be gone, or are still to come
        return Queue(self.app, self.options.default_protocol, name, is_read=True)

    def confirm(self, question: str, is_confirmed: bool) -> None:
        """Ask at the terminal; raise an error where the answer is no, or where there is no terminal."""
        if is_confirmed:
            return
        if not sys.stdin.isatty():
            raise InvalidOptions(
                f"{question}? There is no terminal to ask at; use --yes to confirm. Nothing was changed"
            )
        if not typer.confirm(f"{question}?", err=True):
            raise CorralError("nothing was changed")


CHANGES = frozenset(
    {
        *(f"queue {verb}" for verb in ("add", "pause", "resume", "drain", "clean", "retry")),
        *(f"job {verb}" for verb in ("retry", "promote", "remove", "cancel")),
        *(f"dlq {verb}" for verb in ("replay", "discard")),
        *(f"schedule {verb}" for verb in ("run", "pause", "resume", "prune")),
    }
)
"""The commands that are recorded in the audit log."""
SERVER_PARAMETERS = frozenset(option.name for option in fields(ServerOptions))
"""Options that say where the server is: an address may contain a password."""

Run = Callable[..., Awaitable[int | None]]
"""`run(session, …)` of a command; it returns the exit code, None for success."""


def at_server(run: Run) -> Callable[..., None]:
    """Return a command that runs in a session, with the options of `ServerOptions` besides its own."""

    def command(context: typer.Context, server: ServerOptions, **arguments: Any) -> None:
        options = server.merged(context)
        output = Output(options.as_json)

        async def connect_and_run() -> int | None:
            async with options.app() as app:
                await app.store().check_connection()
                code = await run(Session(app, output, options), **arguments)
                if context.info_name and _group_and_name(context) in CHANGES:
                    await _record(app, options, context, code)
                return code

        run_command(output, connect_and_run())

    common = inspect.signature(command).parameters
    own = list(inspect.signature(run).parameters.values())[1:]
    return with_groups(command, [common["context"], *own, common["server"]], run.__doc__)


def _group_and_name(context: typer.Context) -> str:
    return " ".join(context.command_path.split()[-2:])


async def _record(app: Corral, options: ServerOptions, context: typer.Context, code: int | None) -> None:
    """Record a change in the audit log."""
    values = {name: value for name, value in context.params.items() if name not in SERVER_PARAMETERS}
    subject = values.pop("job_id", None) or values.pop("schedule_id", None)
    try:
        await AuditLog(app.store()).record(
            actor=getpass.getuser(),
            via="cli",
            action=_group_and_name(context),
            protocol=options.protocol or "",
            queue=str(values.pop("queue_name", None) or ""),
            subject=str(subject or ""),
            outcome=str(code or 0),
            detail=detail_of(values),
        )
    except RedisResponseError as error:
        # the change itself was made
        logger("cli").warning("the audit log cannot be written", error=str(error))


def run_command(output: Output, work: Coroutine[Any, Any, int | None]) -> None:
    """Run a coroutine to its end, on uvloop where that is installed, and exit with the code it returns."""
    with errors_to(output), asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(work)
    raise typer.Exit(code or 0)


@contextmanager
def errors_to(output: Output) -> Iterator[None]:
    """Print Corral's errors, and exit with the code of their kind."""
    try:
        yield
    except CorralError as error:
        if isinstance(error, RedisError):
            add_hint(error)
        output.error(error)
        raise typer.Exit(exit_code(error)) from None


def exit_code(error: CorralError) -> int:
    """Return the exit code for an error."""
    match error:
        case Refused():
            return INVALID
        case RedisError() | EmbeddedServerError():
            return UNAVAILABLE
    return FAILED
