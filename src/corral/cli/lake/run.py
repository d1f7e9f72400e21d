"""`corral lake run`: bring the lake up to date with the events."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, Annotated

from typer import Option

from corral.cli.lake.options import LakeArgument, QueueOption, StorageOption, addresses_of, lake_at
from corral.cli.lake.spark import SparkOptions, check_packages, progress_bar
from corral.cli.options import MetricsOptions
from corral.cli.session import Session, at_server

if TYPE_CHECKING:
    from corral.spark.lake.run import RunResult


@at_server
async def command(
    session: Session,
    lake: LakeArgument,
    metrics: MetricsOptions,
    spark_options: SparkOptions,
    queue: QueueOption = "*",
    storage: StorageOption = None,
    continuous: Annotated[bool, Option("--continuous", help="Run until SIGINT or SIGTERM.")] = False,
    every: Annotated[float, Option(min=0.1, help="Seconds between reads, with --continuous.")] = 10.0,
    refresh: Annotated[float, Option(min=1, help="Seconds between refreshes of silver and gold.")] = 60.0,
    keep_days: Annotated[int | None, Option(min=1, help="Delete older days; default: none.")] = None,
    keep_versions: Annotated[
        int | None, Option(min=0, help="Hours for which old versions stay readable; default: 24.")
    ] = None,
    batch_events: Annotated[int, Option(min=1, help="Events per batch, at most.")] = 1_000_000,
) -> None:
    """Bring the lake up to date with the events."""
    check_packages()
    from corral.spark.lag import watch
    from corral.spark.lake.run import RunOptions, run_lake

    target, output = lake_at(lake, storage), session.output
    addresses = await addresses_of(session, queue, is_waiting=continuous)
    options = RunOptions(
        is_continuous=continuous,
        every_s=every,
        refresh_s=refresh,
        batch_events=batch_events,
        keep_days=keep_days,
        keep_versions_h=keep_versions,
    )

    def work(should_stop: Callable[[], bool]) -> "RunResult":
        with spark_options.session(target) as spark:
            if metrics.metrics_port is not None:
                metrics.serve(watch(spark).registry)
            with progress_bar(output, "lake") as on_progress:
                return run_lake(spark, target, addresses, options, on_progress, should_stop)

    with _stop_at_signal() as should_stop:
        result = await asyncio.to_thread(work, should_stop)
    output.document(asdict(result))
    output.line(
        f"{result.events:,} events in {result.batches:,} batches; "
        f"{result.days:,} days written in {target.path}"
    )
    if result.missing:
        output.line(
            f"{result.missing:,} events were gone before they were read; bronze has a row for each gap"
        )
    if result.unknown_gaps:
        output.line(
            f"{result.unknown_gaps:,} gaps are of unknown size: a log was recreated, or is not counted"
        )


@contextmanager
def _stop_at_signal() -> Iterator[Callable[[], bool]]:
    """Yield whether to stop: the first signal lets the current batch end, the second ends at once."""
    is_stopped, loop = Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        is_stopped.set()
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield is_stopped.is_set
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
