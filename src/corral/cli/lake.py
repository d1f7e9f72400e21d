"""`corral lake`: a history of jobs in files, kept by Spark; its reports and audits."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli import sparks
from corral.cli.session import Here, at_server
from corral.cli.workers import MOST_PORT, serve_metrics
from corral.errors import InvalidOptions
from corral.protocols import Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corral.spark.lake.run import RunResult
    from corral.spark.options import QueueAddress

LakeArgument = Annotated[str, typer.Argument(metavar="LAKE", help="The lake's folder.", show_default=False)]
QueueOption = Annotated[
    str, typer.Option("--queue", "-q", help="A queue, several with commas, or a pattern with *.")
]
MasterOption = Annotated[
    str | None,
    typer.Option(help="Spark's master, such as spark://host:7077 or sc://host:15002; else this machine."),
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; again for more.")
]


@at_server
async def run(
    here: Here,
    lake: LakeArgument,
    queue: QueueOption = "*",
    continuous: Annotated[bool, typer.Option("--continuous", help="Go on until SIGINT or SIGTERM.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks, if continuous.")] = 10.0,
    refresh: Annotated[
        float, typer.Option(min=1, help="Seconds between two refreshes of silver and gold, if continuous.")
    ] = 60.0,
    keep_days: Annotated[
        int | None, typer.Option(min=1, help="Drop days that are older; else nothing is dropped.")
    ] = None,
    table_format: Annotated[
        str, typer.Option("--format", help="Publish silver and gold in this format too, such as delta.")
    ] = "parquet",
    batch_events: Annotated[int, typer.Option(min=1, help="Events in one batch at most.")] = 1_000_000,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=MOST_PORT, help="Serve the lag to Prometheus at this port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address that port listens on.")] = "127.0.0.1",
    master: MasterOption = None,
    conf: ConfOption = None,
) -> int | None:
    """Bring the lake up to date with the events."""
    sparks.check_packages()
    from corral.spark.lag import watch
    from corral.spark.lake.run import RunOptions, run_lake
    from corral.spark.lake.tables import Lake

    folder = Lake(lake)
    addresses = await addresses_of(here, queue, is_waiting=continuous)
    options = RunOptions(
        is_continuous=continuous,
        every_s=every,
        refresh_s=refresh,
        batch_events=batch_events,
        keep_days=keep_days,
        format=table_format,
    )

    def work(should_stop: Callable[[], bool]) -> "RunResult":
        with sparks.started(master, sparks.settings(conf or []), folder.root / "_spark.log") as spark:
            if metrics_port is not None:
                serve_metrics(watch(spark).registry, metrics_host, metrics_port)
            with sparks.bar(here.screen, "lake") as tell:
                return run_lake(spark, folder, addresses, options, tell, should_stop)

    with _stopping() as should_stop:
        ran = await asyncio.to_thread(work, should_stop)
    if here.screen.as_json:
        here.screen.document(asdict(ran))
        return None
    here.screen.line(
        f"{ran.events:,} events in {ran.batches:,} batches; {ran.days:,} days written in {folder.path}"
    )
    for sentence in _losses(ran):
        here.screen.line(sentence)
    return None


@at_server
async def backfill(
    here: Here,
    lake: LakeArgument,
    queue: QueueOption = "*",
    master: MasterOption = None,
    conf: ConfOption = None,
) -> int | None:
    """Tell the lake of jobs whose events are gone."""
    sparks.check_packages()
    from corral.spark.lake.backfill import backfill as fill
    from corral.spark.lake.tables import Lake

    folder = Lake(lake)
    addresses = await addresses_of(here, queue)

    def work() -> list[dict[str, Any]]:
        with (
            sparks.started(master, sparks.settings(conf or []), folder.root / "_spark.log") as spark,
            sparks.bar(here.screen, "backfill") as tell,
        ):
            return [
                {"protocol": address.protocol_name, **asdict(fill(spark, folder, address, tell))}
                for address in addresses
            ]

    for filled in await sparks.aside(work):
        if here.screen.as_json:
            here.screen.document(filled)
        else:
            here.screen.line(
                f"protocol {filled['protocol']}: {filled['snapshot']:,} jobs; {filled['whole']:,} of them "
                f"taken from the snapshot, {filled['begun']:,} given their beginning"
            )
    return None


async def addresses_of(here: Here, queue: str, is_waiting: bool = False) -> "list[QueueAddress]":
    """The chosen protocols as options of Spark's readers; those without events are left out."""
    from corral.spark.options import QueueAddress

    used = [protocol for protocol in here.protocols if is_waiting or await _has_events(here, protocol)]
    if not used:
        names = " or ".join(protocol.spec.name for protocol in here.protocols)
        raise InvalidOptions(f"no event in protocol {names} at {here.dialled}; there is nothing to read yet")
    namespace = here.where.namespace
    return [
        QueueAddress(
            here.app.url,
            protocol.spec.name,
            protocol.spec.default_namespace if namespace is None else namespace,
            queue,
        )
        for protocol in used
    ]


async def _has_events(here: Here, protocol: Protocol) -> bool:
    extents = [await queue.events.extent() for queue in await here.app.queues(protocol.spec.name)]
    return any(extent.length or extent.added for extent in extents)


def _losses(ran: "RunResult") -> list[str]:
    """What people must know of events that are not in the lake."""
    told = []
    if ran.missing:
        told.append(f"{ran.missing:,} events were gone before they were read; bronze has a row for each gap")
    if ran.unknown_gaps:
        told.append(f"{ran.unknown_gaps:,} gaps are of unknown size: a log was begun anew, or is not counted")
    return told


@contextmanager
def _stopping() -> "Iterator[Callable[[], bool]]":
    """Was a stop asked for? The first signal lets the batch at hand end, the second ends at once."""
    asked, loop = Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        asked.set()
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield asked.is_set
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
