"""Which word on the command line runs what."""

from typing import Annotated

import typer

from corral import __version__
from corral.cli import (
    audits,
    bench,
    cron,
    demo,
    dlq,
    doctor,
    events,
    gateway,
    jobs,
    lake,
    queues,
    reports,
    staff,
    tailing,
    tending,
    top,
    workers,
)
from corral.cli.session import FolderOption, JsonOption, NamespaceOption, RoomOption, UrlOption, remember

root = typer.Typer(
    name="corral",
    help="A job system on Redis: work queues, look into them, and try it all out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
queue_group = typer.Typer(help="Look at queues, add jobs to them, tend them.", no_args_is_help=True)
job_group = typer.Typer(help="Look at jobs, and act on them.", no_args_is_help=True)
dlq_group = typer.Typer(help="Jobs that ended dead: look, run again, let go.", no_args_is_help=True)
cron_group = typer.Typer(help="Jobs that come by themselves.", no_args_is_help=True)
event_group = typer.Typer(help="Follow what happens.", no_args_is_help=True)
lake_group = typer.Typer(help="A history of jobs in files: keep, report, audit.", no_args_is_help=True)

root.command("demo")(demo.command)
root.command("worker")(workers.command)
root.command("gateway")(gateway.command)
root.add_typer(queue_group, name="queue")
queue_group.command("ls")(queues.list_queues)
queue_group.command("show")(queues.show_queue)
queue_group.command("add")(queues.add)
queue_group.command("pause")(tending.pause)
queue_group.command("resume")(tending.resume)
queue_group.command("drain")(tending.drain)
queue_group.command("clean")(tending.clean)
queue_group.command("retry")(tending.retry)
root.add_typer(job_group, name="job")
job_group.command("show")(jobs.show)
job_group.command("logs")(jobs.logs)
job_group.command("tail")(tailing.tail)
job_group.command("retry")(jobs.retry)
job_group.command("promote")(jobs.bring_forward)
job_group.command("remove")(jobs.remove)
job_group.command("cancel")(jobs.stop)
root.add_typer(dlq_group, name="dlq")
dlq_group.command("ls")(dlq.list_dead)
dlq_group.command("show")(jobs.show_dead)
dlq_group.command("replay")(dlq.replay)
dlq_group.command("discard")(dlq.discard)
root.add_typer(cron_group, name="cron")
cron_group.command("ls")(cron.list_schedules)
cron_group.command("run")(cron.run)
cron_group.command("pause")(cron.pause)
cron_group.command("resume")(cron.resume)
root.command("workers")(staff.list_workers)
root.command("doctor")(doctor.command)
root.command("top")(top.command)
root.command(
    "bench",
    # --help too is for the benchmarks
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(bench.command)
root.add_typer(event_group, name="events")
event_group.command("tail")(events.tail)
root.add_typer(lake_group, name="lake")
lake_group.command("run")(lake.run)
lake_group.command("report")(reports.report)
lake_group.command("audit")(audits.audit)
lake_group.command("backfill")(lake.backfill)


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
