"""`corral lake sql` and `corral lake history`: a lake without Spark."""

import csv
import json
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from typer import Argument, Option

from corral.cli.lake.options import AsOfOption, LakeArgument, StorageOption, existing_lake
from corral.cli.lake.spark import check_packages
from corral.cli.option_groups import option_groups
from corral.cli.options import JsonOption, ServerOptions
from corral.cli.output import Output
from corral.cli.session import errors_to
from corral.errors import InvalidOptions


@option_groups
def query(
    context: typer.Context,
    lake: LakeArgument,
    statement: Annotated[
        str, Argument(metavar="QUERY", help="SQL over bronze, backfill, attempts, jobs and minutes.")
    ],
    as_of: AsOfOption = None,
    as_csv: Annotated[bool, Option("--csv", help="Print CSV instead of a table.")] = False,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a SQL query over the tables of a lake."""
    output = Output(ServerOptions(as_json=as_json).merged(context).as_json)
    with errors_to(output):
        check_packages()
        from corral.spark.lake.sql import run_query

        titles, rows = run_query(existing_lake(lake, storage, as_of), statement)
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(titles)
        writer.writerows(rows)
        return
    for row in rows if output.as_json else ():
        output.document(json.loads(json.dumps(dict(zip(titles, row, strict=True)), default=str)))
    output.table(titles, [["" if cell is None else str(cell) for cell in row] for row in rows])


@option_groups
def history(
    context: typer.Context,
    lake: LakeArgument,
    limit: Annotated[int, Option(min=1, help="The maximum number of versions per table.")] = 20,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions of a lake's tables."""
    output = Output(ServerOptions(as_json=as_json).merged(context).as_json)
    rows: list[tuple[str, ...]] = []
    with errors_to(output):
        check_packages()
        from corral.spark.lake.tables import TABLES

        source = existing_lake(lake, storage)
        for name in TABLES:
            table = source.table(name).open()
            for version in [] if table is None else table.history(limit):
                document = _document(name, version)
                output.document(document)
                rows.append(tuple("" if value is None else str(value) for value in document.values()))
    output.table(("table", "version", "time", "operation", "rows added", "removed"), rows)


def _document(table: str, version: dict[str, Any]) -> dict[str, Any]:
    if "version" not in version:
        raise InvalidOptions(f"the log of {table} has a version without a number")
    at = datetime.fromtimestamp(version["timestamp"] / 1000, UTC)
    return {
        "table": table,
        "version": version["version"],
        "time": at.isoformat(timespec="milliseconds"),
        "operation": str(version.get("operation", "")).lower(),
        "added": version.get("addedRows"),
        "removed": version.get("removedRows"),
    }
