"""Which word on the command line runs what."""

from typing import Annotated

import typer

from corral import __version__
from corral.cli import demo, events, gateway, jobs, queues, workers
from corral.cli.session import FolderOption, JsonOption, NamespaceOption, RoomOption, UrlOption, remember

root = typer.Typer(
    name="corral",
    help="A job system on Redis: work queues, look into them, and try it all out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
queue_group = typer.Typer(help="List queues, and add jobs to them.", no_args_is_help=True)
job_group = typer.Typer(help="Look at one job.", no_args_is_help=True)
event_group = typer.Typer(help="Follow what happens.", no_args_is_help=True)

root.command("demo")(demo.command)
root.command("worker")(workers.command)
root.command("gateway")(gateway.command)
root.add_typer(queue_group, name="queue")
queue_group.command("ls")(queues.list_queues)
queue_group.command("add")(queues.add)
root.add_typer(job_group, name="job")
job_group.command("show")(jobs.show)
root.add_typer(event_group, name="events")
event_group.command("tail")(events.tail)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"corral {__version__}")
        raise typer.Exit


@root.callback()
def begin(
    context: typer.Context,
    url: UrlOption = None,
    room: RoomOption = None,
    namespace: NamespaceOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    remember(context, url, room, namespace, folder, as_json)
