"""`corral lake capacity`: how many workers and slots a queue needs, from what the lake has seen."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from typer import Option

from corral.cli.lake.options import LakeArgument, StorageOption, existing_lake
from corral.cli.lake.report import write_page_of
from corral.cli.lake.spark import check_packages, progress_bar
from corral.cli.option_groups import option_groups
from corral.cli.options import JsonOption, ServerOptions
from corral.cli.output import Output
from corral.cli.session import errors_to
from corral.core.ports import Limit
from corral.errors import InvalidOptions

if TYPE_CHECKING:
    from corral.spark.lake.capacity.plan import CapacityPlan

_UNIT_MS = {"ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(ms|s|m|h)")
_RATE = re.compile(r"([1-9][0-9]*)/([0-9.]*) *(ms|s|m|h)")


@option_groups
def command(
    context: typer.Context,
    lake: LakeArgument,
    queue: Annotated[str, Option("--queue", "-q", help="The queue.")],
    target_wait_p95: Annotated[
        str, Option(metavar="TIME", help="What 95 % of attempts may wait at most, such as 500ms.")
    ] = "1s",
    protocol: Annotated[str | None, Option(help="The queue's protocol, where the lake has several.")] = None,
    concurrency: Annotated[int, Option(min=1, help="Slots of a worker.")] = 10,
    workers: Annotated[
        int | None, Option(min=1, help="Predict the waits with so many; default: search for the fewest.")
    ] = None,
    load: Annotated[float, Option(help="What if arrivals come so many times as fast?")] = 1.0,
    slower: Annotated[float, Option(help="What if handlers take so many times as long?")] = 1.0,
    failover: Annotated[
        str | None, Option(metavar="TIME", help="What if the server is gone for so long, at the peak?")
    ] = None,
    rate: Annotated[
        str | None, Option(metavar="COUNT/TIME", help="The queue's rate limit, such as 100/s.")
    ] = None,
    max_active: Annotated[int | None, Option(min=1, help="Jobs of the queue that run at once.")] = None,
    priority: Annotated[
        list[str] | None, Option(metavar="NAME=NUMBER", help="The priority of a job name; repeatable.")
    ] = None,
    trip: Annotated[
        str | None, Option(metavar="TIME", help="A round trip to the server; default: as measured.")
    ] = None,
    utilisation: Annotated[
        float, Option(help="Of processors, in the plan past one machine; above 0, up to 1.")
    ] = 0.7,
    page: Annotated[Path | None, Option(metavar="FILE", help="Write an HTML page with charts, too.")] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict how many workers and slots a queue needs."""
    output = Output(ServerOptions(as_json=as_json).merged(context).as_json)
    with errors_to(output):
        check_packages()
        from corral.spark.lake.capacity.history import queue_history
        from corral.spark.lake.capacity.page import page as page_of
        from corral.spark.lake.capacity.plan import CapacityOptions, plan_capacity
        from corral.spark.lake.ingest import LakeProgress

        options = CapacityOptions(
            target_ms=_milliseconds("--target-wait-p95", target_wait_p95),
            concurrency=concurrency,
            workers=workers,
            load=load,
            slower=slower,
            failover_ms=0.0 if failover is None else _milliseconds("--failover", failover),
            limit=None if rate is None else _limit(rate),
            max_active=max_active,
            trip_ms=None if trip is None else _milliseconds("--trip", trip),
            utilisation=utilisation,
        )
        priorities = _priorities(priority or [])
        source = existing_lake(lake, storage)
        with progress_bar(output, "capacity") as on_progress:
            on_progress(LakeProgress("reading the lake"))
            history = queue_history(source, queue, protocol, priorities)
            plan = plan_capacity(history, options, lambda step: on_progress(LakeProgress(step)))
        if page is not None:
            write_page_of(page_of(plan), page)
    output.document(_document(plan))
    _print(output, plan)
    if page is not None:
        output.line(f"the page is in {page}")


def _print(output: Output, plan: "CapacityPlan") -> None:
    from corral.spark.lake.capacity.page import answer, notes, tables

    output.line(Text(answer(plan), "bold"))
    output.line("")
    for table in tables(plan):
        output.line(Text(table.title, "bold"))
        output.table(table.titles, table.rows)
        output.line("")
    for note in notes(plan):
        output.line(note)


def _document(plan: "CapacityPlan") -> dict[str, Any]:
    """Return the plan as JSON has it; times in milliseconds."""
    document = asdict(plan)
    for name in ("since", "until"):
        document[name] = document[name].isoformat()
    for need, hour in zip(document["hours"], plan.hours, strict=True):
        need["hour"]["name"] = hour.hour.name
    limit = plan.options.limit
    document["options"]["limit"] = None if limit is None else {"count": limit.count, "ms": limit.duration}
    return document


def _milliseconds(option: str, text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise InvalidOptions(f"{option} is {text!a}; use a time such as 500ms, 10s, 2m or 1h")
    return float(match[1]) * _UNIT_MS[match[2]]


def _limit(text: str) -> Limit:
    """Parse a rate limit.

    >>> _limit("100/s"), _limit("5/10s")
    (Limit(count=100, duration=1000), Limit(count=5, duration=10000))
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise InvalidOptions(f"--rate is {text!a}; use one such as 100/s or 5/10s")
    return Limit(int(match[1]), int(_milliseconds("--rate", f"{match[2] or 1}{match[3]}")))


def _priorities(texts: list[str]) -> dict[str, int]:
    priorities = {}
    for text in texts:
        name, separator, number = text.rpartition("=")
        if not separator or not name or not number.isdecimal():
            raise InvalidOptions(f"--priority is {text!a}; use one such as send_email=2, where 0 is none")
        priorities[name] = int(number)
    return priorities
