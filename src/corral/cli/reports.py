"""`corral lake report`: what a lake says of its queues, at the terminal and as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from corral.cli import sparks
from corral.cli.audits import existing_lake, moment_of
from corral.cli.lake import ConfOption, LakeArgument, MasterOption
from corral.cli.screen import Screen
from corral.cli.session import JsonOption, code_of, remember
from corral.errors import CorralError, InvalidOptions

if TYPE_CHECKING:
    from corral.spark.lake.report.report import LakeReport


def report(
    context: typer.Context,
    lake: LakeArgument,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write it as one HTML page with charts too.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From then on, such as 2025-01-31T12:00Z.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before then.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Rows of a table at most.")] = 20,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Throughput, times, failures, the slowest jobs, and what should alarm you."""
    screen = Screen(remember(context, None, None, None, None, as_json).as_json)
    try:
        told = _made(screen, lake, since, until, most, master, conf or [])
        if page is not None:
            _write(told, page)
    except CorralError as error:
        screen.fail(error)
        raise typer.Exit(code_of(error)) from None
    if screen.as_json:
        screen.document(_document(told))
    else:
        say(screen, told)
        if page is not None:
            screen.line(f"the page is in {page}")


def _made(
    screen: Screen,
    lake: str,
    since: str | None,
    until: str | None,
    most: int,
    master: str | None,
    conf: list[str],
) -> "LakeReport":
    sparks.check_packages()
    from corral.spark.lake.ingest import LakeProgress
    from corral.spark.lake.report.report import report_lake

    folder = existing_lake(lake)
    bounds = {"since": moment_of("--since", since), "until": moment_of("--until", until)}
    with (
        sparks.started(master, sparks.settings(conf), folder.root / "_spark.log") as spark,
        sparks.bar(screen, "report") as tell,
    ):
        tell(LakeProgress("reading the lake"))
        return report_lake(spark, folder, limit=most, **bounds)


def _write(told: "LakeReport", page: Path) -> None:
    from corral.spark.lake.report.page import write_page

    try:
        write_page(told, page)
    except OSError as error:
        raise InvalidOptions(
            f"the page cannot be written to {page} ({error.strerror or error}); choose another --page"
        ) from None


def say(screen: Screen, told: "LakeReport") -> None:
    """The tables that have rows, and the alarms."""
    if told.is_empty:
        screen.line("the lake tells of no job in that time")
    for table in told.tables:
        if table.rows:
            screen.line(Text(table.title, "bold"))
            screen.table(table.titles, table.rows)
            screen.line("")
    for alarm in told.alerts:
        screen.line(Text.assemble(("alarm: ", "bold red"), alarm))


def _document(told: "LakeReport") -> dict[str, Any]:
    tables = {
        table.title: [dict(zip(table.titles, row, strict=True)) for row in table.rows]
        for table in told.tables
    }
    return {
        "since": None if told.since is None else told.since.isoformat(),
        "until": None if told.until is None else told.until.isoformat(),
        "tables": tables,
        "alerts": list(told.alerts),
    }
