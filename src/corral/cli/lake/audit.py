"""`corral lake audit`: check jobs against their events, or compare two queues."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from corral.cli.lake.options import (
    AsOfOption,
    QueueOption,
    StorageOption,
    addresses_of,
    existing_lake,
    parse_time,
)
from corral.cli.lake.spark import SparkOptions, check_packages, in_thread, progress_bar
from corral.cli.output import Output
from corral.cli.session import Session, at_server
from corral.errors import InvalidOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from corral.spark.lake.audit.audit import Audit
    from corral.spark.lake.audit.comparison import Comparison
    from corral.spark.lake.tables import Lake
    from corral.spark.options import QueueAddress


@at_server
async def command(
    session: Session,
    spark_options: SparkOptions,
    lake: Annotated[
        str | None, Argument(metavar="LAKE", help="The lake's folder or URL; default: the server's events.")
    ] = None,
    queue: QueueOption = "*",
    compare: Annotated[
        tuple[str, str] | None, Option(metavar="A B", help="Compare two queues (or prefix:queue) instead.")
    ] = None,
    since: Annotated[
        str | None, Option(metavar="TIME", help="Only jobs added since, such as 2025-01-31T12:00Z.")
    ] = None,
    foreign_clients: Annotated[
        bool, Option("--foreign-clients", help="Clients that write no events use these queues too.")
    ] = False,
    as_of: AsOfOption = None,
    limit: Annotated[int, Option(min=1, help="The maximum number of findings.")] = 100,
    storage: StorageOption = None,
) -> int | None:
    """Find jobs that are lost, duplicate, orphaned or leaked."""
    check_packages()
    if as_of is not None and (lake is None or compare is None):
        raise InvalidOptions(
            "an audit compares a lake with the jobs that the server has now, so --as-of goes with a lake and "
            "--compare only; leave it out"
        )
    source = None if lake is None else existing_lake(lake, storage, as_of)
    options = {"since": parse_time("--since", since), "has_foreign_clients": foreign_clients, "limit": limit}
    addresses = await addresses_of(session, queue)

    def work() -> int:
        with spark_options.session(source) as spark:
            if compare is not None:
                return _print_comparison(session.output, _compare(spark, source, addresses, compare, limit))
            audits = [_audit(session.output, spark, source, address, options) for address in addresses]
            return _print_audits(session.output, audits)

    return await in_thread(work)


def _audit(
    output: Output,
    spark: "SparkSession",
    source: "Lake | None",
    address: "QueueAddress",
    options: dict[str, Any],
) -> "Audit":
    from corral.spark.lake.audit.audit import audit_lake, audit_server
    from corral.spark.lake.ingest import ingest

    with progress_bar(output, f"audit of protocol {address.protocol_name}") as on_progress:
        if source is None:
            return audit_server(spark, address, **options)
        catch_up: Callable[[], None] = partial(ingest, spark, source, [address], on_progress=on_progress)
        return audit_lake(spark, source, address, catch_up, **options)


def _print_audits(output: Output, audits: "Sequence[Audit]") -> int:
    from corral.spark.lake.audit.findings import AuditExit

    for audit in audits:
        output.document(_document(audit))
        for finding in audit.findings:
            output.line(finding.sentence())
        if audit.omitted:
            output.line(f"… and {audit.omitted:,} more; --limit lists them")
        output.line(f"protocol {audit.protocol}: {audit.sentence()}")
    codes = {audit.exit_code for audit in audits}
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


def _compare(
    spark: "SparkSession",
    source: "Lake | None",
    addresses: "Sequence[QueueAddress]",
    pair: tuple[str, str],
    limit: int,
) -> "Comparison":
    from corral.spark.lake.audit.comparison import compare_lake, compare_servers

    if source is not None:
        return compare_lake(spark, source, *pair, limit=limit)
    if len(addresses) > 1:
        protocols = " and ".join(address.protocol_name for address in addresses)
        raise InvalidOptions(f"jobs are in the protocols {protocols}; choose one with --protocol")
    first, second = (_at(addresses[0], name) for name in pair)
    return compare_servers(spark, first, second, limit=limit)


def _at(address: "QueueAddress", name: str) -> "QueueAddress":
    """Return the address of `queue`, or of `prefix:queue` under another prefix."""
    prefix, separator, queue = name.rpartition(":")
    return replace(address, queue=queue, namespace=prefix if separator else address.namespace)


def _print_comparison(output: Output, comparison: "Comparison") -> int:
    output.document(
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
    titles = ("", "", comparison.a, comparison.b)
    for heading, figures in (("figures", comparison.figures), ("differences", comparison.differences)):
        if figures:
            output.line(heading)
            rows = [(figure.subject, figure.measure, figure.a or "–", figure.b or "–") for figure in figures]
            output.table(titles, rows)
    if comparison.omitted:
        output.line(f"… and {comparison.omitted:,} more; --limit lists them")
    output.line(comparison.sentence())
    return comparison.exit_code
