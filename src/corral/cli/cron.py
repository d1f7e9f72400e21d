"""`corral cron`: jobs that come by themselves; see them, run one now, pause and resume one."""

from typing import Annotated, Any

import msgspec
import typer

from corral.cli.looking import name_of
from corral.cli.queues import job_document
from corral.cli.screen import moment
from corral.cli.session import FAILED, Here, QueueArgument, QueuesArgument, at_server
from corral.core.schedule import Schedule
from corral.errors import CorralError, Unsupported
from corral.queue import Queue

ScheduleArgument = Annotated[str, typer.Argument(metavar="ID", help="The schedule's id.", show_default=False)]


@at_server
async def list_schedules(here: Here, queue: QueuesArgument = None) -> None:
    """List schedules, the next to fire first; without a queue, those of every queue."""
    queues = await here.every() if queue is None else [await here.find(queue)]
    found: list[tuple[Queue, Schedule]] = []
    for one in queues:
        try:
            found += [(one, schedule) for schedule in await one.schedules.list()]
        except Unsupported:
            if len(here.protocols) == 1 or queue is not None:
                raise
    found.sort(key=lambda pair: (pair[1].next_at is None, pair[1].next_at or 0))
    if here.screen.as_json:
        for one, schedule in found:
            here.screen.document(
                {
                    "protocol": one.protocol.spec.name,
                    "queue": one.name,
                    "id": schedule.id,
                    "next_at": schedule.next_at,
                    "rule": rule_document(schedule),
                    "job": job_document(schedule.job, one.protocol.spec.name),
                }
            )
    elif not found:
        here.screen.line("no schedules here")
    else:
        titles = ("schedule", "queue", "protocol", "job", "when", "next")
        here.screen.table(titles, [_row(one, schedule) for one, schedule in found])


def _row(queue: Queue, schedule: Schedule) -> list[str]:
    following = "paused" if schedule.next_at is None else moment(schedule.next_at)
    return [
        schedule.id,
        queue.name,
        queue.protocol.spec.name,
        schedule.job.name,
        str(schedule.rule),
        following,
    ]


def rule_document(schedule: Schedule) -> dict[str, Any]:
    """Return the rule by which it fires, without the parts it has not."""
    rule: dict[str, Any] = msgspec.to_builtins(schedule.rule)
    return {part: value for part, value in rule.items() if value is not None}


@at_server
async def run(here: Here, queue: QueueArgument, schedule_id: ScheduleArgument) -> int | None:
    """Run a schedule's job now, besides its own times; the schedule stays as it is."""
    found = await here.find(queue)
    schedule = await _schedule(here, found, schedule_id)
    if schedule is None:
        return FAILED
    job_id = await found.schedules.run_now(schedule_id)
    if job_id is None:
        return _gone(here, found, schedule_id)
    if here.screen.as_json:
        here.screen.document(
            {"protocol": found.protocol.spec.name, "queue": found.name, "schedule": schedule_id, "id": job_id}
        )
    else:
        here.screen.line(job_id)
    return None


@at_server
async def pause(here: Here, queue: QueueArgument, schedule_id: ScheduleArgument) -> int | None:
    """No firings of a schedule until it is resumed; what falls between is not made up for."""
    return await _set(here, queue, schedule_id, is_paused=True)


@at_server
async def resume(here: Here, queue: QueueArgument, schedule_id: ScheduleArgument) -> int | None:
    """Firings of a schedule again, from now on."""
    return await _set(here, queue, schedule_id, is_paused=False)


async def _set(here: Here, name: str, schedule_id: str, is_paused: bool) -> int | None:
    queue = await here.find(name)
    if await _schedule(here, queue, schedule_id) is None:
        return FAILED
    act = queue.schedules.pause if is_paused else queue.schedules.resume
    if not await act(schedule_id):
        return _gone(here, queue, schedule_id)
    if here.screen.as_json:
        here.screen.document(
            {
                "protocol": queue.protocol.spec.name,
                "queue": queue.name,
                "schedule": schedule_id,
                "paused": is_paused,
            }
        )
    else:
        word = "is paused" if is_paused else "fires again"
        here.screen.line(f"schedule {schedule_id!a} of {name_of(queue)} {word}")
    return None


async def _schedule(here: Here, queue: Queue, schedule_id: str) -> Schedule | None:
    """The schedule; where there is none, that is said."""
    for schedule in await queue.schedules.list():
        if schedule.id == schedule_id:
            return schedule
    _gone(here, queue, schedule_id)
    return None


def _gone(here: Here, queue: Queue, schedule_id: str) -> int:
    told = f"no schedule {schedule_id!a} in {name_of(queue)}; `corral cron ls` lists them"
    here.screen.fail(CorralError(told))
    return FAILED
