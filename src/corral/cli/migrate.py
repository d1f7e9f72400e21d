"""`corral migrate`: move jobs and schedules between queues, servers and protocols."""

from typing import Annotated

import typer
from typer import Option

from corral.cli.options import JsonOption, ServerOptions
from corral.cli.output import Output
from corral.cli.session import FAILED, run_command
from corral.errors import InvalidOptions
from corral.migrate import MoveOptions, MoveReport, migrate, put_back

EVERY = 10
"""Between two lines of progress so many pages are moved."""


def command(
    context: typer.Context,
    source: Annotated[
        str,
        Option(
            "--from",
            metavar="URL",
            help="redis://host/0?protocol=…&queue=…&namespace=…; format=rq, celery, arq or json instead of a "
            "protocol imports.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str, Option("--to", metavar="URL", help="The same, with a protocol.", show_default=False)
    ],
    ended: Annotated[bool, Option("--ended", help="Move completed and dead jobs too.")] = False,
    paused: Annotated[bool, Option("--paused", help="Pause the source first; it stays paused.")] = False,
    is_dry: Annotated[bool, Option("--dry-run", help="Only say what fits, and what not and why.")] = False,
    adapt: Annotated[
        bool, Option("--adapt", help="Jobs leave behind options that the target has no word for.")
    ] = False,
    leave: Annotated[
        bool, Option("--leave", help="Jobs that do not fit stay; else nothing is moved then.")
    ] = False,
    rename: Annotated[
        list[str] | None, Option(metavar="OLD=NEW", help="Give jobs another name; may be repeated.")
    ] = None,
    is_back: Annotated[
        bool, Option("--put-back", help="Put back what an interrupted move holds, and end it.")
    ] = False,
    spark: Annotated[
        str | None, Option(metavar="MASTER", help="Move in the executors of this Spark, such as local[2].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move jobs between queues, servers and protocols.

    Both sides go on meanwhile, and each job can be claimed in at most one place at any moment. The same
    command continues a move that was interrupted.
    """
    output = Output(as_json or (context.obj or ServerOptions()).as_json)

    async def run() -> int | None:
        options = MoveOptions(
            source=source, target=target, ended=ended, adapt=adapt, leave=leave, rename=_names(rename or [])
        )
        if is_back:
            count = await put_back(options)
            output.document({"put_back": count})
            output.line(f"put back: {_counted(count, 'job')}; what had arrived stays at the target")
            return None
        if spark is not None and not is_dry:
            from corral.spark.migrate import migrate_on_spark

            report = await migrate_on_spark(options, spark, paused=paused)
        else:
            report = await migrate(options, paused=paused, dry_run=is_dry, progress=_Progress(output))
        print_report(output, report)
        return None if report.is_verified else FAILED

    run_command(output, run())


class _Progress:
    """Prints a line after every few pages."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._pages = 0

    def __call__(self, report: MoveReport) -> None:
        self._pages += 1
        if self._pages % EVERY == 0:
            self._output.line(f"{report.count} jobs moved …")


def _names(pairs: list[str]) -> dict[str, str]:
    names = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise InvalidOptions(f"--rename {pair!r} does not fit; write OLD=NEW")
        names[old] = new
    return names


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_report(output: Output, report: MoveReport) -> None:
    """Print what was moved, what stays and why."""
    output.document(report.document())
    states = ", ".join(f"{count} {state}" for state, count in report.moved.items())
    verb = "would be moved" if report.is_dry else "moved"
    again = " (continued)" if report.is_resumed else ""
    output.line(f"{_counted(report.count, 'job')} {verb}{again}{f': {states}' if states else ''}")
    if report.schedules:
        output.line(f"{_counted(report.schedules, 'schedule')} {verb}")
    if report.renumbered:
        output.line(f"{report.renumbered} of them get new ids")
    for word, leftovers in (("stay", report.left), ("left behind", report.adapted)):
        if leftovers:
            rows = [
                (word, str(left.count), reason, ", ".join(left.examples))
                for reason, left in leftovers.items()
            ]
            output.table(("", "count", "why", "such as"), rows)
    if report.is_dry:
        return
    for difference in report.differences:
        output.line(f"differs: {difference}")
    outcome = "verified" if report.is_verified else "NOT verified"
    output.line(
        f"{outcome}: {report.total} left the source, {report.received} added at the target, "
        f"{report.compared} of a sample compared"
    )
