"""Schedules: list those of one queue or of all, add, change, run now, pause, resume, remove."""

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.core.cron import Cron
from corral.core.schedule import Schedule, ScheduleRule
from corral.errors import CorralError
from corral.gateway import documents
from corral.gateway.models import QueueSchedule, QueueScheduleList, ScheduleRun
from corral.gateway.openapi import problem_responses, with_body
from corral.gateway.problems import Problem
from corral.gateway.requests import read_json
from corral.gateway.responses import item_document, json_response
from corral.gateway.routes.dependencies import (
    OperableQueue,
    QueueRoute,
    ReadableQueue,
    authorize_all_jobs,
    state_of,
)
from corral.gateway.routes.queues import QUEUE
from corral.queue import Queue
from corral.schedules import declare

FIRINGS = 10

router = APIRouter(responses=problem_responses(401, 403, 503))
everywhere = APIRouter(tags=["schedules"], route_class=QueueRoute, responses=problem_responses(401, 403, 503))
of_queue = APIRouter(
    tags=["schedules"],
    route_class=QueueRoute,
    prefix=QUEUE + "/schedules",
    responses=problem_responses(401, 403, 404, 409, 503),
)


@everywhere.get("/v1/schedules", response_model=documents.ScheduleList)
async def list_all_schedules(request: Request) -> Response:
    """List the schedules of all queues with their next ten firings, the next to fire first."""
    state, _ = authorize_all_jobs(request)
    queues = [queue for queue in await state.queue_cache.queues() if queue.ports.schedules is not None]
    lists = await asyncio.gather(*map(_list, queues))
    views = [view for schedules in lists for view in schedules]
    return json_response({"schedules": sorted(views, key=lambda view: view["next_at"] or 2**63)})


async def _list(queue: Queue) -> list[dict[str, Any]]:
    spec = queue.protocol.spec
    lacks = {verb: lack.reason(spec.name) for verb, lack in spec.lacks.items()}
    try:
        schedules = await queue.schedules.list()
    except CorralError:
        return []  # one odd queue must not hide the schedules of the others
    return [
        {**_document(schedule), "protocol": spec.name, "queue": queue.name, "lacks": lacks}
        for schedule in schedules
    ]


def _document(schedule: Schedule) -> dict[str, Any]:
    return {
        "id": schedule.id,
        "job": item_document(schedule.job),
        "next_at": schedule.next_at,
        "rule": msgspec.to_builtins(schedule.rule),
        "firings": _firings(schedule),
    }


def _firings(schedule: Schedule) -> list[int]:
    """Return when a schedule fires next, up to ten times; only once where its rule cannot be read."""
    if schedule.next_at is None:
        return []
    firings = [schedule.next_at]
    rule = schedule.rule
    if rule.every_ms is not None:
        return [schedule.next_at + rule.every_ms * count for count in range(FIRINGS)]
    try:
        cron = Cron.parse(rule.cron, rule.timezone or "UTC")
        while len(firings) < FIRINGS and (following := cron.next_after(firings[-1])) is not None:
            firings.append(following)
    except CorralError:
        pass
    return firings


@of_queue.get("", response_model=QueueScheduleList)
async def list_schedules(queue: ReadableQueue) -> Response:
    """List schedules, the next to run first; 409 where the protocol has none."""
    return json_response({"schedules": list(map(_document, await queue.schedules.list()))})


@of_queue.put("/{schedule_id}", response_model=QueueSchedule, **with_body(documents.ScheduleRequest))
async def put_schedule(request: Request, queue: OperableQueue, schedule_id: str) -> Response:
    """Add a schedule, or change it."""
    state = state_of(request)
    body, _ = await read_json(request, documents.ScheduleRequest, state.settings)
    zone = body.timezone or ("UTC" if body.every_ms is None else None)
    rule = ScheduleRule(cron=body.cron, timezone=zone, every_ms=body.every_ms, catch_up=body.catch_up)
    schedule = declare(queue, body.name, body.data, schedule_id, rule, body.options, state.corral.clock())
    await schedule.start()
    return await _show(queue, schedule_id, True)


@of_queue.delete("/{schedule_id}", response_model=documents.ScheduleRemoved)
async def remove_schedule(queue: OperableQueue, schedule_id: str) -> Response:
    """Delete a schedule; jobs that it has added stay."""
    if not await queue.schedules.remove(schedule_id):
        raise _no_schedule(schedule_id)
    return json_response({"removed": schedule_id})


@of_queue.post("/{schedule_id}/run", status_code=202, response_model=ScheduleRun)
async def run_schedule(queue: OperableQueue, schedule_id: str) -> Response:
    """Run a schedule's job now, besides its own times; the schedule does not change."""
    job_id = await queue.schedules.run_now(schedule_id)
    if job_id is None:
        raise _no_schedule(schedule_id)
    return json_response({"schedule": schedule_id, "job_id": job_id}, 202)


@of_queue.post("/{schedule_id}/pause", response_model=QueueSchedule)
async def pause_schedule(queue: OperableQueue, schedule_id: str) -> Response:
    """Skip the schedule's times until it is resumed."""
    return await _show(queue, schedule_id, await queue.schedules.pause(schedule_id))


@of_queue.post("/{schedule_id}/resume", response_model=QueueSchedule)
async def resume_schedule(queue: OperableQueue, schedule_id: str) -> Response:
    """Run the schedule again, from now on."""
    return await _show(queue, schedule_id, await queue.schedules.resume(schedule_id))


async def _show(queue: Queue, schedule_id: str, exists: bool) -> Response:
    for schedule in await queue.schedules.list() if exists else ():
        if schedule.id == schedule_id:
            return json_response(_document(schedule))
    raise _no_schedule(schedule_id)


def _no_schedule(schedule_id: str) -> Problem:
    return Problem("schedule-not-found", f"no schedule {schedule_id[:80]!a} here; see the queue's /schedules")


router.include_router(everywhere)
router.include_router(of_queue)
