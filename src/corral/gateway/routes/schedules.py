"""Schedules of a queue: list, run now, pause, resume."""

from fastapi import APIRouter
from starlette.responses import Response

from corral.gateway.models import QueueSchedule, QueueScheduleList, ScheduleRun
from corral.gateway.openapi import problem_responses
from corral.gateway.problems import Problem
from corral.gateway.responses import item_document, json_response
from corral.gateway.routes.dependencies import OperableQueue, QueueRoute, ReadableQueue
from corral.gateway.routes.queues import QUEUE
from corral.queue import Queue

router = APIRouter(
    tags=["schedules"],
    route_class=QueueRoute,
    prefix=QUEUE + "/schedules",
    responses=problem_responses(401, 403, 404, 409, 503),
)


@router.get("", response_model=QueueScheduleList)
async def list_schedules(queue: ReadableQueue) -> Response:
    """List schedules, the next to run first; 409 where the protocol has none."""
    schedules = await queue.schedules.list()
    return json_response({"schedules": list(map(item_document, schedules))})


@router.post("/{schedule_id}/run", status_code=202, response_model=ScheduleRun)
async def run_schedule(queue: OperableQueue, schedule_id: str) -> Response:
    """Run a schedule's job now, besides its own times; the schedule does not change."""
    job_id = await queue.schedules.run_now(schedule_id)
    if job_id is None:
        raise _no_schedule(schedule_id)
    return json_response({"schedule": schedule_id, "job_id": job_id}, 202)


@router.post("/{schedule_id}/pause", response_model=QueueSchedule)
async def pause_schedule(queue: OperableQueue, schedule_id: str) -> Response:
    """Skip the schedule's times until it is resumed."""
    return await _show(queue, schedule_id, await queue.schedules.pause(schedule_id))


@router.post("/{schedule_id}/resume", response_model=QueueSchedule)
async def resume_schedule(queue: OperableQueue, schedule_id: str) -> Response:
    """Run the schedule again, from now on."""
    return await _show(queue, schedule_id, await queue.schedules.resume(schedule_id))


async def _show(queue: Queue, schedule_id: str, exists: bool) -> Response:
    for schedule in await queue.schedules.list() if exists else ():
        if schedule.id == schedule_id:
            return json_response(item_document(schedule))
    raise _no_schedule(schedule_id)


def _no_schedule(schedule_id: str) -> Problem:
    return Problem("schedule-not-found", f"no schedule {schedule_id[:80]!a} here; see the queue's /schedules")
