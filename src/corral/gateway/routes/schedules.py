"""Schedules: list those of one queue or of all, add, change, run now, pause, resume, remove."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from corral.core.cron import Cron
from corral.core.filter import JobFilter
from corral.core.schedule import Schedule, ScheduleRule
from corral.errors import CorralError
from corral.gateway import documents
from corral.gateway.history import History
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
READ = 100
"""Jobs read by one script call."""

router = APIRouter(responses=problem_responses(401, 403, 503))
everywhere = APIRouter(tags=["schedules"], route_class=QueueRoute, responses=problem_responses(401, 403, 503))
of_queue = APIRouter(
    tags=["schedules"],
    route_class=QueueRoute,
    prefix=QUEUE + "/schedules",
    responses=problem_responses(401, 403, 404, 409, 503),
)


@everywhere.get("/v1/schedules", response_model=documents.ScheduleList)
async def list_all_schedules(
    request: Request,
    past: Annotated[int, Query(ge=0, le=50, description="Past firings to tell of each schedule.")] = 10,
) -> Response:
    """List the schedules of all queues with their next ten firings and their last ones, the next first."""
    state, _ = authorize_all_jobs(request)
    queues = [queue for queue in await state.queue_cache.queues() if queue.ports.schedules is not None]
    now = state.corral.clock()
    lists = await asyncio.gather(*(_list(queue, past, now) for queue in queues))
    views = [view for schedules in lists for view in schedules]
    if state.history.has_lake:
        await _add_outcomes(state.history, views)
    return json_response({"schedules": sorted(views, key=lambda view: view["next_at"] or 2**63)})


async def _list(queue: Queue, past: int, now: int) -> list[dict[str, Any]]:
    spec = queue.protocol.spec
    lacks = {verb: lack.reason(spec.name) for verb, lack in spec.lacks.items()}
    try:
        schedules = await queue.schedules.list()
        times = [_past_firings(schedule, past, now) for schedule in schedules]
        ids = [
            [queue.schedules.firing_id(schedule.id, at) for at in moments]
            for schedule, moments in zip(schedules, times, strict=True)
        ]
        states = await _states(queue, [job_id for some in ids for job_id in some])
    except CorralError:
        return []  # one odd queue must not hide the schedules of the others
    return [
        {
            **_document(schedule),
            "protocol": spec.name,
            "queue": queue.name,
            "lacks": lacks,
            "past": [
                {"at": at, "job_id": job_id, "state": states.get(job_id)}
                for at, job_id in zip(moments, of_schedule, strict=True)
            ],
        }
        for schedule, moments, of_schedule in zip(schedules, times, ids, strict=True)
    ]


async def _states(queue: Queue, ids: Sequence[str]) -> dict[str, str]:
    """Return the states of those jobs that exist."""
    chunks = [ids[start : start + READ] for start in range(0, len(ids), READ)]
    jobs = await asyncio.gather(*(queue.ports.snapshot.read(chunk, JobFilter()) for chunk in chunks))
    return {job.id: job.state.value for some in jobs for job in some if job.state is not None}


async def _add_outcomes(history: History, views: Sequence[dict[str, Any]]) -> None:
    """Add to past firings what only the lake knows of them."""
    forgotten = {
        (view["protocol"], view["queue"], firing["job_id"]): firing
        for view in views
        for firing in view["past"]
        if firing["state"] is None
    }
    if not forgotten:
        return
    try:
        since = min(firing["at"] for firing in forgotten.values())
        outcomes = await history.outcomes(list(forgotten), since)
    except Problem:
        return  # the schedules are shown without
    for key, outcome in outcomes.items():
        forgotten[key]["state"] = outcome if outcome in ("completed", "dead", "cancelled") else None


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


def _past_firings(schedule: Schedule, count: int, now: int) -> list[int]:
    """Return the last times of a schedule's rule, the oldest first; none where it cannot be read."""
    rule, firings = schedule.rule, list[int]()
    if rule.every_ms is not None:
        if schedule.next_at is None:
            return []
        last = schedule.next_at - -(-(schedule.next_at - now) // rule.every_ms) * rule.every_ms
        return [last - rule.every_ms * step for step in reversed(range(count))]
    try:
        cron = Cron.parse(rule.cron, rule.timezone or "UTC")
        at: int | None = now
        while len(firings) < count and at is not None and (at := cron.last_until(at)) is not None:
            firings.append(at)
            at -= 1
    except CorralError:
        return []
    return firings[::-1]


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
