"""`corral schedule`: list, run, pause, resume and prune schedules."""

from typing import Annotated, Any

import msgspec
import typer
from typer import Argument

from corral.app_loader import load_app
from corral.cli.options import OptionalQueue, QueueArgument, YesOption
from corral.cli.output import time_text
from corral.cli.queue import job_document
from corral.cli.session import Session, at_server
from corral.cli.status import full_name, identity
from corral.core.schedule import Schedule
from corral.errors import CorralError, Unsupported
from corral.queue import Queue

ScheduleArgument = Annotated[str, Argument(metavar="ID", help="The schedule's id.", show_default=False)]

group = typer.Typer(help="List, run, pause, resume and prune schedules.", no_args_is_help=True)


@group.command("ls")
@at_server
async def list_schedules(session: Session, queue_name: OptionalQueue = None) -> None:
    """List schedules, the next to fire first."""
    schedules: list[tuple[Queue, Schedule]] = []
    for queue in await session.queues(queue_name):
        try:
            schedules += [(queue, schedule) for schedule in await queue.schedules.list()]
        except Unsupported:
            if len(session.protocols) == 1 or queue_name is not None:
                raise
    schedules.sort(key=lambda pair: (pair[1].next_at is None, pair[1].next_at or 0))
    session.output.listing(
        schedules,
        lambda pair: _document(*pair),
        ("schedule", "queue", "protocol", "job", "when", "next"),
        lambda pair: _row(*pair),
        "no schedules",
    )


def _document(queue: Queue, schedule: Schedule) -> dict[str, Any]:
    rule: dict[str, Any] = msgspec.to_builtins(schedule.rule)
    return {
        **identity(queue),
        "id": schedule.id,
        "next_at": schedule.next_at,
        "rule": {part: value for part, value in rule.items() if value is not None},
        "job": job_document(queue, schedule.job),
    }


def _row(queue: Queue, schedule: Schedule) -> list[str]:
    following = "paused" if schedule.next_at is None else time_text(schedule.next_at)
    protocol = queue.protocol.spec.name
    return [schedule.id, queue.name, protocol, schedule.job.name, str(schedule.rule), following]


@group.command("run")
@at_server
async def run(session: Session, queue_name: QueueArgument, schedule_id: ScheduleArgument) -> None:
    """Add a schedule's job now, besides its own times."""
    queue = await session.find(queue_name)
    await _check_exists(queue, schedule_id)
    job_id = await queue.schedules.run_now(schedule_id)
    if job_id is None:
        raise _no_schedule(queue, schedule_id)
    session.output.document({**identity(queue), "schedule": schedule_id, "id": job_id})
    session.output.line(job_id)


@group.command("pause")
@at_server
async def pause(session: Session, queue_name: QueueArgument, schedule_id: ScheduleArgument) -> None:
    """Stop a schedule until `resume`; firings in between are skipped."""
    await _set_paused(session, queue_name, schedule_id, is_paused=True)


@group.command("resume")
@at_server
async def resume(session: Session, queue_name: QueueArgument, schedule_id: ScheduleArgument) -> None:
    """Let a schedule fire again, from now on."""
    await _set_paused(session, queue_name, schedule_id, is_paused=False)


async def _set_paused(session: Session, queue_name: str, schedule_id: str, is_paused: bool) -> None:
    queue = await session.find(queue_name)
    await _check_exists(queue, schedule_id)
    set_paused = queue.schedules.pause if is_paused else queue.schedules.resume
    if not await set_paused(schedule_id):
        raise _no_schedule(queue, schedule_id)
    session.output.document({**identity(queue), "schedule": schedule_id, "paused": is_paused})
    word = "paused" if is_paused else "resumed"
    session.output.line(f"schedule {schedule_id!a} of {full_name(queue)} is {word}")


@group.command("prune")
@at_server
async def prune(
    session: Session,
    reference: Annotated[str, Argument(metavar="MODULE:APP", help="The app that declares schedules.")],
    is_confirmed: YesOption = False,
) -> None:
    """Remove schedules that no app declares any more.

    Schedules that were never declared by an app (added by HTTP, by `queue.schedules` or by Node) stay.
    """
    app = load_app(reference, session.app.url)
    schedules = [
        (queue, schedule_id)
        for queue in await session.queues(None)
        for schedule_id in await queue.undeclared_schedules()
        if schedule_id not in app.schedule_ids(queue)
    ]
    if schedules:
        names = ", ".join(f"{schedule_id!a} of {full_name(queue)}" for queue, schedule_id in schedules)
        session.confirm(f"remove {names}", is_confirmed)
    for queue, schedule_id in schedules:
        if await queue.schedules.remove(schedule_id):
            session.output.document({**identity(queue), "schedule": schedule_id, "removed": True})
            session.output.line(f"schedule {schedule_id!a} of {full_name(queue)} is removed")


async def _check_exists(queue: Queue, schedule_id: str) -> None:
    if not any(schedule.id == schedule_id for schedule in await queue.schedules.list()):
        raise _no_schedule(queue, schedule_id)


def _no_schedule(queue: Queue, schedule_id: str) -> CorralError:
    return CorralError(f"no schedule {schedule_id!a} in {full_name(queue)}; `corral schedule ls` lists them")
