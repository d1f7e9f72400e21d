"""`corral worker`: run the handlers of an app until a signal comes."""

import os
from typing import Annotated, Any

import typer
from prometheus_client import CollectorRegistry, start_http_server

from corral.app import GRACE_S, Corral
from corral.cli.loading import load
from corral.cli.screen import Screen
from corral.cli.session import JsonOption, UrlOption, finish, remember
from corral.errors import InvalidOptions
from corral.store.address import without_password
from corral.telemetry import logs
from corral.telemetry.metrics import ProtocolGauges
from corral.worker import DEFAULT_CONCURRENCY

MOST_PORT = 65_535
ASK_S = 3.0
"""How long a scrape waits for the server's own numbers."""


def command(
    context: typer.Context,
    app: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Where the Corral is, such as shop.mail:app.")
    ],
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Jobs at a time in each queue.")] = (
        DEFAULT_CONCURRENCY
    ),
    queues: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help="A queue to serve (again for more); else all.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The worker's name; else made of host, process and chance.")
    ] = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds running jobs have after a signal.")] = GRACE_S,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=MOST_PORT, help="Serve Prometheus metrics at this port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address that port listens on.")] = "127.0.0.1",
    log_level: Annotated[str, typer.Option(help=f"One of {', '.join(logs.LEVELS)}.")] = "info",
    server_id: Annotated[
        str | None, typer.Option("--server-id", help="The worker's id where jobs are routed; else its name.")
    ] = None,
    stack: Annotated[
        list[str] | None,
        typer.Option("--stack", help="What it is built on (again, or by commas); else python."),
    ] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option("--capability", help="What it can do, such as gpu (again, or by commas)."),
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="Where it is, such as us-east (again, or by commas).")
    ] = None,
    url: UrlOption = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", metavar="PROTOCOL", help="Serve only this protocol.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Work: run an app's handlers until SIGINT or SIGTERM; a second signal ends at once.

    --json writes the log as JSON lines; the log goes to standard error.
    """
    where = remember(context, url, protocol, None, None, as_json)
    for option, value in (("--namespace", where.namespace), ("--folder", where.folder)):
        if value is not None:
            raise typer.BadParameter("the app itself says so: Corral(…)", param_hint=option)
    if log_level.lower() not in logs.LEVELS:
        known = ", ".join(logs.LEVELS)
        raise typer.BadParameter(f"{log_level!r} is none of {known}", param_hint="--log-level")

    identity = _identity(server_id, stack, capability, region)

    async def work(screen: Screen) -> None:
        if where.url is not None:
            # before the module is imported: a Corral without an address of its own reads it
            os.environ["REDIS_URL"] = where.url
        corral = load(app)
        if where.url is not None:
            _check_address(app, corral, where.url)
        logs.configure(log_level, json=True if where.as_json else None)
        if metrics_port is not None:
            corral.metrics.registry.register(ProtocolGauges(lambda: corral.sync(corral.gauges(), ASK_S)))
            serve_metrics(corral.metrics.registry, metrics_host, metrics_port)
        async with corral:
            await corral.run(
                concurrency=concurrency,
                grace=grace,
                queues=queues,
                protocol=where.protocol,
                name=name,
                **identity,
            )

    finish(where.as_json, work)


def _identity(
    server_id: str | None, stack: list[str] | None, capability: list[str] | None, region: list[str] | None
) -> dict[str, Any]:
    """What the worker says of itself, as far as it was given."""
    told: dict[str, Any] = {} if server_id is None else {"server_id": server_id}
    for part, option, given in (
        ("stack", "--stack", stack),
        ("capabilities", "--capability", capability),
        ("region", "--region", region),
    ):
        words = [word.strip() for text in given or () for word in text.split(",")]
        if not all(words):
            raise typer.BadParameter("a word is empty; use words such as gpu,cuda", param_hint=option)
        if words:
            told[part] = words
    return told


def _check_address(spelled: str, corral: Corral, url: str) -> None:
    if corral.url != url:
        raise InvalidOptions(
            f"{spelled} has an address of its own, {without_password(corral.url)}, so --url cannot be kept; "
            f"leave --url out, or write Corral() without one"
        )


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> None:
    """Serve these metrics to Prometheus until the process ends."""
    try:
        start_http_server(port, host, registry=registry)
    except OSError as error:
        raise InvalidOptions(
            f"metrics cannot be served at {host}:{port} ({error.strerror or error}); "
            f"choose another --metrics-port"
        ) from None
