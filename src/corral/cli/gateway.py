"""`corral gateway`: jobs, their events and every queue by HTTP, until a signal comes."""

import asyncio
import os
from typing import Annotated

import typer

from corral.cli.screen import Screen
from corral.cli.session import JsonOption, UrlOption, code_of, remember
from corral.errors import CorralError, InvalidOptions
from corral.telemetry import logs

PORT = 8080
MOST_PORT = 65_535


def command(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen on; others than loopback need keys.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=MOST_PORT, help="The port to listen on.")] = PORT,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that serve it.")] = 1,
    log_level: Annotated[str, typer.Option(help=f"One of {', '.join(logs.LEVELS)}.")] = "info",
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve: POST /v1/jobs, GET /v1/jobs/{id}/events, /v1/queues … until SIGINT or SIGTERM.

    Further settings come from the environment: CORRAL_KEYS_FILE, CORRAL_MAX_BACKLOG, JOB_TTL_S …
    """
    where = remember(context, url, None, None, None, as_json)
    if log_level.lower() not in logs.LEVELS:
        known = ", ".join(logs.LEVELS)
        raise typer.BadParameter(f"{log_level!r} is none of {known}", param_hint="--log-level")
    screen = Screen(where.as_json)
    app = where.app()
    try:
        try:
            from corral.gateway.server import check_settings, serve
        except ImportError as error:
            raise InvalidOptions(
                f"the gateway needs packages that are not here ({error.name}); pip install 'corral[gateway]'"
            ) from None
        check_settings(host)
        # each process makes its own app from the environment; a private server is this one's
        os.environ["REDIS_URL"] = app.url
        logs.configure(log_level, json=True if where.as_json else None)
        shown = f"[{host}]" if ":" in host else host
        if not where.as_json:
            screen.line(f"http://{shown}:{port}, processes: {workers}; Ctrl-C to stop")
        code = serve(host, port, workers, log_level.lower())
    except CorralError as error:
        screen.fail(error)
        code = code_of(error)
    finally:
        asyncio.run(app.close())
    raise typer.Exit(code)
