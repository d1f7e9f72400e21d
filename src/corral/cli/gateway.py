"""`corral gateway`: serve jobs, events and queues by HTTP until a signal comes."""

import asyncio
import os
from typing import Annotated

import typer
from typer import Argument, Option

from corral.app_loader import load_app
from corral.cli.options import MAX_PORT, JsonOption, LogLevelOption, ServerOptions, UrlOption
from corral.cli.output import Output
from corral.cli.session import errors_to
from corral.errors import InvalidOptions
from corral.telemetry import logs

PORT = 8080


def command(
    context: typer.Context,
    app: Annotated[
        str | None,
        Argument(metavar="[MODULE:APP]", help="The Corral whose handlers' options new jobs have."),
    ] = None,
    host: Annotated[
        str, Option(help="The address to listen on; any but loopback requires API keys.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=MAX_PORT, help="The port to listen on.")] = PORT,
    workers: Annotated[int, Option(min=1, max=64, help="The number of processes.")] = 1,
    is_read_only: Annotated[bool, Option("--read-only", help="Refuse all changes.")] = False,
    lake: Annotated[
        str | None, Option(metavar="PATH|URL", help="The lake to read history from: a folder or s3://….")
    ] = None,
    log_level: LogLevelOption = "info",
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve jobs, events and queues by HTTP, with a dashboard.

    Further settings come from the environment: CORRAL_KEYS_FILE, CORRAL_MAX_BACKLOG, JOB_TTL_S …
    """
    options = ServerOptions(url, as_json=as_json).merged(context)
    output = Output(options.as_json)
    with errors_to(output):
        corral = options.app() if app is None else load_app(app, options.url)
    try:
        with errors_to(output):
            try:
                from corral.gateway.server import check_settings, serve
            except ImportError as error:
                raise InvalidOptions(
                    f"the gateway needs packages that are not installed ({error.name}); "
                    f"pip install 'corral[gateway]'"
                ) from None
            if is_read_only:
                os.environ["CORRAL_READ_ONLY"] = "true"
            if lake is not None:
                os.environ["CORRAL_LAKE"] = lake
            check_settings(host)
            # each process creates its own app from the environment; a private server belongs to this one
            os.environ["REDIS_URL"] = corral.url
            if app is not None:
                os.environ["CORRAL_APP"] = app
            logs.configure(log_level, json=True if options.as_json else None)
            address = f"[{host}]" if ":" in host else host
            output.line(f"http://{address}:{port}, processes: {workers}; Ctrl-C to stop")
            code = serve(host, port, workers, log_level)
    finally:
        asyncio.run(corral.close())
    raise typer.Exit(code)
