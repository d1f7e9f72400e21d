"""Options and arguments that several commands share; a dataclass here is a group of options."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from corral.errors import CorralError, InvalidOptions
from corral.protocols import DEFAULT_PROTOCOL, all_protocols, protocol_named, protocol_names
from corral.telemetry import logs

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from corral.app import Corral
    from corral.core.filter import JobFilter
    from corral.core.job import JobState
    from corral.protocols.base import Protocol
    from corral.queue import Queue

COMPLETION_S = 1.0
"""How long the shell's completion waits for the names of queues."""
MAX_PORT = 65_535

UrlOption = Annotated[
    str | None, Option(metavar="URL", help="The Redis server; else REDIS_URL, else a private one.")
]
JsonOption = Annotated[bool, Option("--json", help="Print JSON, one document per line.")]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True)
class ServerOptions:
    """The server, the protocol and the output format."""

    url: UrlOption = None
    protocol: Annotated[
        str | None,
        Option(
            "--protocol",
            metavar="PROTOCOL",
            help=f"The wire protocol: {', '.join(protocol_names())}.",
            autocompletion=protocol_names,
        ),
    ] = None
    namespace: Annotated[str | None, Option(metavar="TEXT", help="The prefix of all keys.")] = None
    folder: Annotated[Path | None, Option(metavar="PATH", help="The private server's data folder.")] = None
    bullmq: Annotated[
        int | None,
        Option(metavar="5|6", help="The generation its queues of BullMQ must be of; else each queue's own."),
    ] = None
    as_json: JsonOption = False

    def merged(self, context: typer.Context) -> "ServerOptions":
        """Return these options; those it lacks are taken from before the command's name."""
        own = {name: value for name, value in vars(self).items() if value not in (None, False)}
        context.obj = options = replace(context.obj or ServerOptions(), **own)
        return options

    def app(self) -> "Corral":
        """Return a Corral with these options."""
        from corral.app import Corral

        name = self.default_protocol.spec.name
        namespaces = {} if self.namespace is None else {name: self.namespace}
        return Corral(self.url, protocol=name, namespaces=namespaces, bullmq=self.bullmq, folder=self.folder)

    @property
    def default_protocol(self) -> "Protocol":
        """The protocol that is named, else Corral's default."""
        return protocol_named(self.protocol or DEFAULT_PROTOCOL)

    @property
    def protocols(self) -> "list[Protocol]":
        """The protocol that is named (a namespace, too, belongs to one), else all of them."""
        is_one = self.protocol is not None or self.namespace is not None
        return [self.default_protocol] if is_one else all_protocols()

    async def queues(self, app: "Corral") -> "list[Queue]":
        """Return every queue of these protocols."""
        return [queue for protocol in self.protocols for queue in await app.queues(protocol.spec.name)]


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Return queue names for the shell; none without an address (no server is started for this)."""
    own, root = context.params, context.find_root().params
    url = own.get("url") or root.get("url") or os.environ.get("REDIS_URL")
    if not url:
        return []
    options = ServerOptions(url, own.get("protocol") or root.get("protocol"), own.get("namespace"))

    import asyncio

    async def names() -> list[str]:
        async with asyncio.timeout(COMPLETION_S), options.app() as app:
            return [queue.name for queue in await options.queues(app)]

    try:
        return sorted({name for name in asyncio.run(names()) if name.startswith(incomplete)})
    except (CorralError, TimeoutError):
        return []


QueueArgument = Annotated[
    str,
    Argument(
        metavar="QUEUE", help="The name of the queue.", show_default=False, autocompletion=complete_queue
    ),
]
OptionalQueue = Annotated[
    str | None,
    Argument(
        metavar="QUEUE", help="The name of the queue; default: every queue.", autocompletion=complete_queue
    ),
]
IdArgument = Annotated[str, Argument(metavar="ID", help="The id of the job.", show_default=False)]
CountOption = Annotated[int, Option("--count", min=1, help="The maximum number of jobs.")]
LimitOption = Annotated[int, Option("--limit", min=1, help="The maximum number of jobs per queue.")]


@dataclass(frozen=True)
class BulkOptions:
    """How many jobs at most, and whether to ask first."""

    limit: LimitOption = 1000
    is_confirmed: YesOption = False


@dataclass(frozen=True)
class JobSelection:
    """Which jobs are meant."""

    name: Annotated[str | None, Option(help="Only jobs of this name.")] = None
    reason: Annotated[str | None, Option(metavar="TEXT", help="Only jobs whose reason contains it.")] = None
    data: Annotated[str | None, Option(metavar="TEXT", help="Only jobs whose data contain it, as JSON.")] = (
        None
    )

    where: Annotated[
        str | None, Option(metavar="CONDITIONS", help="Only jobs that match, as 'data.user.id = 17'.")
    ] = None

    def filter(self, state: "JobState", limit: int) -> "JobFilter":
        """Return the filter that selects these jobs."""
        from corral.core.filter import JobFilter
        from corral.core.query import parse_query

        names = None if self.name is None else frozenset({self.name})
        return JobFilter(
            states=frozenset({state}),
            names=names,
            reason=self.reason,
            data=self.data,
            where=parse_query(self.where or "", time_ns() // 1_000_000),
            limit=limit,
        )

    def __str__(self) -> str:
        """The selection as the continuation of a sentence."""
        criteria = (
            (self.name, "named"),
            (self.reason, "with a reason containing"),
            (self.data, "with data containing"),
            (self.where, "that match"),
        )
        return "".join(f" {words} {value!a}" for value, words in criteria if value is not None)


def _check_level(level: str) -> str:
    if level.lower() not in logs.LEVELS:
        raise typer.BadParameter(f"{level!r} is not one of {', '.join(logs.LEVELS)}")
    return level.lower()


LogLevelOption = Annotated[
    str, Option("--log-level", help=f"One of {', '.join(logs.LEVELS)}.", callback=_check_level)
]


@dataclass(frozen=True)
class MetricsOptions:
    """Where metrics are served, if at all."""

    metrics_port: Annotated[int | None, Option(min=1, max=MAX_PORT, help="Serve metrics to Prometheus.")] = (
        None
    )
    metrics_host: Annotated[str, Option(help="The address for metrics.")] = "127.0.0.1"

    def serve(self, registry: "CollectorRegistry") -> None:
        """Serve metrics to Prometheus until the process ends, where a port is given."""
        host, port = self.metrics_host, self.metrics_port
        if port is None:
            return
        from prometheus_client import start_http_server

        try:
            start_http_server(port, host, registry=registry)
        except OSError as error:
            raise InvalidOptions(
                f"metrics cannot be served at {host}:{port} ({error.strerror or error}); "
                f"choose another --metrics-port"
            ) from None
