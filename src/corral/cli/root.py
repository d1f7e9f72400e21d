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
from corral.cli.session import FolderOption, JsonOption, NamespaceOption, ProtocolOption, UrlOption, remember

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

root.command("demo", short_help="Try it all out on a private server; nothing is left behind.")(demo.command)
root.command("worker", short_help="Run an app's handlers until Ctrl-C.")(workers.command)
root.command("gateway", short_help="Serve jobs, events and queues by HTTP, with a page.")(gateway.command)
root.add_typer(queue_group, name="queue")
queue_group.command("ls")(queues.list_queues)
queue_group.command("show", short_help="Show one queue, or its jobs of a state.")(queues.show_queue)
queue_group.command("add")(queues.add)
queue_group.command("pause")(tending.pause)
queue_group.command("resume")(tending.resume)
queue_group.command("drain", short_help="Delete all jobs that wait.")(tending.drain)
queue_group.command("clean")(tending.clean)
queue_group.command("retry", short_help="Put dead jobs back in the queue.")(tending.retry)
root.add_typer(job_group, name="job")
job_group.command("show")(jobs.show)
job_group.command("logs")(jobs.logs)
job_group.command("tail", short_help="Follow one job until it ends.")(tailing.tail)
job_group.command("retry")(jobs.retry)
job_group.command("promote")(jobs.bring_forward)
job_group.command("remove")(jobs.remove)
job_group.command("cancel")(jobs.stop)
root.add_typer(dlq_group, name="dlq")
dlq_group.command("ls", short_help="List dead jobs with their reasons.")(dlq.list_dead)
dlq_group.command("show")(jobs.show_dead)
dlq_group.command("replay", short_help="Put dead jobs back in their queues.")(dlq.replay)
dlq_group.command("discard", short_help="Delete dead jobs.")(dlq.discard)
root.add_typer(cron_group, name="cron")
cron_group.command("ls", short_help="List schedules, the next to fire first.")(cron.list_schedules)
cron_group.command("run", short_help="Run a schedule's job now.")(cron.run)
cron_group.command("pause", short_help="No firings until it is resumed.")(cron.pause)
cron_group.command("resume")(cron.resume)
root.command("workers", short_help="List the workers that are alive.")(staff.list_workers)
root.command("doctor", short_help="Examine a server, its queues and this machine.")(doctor.command)
root.command("top", short_help="Watch queues, rates, times and workers live.")(top.command)
root.command(
    "bench",
    short_help="Measure Corral beside its peers.",
    # --help too is for the benchmarks
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(bench.command)
root.add_typer(event_group, name="events")
event_group.command("tail", short_help="Follow events of queues until Ctrl-C.")(events.tail)
root.add_typer(lake_group, name="lake")
lake_group.command("run")(lake.run)
lake_group.command("report", short_help="Throughput, times, failures, the slowest jobs.")(reports.report)
lake_group.command("audit", short_help="Find what is lost, doubled or left behind.")(audits.audit)
lake_group.command("backfill")(lake.backfill)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"corral {__version__}")
        raise typer.Exit


@root.callback()
def begin(
    context: typer.Context,
    url: UrlOption = None,
    protocol: ProtocolOption = None,
    namespace: NamespaceOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    remember(context, url, protocol, namespace, folder, as_json)
