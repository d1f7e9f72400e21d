"""`corral lake audit`: has every job one end, or one state? And two queues side by side."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli import sparks
from corral.cli.lake import ConfOption, MasterOption, QueueOption, addresses_of
from corral.cli.screen import Screen
from corral.cli.session import Here, at_server
from corral.errors import InvalidOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from corral.spark.lake.audit.audit import Audit
    from corral.spark.lake.audit.comparison import Comparison
    from corral.spark.lake.tables import Lake
    from corral.spark.options import QueueAddress


@at_server
async def audit(
    here: Here,
    lake: Annotated[
        str | None, typer.Argument(metavar="LAKE", help="The lake's folder; else the server's own events.")
    ] = None,
    queue: QueueOption = "*",
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Two queues, or prefix:queue, side by side instead."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only jobs added since, such as 2025-01-31T12:00Z.")
    ] = None,
    foreign_clients: Annotated[
        bool, typer.Option("--foreign-clients", help="Clients that write no events use these queues too.")
    ] = False,
    most: Annotated[int, typer.Option(min=1, help="Findings that are listed.")] = 100,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> int | None:
    """Hold jobs against their events: what is lost, doubled, orphaned or leaked."""
    sparks.check_packages()
    folder = None if lake is None else existing_lake(lake)
    moment = moment_of("--since", since)
    addresses = await addresses_of(here, queue)

    def work() -> int:
        log = None if folder is None else folder.root / "_spark.log"
        with sparks.started(master, sparks.settings(conf or []), log) as spark:
            if compare is not None:
                return _say_comparison(here.screen, _compared(spark, folder, addresses, compare, most))
            options = {"since": moment, "has_foreign_clients": foreign_clients, "limit": most}
            audits = [_audited(here.screen, spark, folder, address, options) for address in addresses]
            return _say_audits(here.screen, audits)

    return await sparks.aside(work)


def existing_lake(lake: str) -> "Lake":
    """The lake in that folder; refused address there is none."""
    from corral.spark.lake.tables import Lake

    found = Lake(lake)
    if not found.exists:
        raise InvalidOptions(f"there is no lake in {found.path}; make one: corral lake run {Path(lake)}")
    return found


def moment_of(option: str, given: str | None) -> datetime | None:
    """A time that an option was given; UTC address it names no zone."""
    if given is None:
        return None
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidOptions(f"{option} is {given!a}; use a time such as 2025-01-31T12:00:00Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _audited(
    screen: Screen,
    spark: "SparkSession",
    folder: "Lake | None",
    address: "QueueAddress",
    options: dict[str, Any],
) -> "Audit":
    from corral.spark.lake.audit.audit import audit_lake, audit_server
    from corral.spark.lake.ingest import ingest

    with sparks.bar(screen, f"audit of protocol {address.protocol_name}") as tell:
        if folder is None:
            return audit_server(spark, address, **options)
        catch_up: Callable[[], None] = partial(ingest, spark, folder, [address], on_progress=tell)
        return audit_lake(spark, folder, address, catch_up, **options)


def _say_audits(screen: Screen, audits: "Sequence[Audit]") -> int:
    from corral.spark.lake.audit.findings import AuditExit

    for one in audits:
        if screen.as_json:
            screen.document(_document(one))
            continue
        for finding in one.findings:
            screen.line(finding.sentence())
        if one.omitted:
            screen.line(f"… and {one.omitted:,} more; --most lists them")
        screen.line(f"protocol {one.protocol}: {one.sentence()}")
    codes = {one.exit_code for one in audits}
    return next(
        code for code in (AuditExit.WRONG, AuditExit.UNPROVABLE, AuditExit.NOTHING_LOST) if code in codes
    )


def _document(audit: "Audit") -> dict[str, Any]:
    return {
        "protocol": audit.protocol,
        "queues": list(audit.queues),
        "counts": {str(verdict): count for verdict, count in audit.counts.items()},
        "findings": [{**vars(finding), "verdict": str(finding.verdict)} for finding in audit.findings],
        "omitted": audit.omitted,
        "sentence": audit.sentence(),
    }


def _compared(
    spark: "SparkSession",
    folder: "Lake | None",
    addresses: "Sequence[QueueAddress]",
    pair: tuple[str, str],
    most: int,
) -> "Comparison":
    from corral.spark.lake.audit.comparison import compare_lake, compare_servers

    if folder is not None:
        return compare_lake(spark, folder, *pair, limit=most)
    if len(addresses) > 1:
        protocols = " and ".join(address.protocol_name for address in addresses)
        raise InvalidOptions(f"jobs are in the protocols {protocols}; choose one with --protocol")
    first, second = (_named(addresses[0], spelled) for spelled in pair)
    return compare_servers(spark, first, second, limit=most)


def _named(address: "QueueAddress", spelled: str) -> "QueueAddress":
    """`queue`, or `prefix:queue` for one under another prefix."""
    prefix, separator, queue = spelled.rpartition(":")
    return replace(address, queue=queue, namespace=prefix if separator else address.namespace)


def _say_comparison(screen: Screen, comparison: "Comparison") -> int:
    if screen.as_json:
        screen.document(
            {
                "a": comparison.a,
                "b": comparison.b,
                "shared": comparison.shared,
                "total": comparison.total,
                "figures": [vars(figure) for figure in comparison.figures],
                "differences": [vars(figure) for figure in comparison.differences],
                "sentence": comparison.sentence(),
            }
        )
        return comparison.exit_code
    titles = ("", "", comparison.a, comparison.b)
    for heading, figures in (("figures", comparison.figures), ("differences", comparison.differences)):
        if figures:
            screen.line(heading)
            rows = [(one.subject, one.measure, one.a or "–", one.b or "–") for one in figures]
            screen.table(titles, rows)
    if comparison.omitted:
        screen.line(f"… and {comparison.omitted:,} more; --most lists them")
    screen.line(comparison.sentence())
    return comparison.exit_code
