"""`corral worker`: run the handlers of an app until a signal comes."""

import importlib.util
from typing import Annotated, Any

import typer
from typer import Argument, Option

from corral.app import GRACE_S, Corral
from corral.app_loader import load_app
from corral.cli.option_groups import option_groups
from corral.cli.options import MAX_PORT, JsonOption, LogLevelOption, ServerOptions, UrlOption
from corral.cli.output import Output
from corral.cli.session import run_command
from corral.cli.supervisor import Supervisor, end_with_supervisor, health_listener, process_number
from corral.store.address import without_password
from corral.telemetry import logs
from corral.telemetry.health import HealthServer
from corral.telemetry.logs import logger
from corral.telemetry.metrics import ProtocolGauges
from corral.worker import DEFAULT_CONCURRENCY

MOST_PROCESSES = 256
SCRAPE_S = 3.0
"""How long a scrape of the metrics waits for Redis."""


@option_groups
def command(
    context: typer.Context,
    app: Annotated[str, Argument(metavar="MODULE:APP", help="The Corral, such as shop.mail:app.")],
    concurrency: Annotated[
        int, Option("--concurrency", "-c", help="Jobs at a time, in each queue of each process.")
    ] = DEFAULT_CONCURRENCY,
    queues: Annotated[
        list[str] | None,
        Option(
            "--queue",
            "-q",
            metavar="NAME[=N]",
            help="A queue, with a concurrency of its own; repeatable; default: all.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        Option(
            "--processes", "-p", min=1, max=MOST_PROCESSES, help="Worker processes (1), or Spark's tasks."
        ),
    ] = None,
    on: Annotated[
        str | None,
        Option("--on", metavar="MASTER", help="Spark: local[4], spark://host:7077, yarn, k8s://…"),
    ] = None,
    conf: Annotated[
        list[str] | None, Option(metavar="KEY=VALUE", help="With --on: a Spark setting; repeatable.")
    ] = None,
    reload: Annotated[
        bool, Option("--reload", help="Restart when a Python file here changes (development).")
    ] = False,
    burst: Annotated[
        bool, Option("--burst", help="End when no job is waiting or running; delayed jobs stay.")
    ] = False,
    health_port: Annotated[
        int | None, Option(min=1, max=MAX_PORT, help="Serve /livez, /readyz and /metrics.")
    ] = None,
    health_host: Annotated[str, Option(help="The address for them.")] = "127.0.0.1",
    name: Annotated[str | None, Option(help="The worker's name; default: a unique one.")] = None,
    grace: Annotated[float, Option(min=0, help="Seconds for active jobs after a signal.")] = GRACE_S,
    log_level: LogLevelOption = "info",
    server_id: Annotated[str | None, Option(help="Routing: its id; default: its name.")] = None,
    stack: Annotated[list[str] | None, Option(help="Routing: its stack; default: python.")] = None,
    capability: Annotated[
        list[str] | None, Option(help="Routing: its capabilities, such as gpu,cuda.")
    ] = None,
    region: Annotated[list[str] | None, Option(help="Routing: its region, such as us-east.")] = None,
    url: UrlOption = None,
    protocol: Annotated[str | None, Option(metavar="PROTOCOL", help="Only queues of this protocol.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a worker: the handlers of an app, until Ctrl-C.

    The first SIGINT or SIGTERM lets active jobs end, the second stops at once. The log goes to standard
    error; --json writes it as JSON lines.
    """
    options = ServerOptions(url, protocol, as_json=as_json).merged(context)
    own = {"--namespace": options.namespace, "--folder": options.folder, "--bullmq": options.bullmq}
    for option, value in own.items():
        if value is not None:
            raise typer.BadParameter("the app itself defines it: Corral(…)", param_hint=option)
    slots = _slots(queues or [], concurrency)
    routing = _routing(server_id, stack, capability, region)
    if on is not None:
        _check_no_others(reload, health_port)
        from corral.cli.worker_on_spark import WorkOptions, run_on_spark

        run_on_spark(
            Output(options.as_json),
            WorkOptions(app, on, conf or [], slots, options.protocol, processes, concurrency, grace, burst,
                        name, options.url, log_level, routing),
        )  # fmt: skip
        return
    if conf:
        raise typer.BadParameter("it is for Spark; name a master too: --on local[4]", param_hint="--conf")
    number = process_number()
    processes = processes or 1
    if number is None and (processes > 1 or reload):
        if reload:
            _check_watchfiles()

        async def supervise() -> int:
            logs.configure(log_level, json=True if options.as_json else None)
            health = health_listener(health_host, health_port)
            return Supervisor(processes, grace, burst, reload, health).run()

        run_command(Output(options.as_json), supervise())
        return

    async def work() -> None:
        if number is not None:
            end_with_supervisor()
        corral = load_app(app, options.url)
        logs.configure(log_level, json=True if options.as_json else None)
        listener = health_listener(health_host, health_port)
        if listener is not None:
            if number in (None, 1):
                # they are the same in all processes
                gauges = ProtocolGauges(lambda: corral.sync(corral.gauges(), SCRAPE_S))
                corral.metrics.registry.register(gauges)
            HealthServer(listener, lambda: corral.is_ready, corral.metrics.exposition).start()
        if number in (None, 1):
            _announce(corral, app)
        async with corral:
            await corral.run(
                concurrency=concurrency,
                grace=grace,
                burst=burst,
                queues=slots,
                protocol=options.protocol,
                name=f"{name}-{number}" if name is not None and number is not None else name,
                **routing,
            )

    run_command(Output(options.as_json), work())


def _slots(queues: list[str], concurrency: int) -> dict[str, int]:
    """Return the concurrency of each queue that is named.

    >>> _slots(["orders=50", "mail"], 10)
    {'orders': 50, 'mail': 10}
    """
    slots = {}
    for text in queues:
        queue, separator, count = text.rpartition("=")
        if separator and not (count.isascii() and count.isdigit() and int(count)):
            raise typer.BadParameter(
                f"{count!a} in {text!a} is no number of jobs; write {queue}=50", param_hint="--queue"
            )
        slots[queue if separator else text] = int(count) if separator else concurrency
    return slots


def _check_no_others(reload: bool, health_port: int | None) -> None:
    """Refuse options of worker processes that tasks of Spark do not have."""
    for option, value in (("--reload", reload), ("--health-port", health_port)):
        if value:
            raise typer.BadParameter(
                "it is not for workers on Spark; leave it or --on out", param_hint=option
            )


def _check_watchfiles() -> None:
    if importlib.util.find_spec("watchfiles") is None:
        raise typer.BadParameter("it needs watchfiles: pip install 'corral[reload]'", param_hint="--reload")


def _announce(corral: Corral, reference: str) -> None:
    """Log which server is used; warn where it is the private one."""
    log = logger("worker", app=reference)
    log.info("starting", server=without_password(corral.url))
    if corral.is_private:
        log.warning(
            "no Redis address was given, so jobs are kept in a private server; set REDIS_URL to use yours"
        )


def _routing(
    server_id: str | None, stack: list[str] | None, capability: list[str] | None, region: list[str] | None
) -> dict[str, Any]:
    """Return the worker's attributes for routing, as far as options name them."""
    attributes: dict[str, Any] = {} if server_id is None else {"server_id": server_id}
    for attribute, option, values in (
        ("stack", "--stack", stack),
        ("capabilities", "--capability", capability),
        ("region", "--region", region),
    ):
        words = [word.strip() for text in values or () for word in text.split(",")]
        if not all(words):
            raise typer.BadParameter("a word is empty; use words such as gpu,cuda", param_hint=option)
        if words:
            attributes[attribute] = words
    return attributes
