"""The command line: a module per command, named like the command."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer import Option

from corral import __version__
from corral.cli import (
    bench,
    cron,
    demo,
    dlq,
    doctor,
    events,
    gateway,
    job,
    lake,
    prove,
    queue,
    scripts,
    top,
    worker,
    workers,
)
from corral.cli.options import ServerOptions
from corral.cli.output import Output
from corral.cli.session import FAILED, INVALID, option_groups
from corral.errors import CorralError, InvalidOptions

root = typer.Typer(
    name="corral",
    help="Corral, a job system on Redis: run workers, manage queues and jobs, watch and examine them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
root.command("demo")(demo.command)
root.command("worker")(worker.command)
root.command("gateway")(gateway.command)
root.command("workers")(workers.command)
root.command("top")(top.command)
root.command("doctor")(doctor.command)
# --help, too, is passed on to what runs from the source tree
_passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
root.command("bench", context_settings=_passed_on)(bench.command)
root.command("prove", context_settings=_passed_on)(prove.command)
for _name, _group in (
    ("queue", queue.group),
    ("job", job.group),
    ("dlq", dlq.group),
    ("cron", cron.group),
    ("events", events.group),
    ("lake", lake.group),
    ("scripts", scripts.group),
):
    root.add_typer(_group, name=_name)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"corral {__version__}")
        raise typer.Exit


@root.callback()
@option_groups
def _callback(
    context: typer.Context,
    server: ServerOptions,
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    server.merged(context)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name (default: those of the process), and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--json" not in words:
        root(words, prog_name="corral")
    sys.exit(_run_with_json(words))


def _run_with_json(words: list[str]) -> int:
    """Return the exit code; a usage error is printed as a document, like every other error."""
    output = Output(as_json=True)
    try:
        return root(words, prog_name="corral", standalone_mode=False) or 0
    except typer.Abort:
        output.error(CorralError("nothing was changed"))
        return FAILED
    except Exception as error:
        message = getattr(error, "format_message", None)  # typer's own errors have it, and no public base
        if message is None:
            raise
        output.error(InvalidOptions(message()))
        return INVALID
