"""`corral lake report`: throughput, times and failures, in the terminal and as an HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from typer import Option

from corral.cli.lake.options import AsOfOption, LakeArgument, StorageOption, existing_lake, parse_time
from corral.cli.lake.spark import SparkOptions, check_packages, progress_bar
from corral.cli.option_groups import option_groups
from corral.cli.options import JsonOption, ServerOptions
from corral.cli.output import Output
from corral.cli.session import errors_to
from corral.errors import InvalidOptions

if TYPE_CHECKING:
    from corral.spark.lake.report.report import LakeReport


@option_groups
def command(
    context: typer.Context,
    lake: LakeArgument,
    spark_options: SparkOptions,
    page: Annotated[Path | None, Option(metavar="FILE", help="Write an HTML page with charts, too.")] = None,
    since: Annotated[
        str | None, Option(metavar="TIME", help="From then on, such as 2025-01-31T12:00Z.")
    ] = None,
    until: Annotated[str | None, Option(metavar="TIME", help="Before then.")] = None,
    as_of: AsOfOption = None,
    limit: Annotated[int, Option(min=1, help="The maximum number of rows per table.")] = 20,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report throughput, times, failures, slow jobs, and alerts."""
    output = Output(ServerOptions(as_json=as_json).merged(context).as_json)
    with errors_to(output):
        check_packages()
        from corral.spark.lake.ingest import LakeProgress
        from corral.spark.lake.report.report import report_lake

        source = existing_lake(lake, storage, as_of)
        bounds = {"since": parse_time("--since", since), "until": parse_time("--until", until)}
        with spark_options.session(source) as spark, progress_bar(output, "report") as on_progress:
            on_progress(LakeProgress("reading the lake"))
            report = report_lake(spark, source, limit=limit, **bounds)
        if page is not None:
            from corral.spark.lake.report.page import page as page_of

            write_page_of(page_of(report), page)
    output.document(_document(report))
    _print(output, report)
    if page is not None:
        output.line(f"the page is in {page}")


def write_page_of(html: str, page: Path) -> None:
    """Write a page to a file; refused where that cannot be written."""
    from corral.spark.lake.report.page import write_document

    try:
        write_document(html, page)
    except OSError as error:
        raise InvalidOptions(
            f"the page cannot be written to {page} ({error.strerror or error}); choose another --page"
        ) from None


def _print(output: Output, report: "LakeReport") -> None:
    """Print the tables that have rows, and the alerts."""
    if report.is_empty:
        output.line("the lake has no jobs of that time")
    for table in report.tables:
        if table.rows:
            output.line(Text(table.title, "bold"))
            output.table(table.titles, table.rows)
            output.line("")
    for alert in report.alerts:
        output.line(Text.assemble(("alert: ", "bold red"), alert))


def _document(report: "LakeReport") -> dict[str, Any]:
    tables = {
        table.title: [dict(zip(table.titles, row, strict=True)) for row in table.rows]
        for table in report.tables
    }
    return {
        "since": None if report.since is None else report.since.isoformat(),
        "until": None if report.until is None else report.until.isoformat(),
        "tables": tables,
        "alerts": list(report.alerts),
    }
