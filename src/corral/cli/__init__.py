"""The command line: a module per command, named like the command and imported when it is called."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand
from typer.main import get_group

from corral import __version__
from corral.cli.option_groups import option_groups
from corral.cli.options import ServerOptions

COMMANDS = {
    "demo": "Try Corral on a private server; nothing is left behind.",
    "worker": "Run a worker: the handlers of an app, until Ctrl-C.",
    "gateway": "Serve jobs, events and queues by HTTP, with a dashboard.",
    "workers": "List the workers that are alive.",
    "top": "Monitor queues, rates, times and workers until Ctrl-C.",
    "migrate": "Move jobs between queues, servers and protocols.",
    "doctor": "Examine the server, its queues and this machine.",
    "bench": "Run the benchmarks, as `make bench` does.",
    "prove": "Work jobs under faults, and judge their histories.",
}
"""The commands, with their lines in the help."""
GROUPS = {
    "queue": "List queues, add jobs; pause, drain and clean.",
    "job": "Show, follow, retry, promote, remove and cancel jobs.",
    "dlq": "List, show, replay and discard dead jobs (dead letters).",
    "schedule": "List, run, pause, resume and prune schedules.",
    "events": "Follow job events.",
    "lake": "The history of jobs, kept by Spark: update, report, audit.",
    "scripts": "Write Lua scripts for clients in other languages.",
}
"""The groups of commands, with their lines in the help."""
# --help, too, is passed on to what runs from the source tree
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
SETTINGS: dict[str, dict[str, Any]] = {"bench": _PASSED_ON, "prove": _PASSED_ON}
"""The context settings of commands that have some of their own."""


def _new_typer() -> typer.Typer:
    return typer.Typer(
        name="corral",
        help="Corral, a job system on Redis: run workers, manage queues and jobs, watch and examine them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class LateCommand(TyperCommand):
    """A command or a group whose module is imported when it is called or completed, not for the help."""

    def load(self) -> Any:
        """Return the command itself."""
        name = self.name or ""
        module = import_module(f"{__name__}.{name}")
        parent = _new_typer()
        if name in GROUPS:
            parent.add_typer(module.group, name=name)
        else:
            parent.command(name, context_settings=SETTINGS.get(name))(module.command)
        return get_group(parent).commands[name]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent, **extra)


root = _new_typer()
for _name, _help in {**COMMANDS, **GROUPS}.items():
    root.command(_name, cls=LateCommand, help=_help)(lambda: None)


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
    from corral.cli.output import Output
    from corral.cli.session import FAILED, INVALID
    from corral.errors import CorralError, InvalidOptions

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
