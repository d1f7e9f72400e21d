"""Bulk changes: start one over all jobs that match a query, follow it, stop it."""

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.core.filter import filter_of
from corral.gateway import documents
from corral.gateway.openapi import problem_responses, with_body
from corral.gateway.problems import Problem
from corral.gateway.requests import read_json
from corral.gateway.responses import json_response
from corral.gateway.routes.dependencies import OperableQueue, QueueRoute, authorize
from corral.gateway.routes.queues import QUEUE
from corral.gateway.security.auth import Role
from corral.gateway.tasks import BulkTask, lacking

router = APIRouter(tags=["tasks"], route_class=QueueRoute, responses=problem_responses(401, 403, 404, 503))


@router.post(
    QUEUE + "/tasks",
    status_code=202,
    response_model=documents.TaskView,
    **{**with_body(documents.TaskRequest), "responses": problem_responses(400, 408, 409, 413, 415, 422)},
)
async def start_task(request: Request, queue: OperableQueue) -> Response:
    """Retry, replay, promote, remove or cancel all jobs that match a query; `Location` has the progress."""
    state, client = authorize(request, Role.OPERATE)
    body, _ = await read_json(request, documents.TaskRequest, state.settings)
    if body.verb == "remove":
        authorize(request, Role.ADMIN)
    error = lacking(queue.protocol, body.verb)
    if error is not None:
        raise error
    jobs = filter_of(body.query, state.corral.clock(), body.limit)
    task = await state.tasks.start(queue, body.verb, jobs, body.query, client.name, body.per_second)
    return json_response(msgspec.to_builtins(task), 202, {"Location": f"/v1/tasks/{task.id}"})


@router.get("/v1/tasks", response_model=documents.TaskList)
async def list_tasks(request: Request) -> Response:
    """List the bulk changes of the last day, the latest first."""
    state, _ = authorize(request, Role.OPERATE)
    return json_response({"tasks": [msgspec.to_builtins(task) for task in await state.tasks.list()]})


@router.get("/v1/tasks/{task_id}", response_model=documents.TaskView)
async def get_task(request: Request, task_id: str) -> Response:
    """Return a bulk change with its progress."""
    state, _ = authorize(request, Role.OPERATE)
    return _show(await state.tasks.task(task_id), task_id)


@router.delete("/v1/tasks/{task_id}", response_model=documents.TaskView)
async def stop_task(request: Request, task_id: str) -> Response:
    """Stop a bulk change after its current page; what is done stays done."""
    state, _ = authorize(request, Role.OPERATE)
    return _show(await state.tasks.stop(task_id), task_id)


def _show(task: BulkTask | None, task_id: str) -> Response:
    if task is None:
        raise Problem("task-not-found", f"no task {task_id[:80]!a}; see /v1/tasks")
    return json_response(msgspec.to_builtins(task))
