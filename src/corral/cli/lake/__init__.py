"""`corral lake`: the history of jobs, kept by Spark, with reports and audits."""

import typer

from corral.cli.lake import audit, backfill, capacity, convert, report, run, sql

group = typer.Typer(help="The history of jobs, kept by Spark: update, report, audit.", no_args_is_help=True)
group.command("run")(run.command)
group.command("report")(report.command)
group.command("audit")(audit.command)
group.command("backfill")(backfill.command)
group.command("capacity")(capacity.command)
group.command("sql")(sql.query)
group.command("history")(sql.history)
group.command("convert")(convert.command)
