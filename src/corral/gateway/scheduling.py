"""Schedules of a queue: listed, run now, paused and resumed."""

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.core.schedule import Schedule
from corral.gateway.answers import json_answer
from corral.gateway.describe import problems
from corral.gateway.hall import Hall
from corral.gateway.models import Fired, ScheduleList, ScheduleView
from corral.gateway.operating import queue_to_change
from corral.gateway.paths import NamedRoute
from corral.gateway.problems import Problem
from corral.gateway.queues import look
from corral.queue import Queue

router = APIRouter(tags=["schedules"], route_class=NamedRoute)

ANSWERS = problems(401, 403, 404, 409, 503)


@router.get(
    "/v1/queues/{protocol}/{queue}/schedules",
    operation_id="listSchedules",
    response_model=ScheduleList,
    responses=ANSWERS,
)
async def list_schedules(request: Request, protocol: str, queue: str) -> Response:
    """Schedules of a queue, the next to fire first; 409 where the protocol has none."""
    hall = await look(request)
    found = await hall.ask(hall.directory.queue(protocol, queue))
    listed = await hall.ask(found.schedules.list())
    return json_answer({"schedules": [msgspec.to_builtins(schedule) for schedule in listed]})


@router.post(
    "/v1/queues/{protocol}/{queue}/schedules/{schedule_id}/run",
    operation_id="runSchedule",
    status_code=202,
    response_model=Fired,
    responses=ANSWERS,
)
async def run(request: Request, protocol: str, queue: str, schedule_id: str) -> Response:
    """Run a schedule's job now, besides its own times; the schedule stays as it is."""
    hall, found = await queue_to_change(request, protocol, queue)
    job_id = await hall.ask(found.schedules.run_now(schedule_id))
    if job_id is None:
        raise _none(schedule_id)
    return json_answer({"schedule": schedule_id, "job_id": job_id}, 202)


@router.post(
    "/v1/queues/{protocol}/{queue}/schedules/{schedule_id}/pause",
    operation_id="pauseSchedule",
    response_model=ScheduleView,
    responses=ANSWERS,
)
async def pause(request: Request, protocol: str, queue: str, schedule_id: str) -> Response:
    """No firings until it is resumed; what falls between is not made up for."""
    return await _set(request, protocol, queue, schedule_id, is_paused=True)


@router.post(
    "/v1/queues/{protocol}/{queue}/schedules/{schedule_id}/resume",
    operation_id="resumeSchedule",
    response_model=ScheduleView,
    responses=ANSWERS,
)
async def resume(request: Request, protocol: str, queue: str, schedule_id: str) -> Response:
    """Firings again, from now on."""
    return await _set(request, protocol, queue, schedule_id, is_paused=False)


async def _set(request: Request, protocol: str, queue: str, schedule_id: str, is_paused: bool) -> Response:
    hall, found = await queue_to_change(request, protocol, queue)
    await _one(hall, found, schedule_id)
    act = found.schedules.pause if is_paused else found.schedules.resume
    if not await hall.ask(act(schedule_id)):
        raise _none(schedule_id)
    return json_answer(msgspec.to_builtins(await _one(hall, found, schedule_id)))


async def _one(hall: Hall, queue: Queue, schedule_id: str) -> Schedule:
    for schedule in await hall.ask(queue.schedules.list()):
        if schedule.id == schedule_id:
            return schedule
    raise _none(schedule_id)


def _none(schedule_id: str) -> Problem:
    return Problem("schedule-not-found", f"no schedule {schedule_id[:80]!a} here; see the queue's /schedules")
