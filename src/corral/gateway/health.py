"""For those who look after the gateway: is it alive, can it serve, what are its numbers."""

import asyncio

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from corral.errors import RedisError
from corral.gateway.answers import json_answer
from corral.gateway.callers import Role
from corral.gateway.describe import problems
from corral.gateway.hall import Hall, enter
from corral.gateway.models import Alive, Ready
from corral.gateway.problems import Problem
from corral.queue import Queue

router = APIRouter(tags=["health"])

EXAMPLE = """# HELP corral_job_count Jobs in a queue, by state.
# TYPE corral_job_count gauge
corral_job_count{queue="mail",protocol="bullmq",state="waiting"} 2.0
"""


@router.get("/livez", operation_id="isAlive", response_model=Alive)
async def livez() -> Response:
    """Is the process alive? The server behind it is not asked."""
    return json_answer({"status": "alive"})


@router.get("/readyz", operation_id="isReady", response_model=Ready, responses=problems(503))
async def readyz(request: Request) -> Response:
    """Can it serve? The server answers, the scripts are known, the group is there."""
    hall: Hall = request.state.hall
    if hall.is_stopping:
        raise Problem("stopping", "the gateway is stopping")
    checks = await hall.ask(hall.http.check())
    return json_answer({"status": "ready", "checks": checks})


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses=problems(
        *(401, 403),
        more={
            200: {
                "description": "For Prometheus.",
                "content": {"text/plain": {"schema": {"type": "string"}, "example": EXAMPLE}},
            }
        },
    ),
)
async def metrics(request: Request) -> Response:
    """The gateway's numbers, and how many jobs are in each state of each queue."""
    hall, _ = enter(request, Role.READ)
    try:
        queues = await hall.ask(hall.directory.queues())
        await hall.ask(asyncio.gather(*(_count(hall, queue) for queue in queues)))
    except RedisError:
        # the other numbers are still worth having
        hall.metrics.server_answers(False)
    else:
        hall.metrics.server_answers(True)
    hall.publish()
    return Response(hall.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


async def _count(hall: Hall, queue: Queue) -> None:
    counts = await queue.counts()
    hall.metrics.count_jobs(
        queue.protocol.spec.name, queue.name, {state.value: n for state, n in counts.items()}
    )
    words = queue.protocol.spec.metric_states
    if words is not None:
        told = {words[state]: count for state, count in counts.items() if state in words}
        hall.corral.metrics.count_jobs(queue.name, told)
